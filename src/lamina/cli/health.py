"""``lamina health``: is a server ready? Exit code 0 or 1, for containers and scripts."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

import click

from lamina.addresses import Address
from lamina.cli.render import as_json, out, print_json
from lamina.errors import BadOption, Disconnected, WireError
from lamina.units import parse_duration, show_duration

DOOR: Final = "127.0.0.1:9980"
_UNIX: Final = "unix:"
_MOST: Final = 1 << 20  # bytes of an answer
_NOT_WELL: Final = 1
_ANY: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104, nothing listens here


@click.command()
@click.option(
    "--http", "door", metavar="HOST:PORT", help="The HTTP door, or unix:PATH.  [default: that of the settings]"
)
@click.option("--url", metavar="URL", help="The same as a URL, such as https://db1:9980.")
@click.option("--live", is_flag=True, help="Ask only whether the process is of use: also one that restores is.")
@click.option("--insecure", is_flag=True, help="With https: trust any certificate.")
@click.option("--timeout", default="5s", metavar="TIME", show_default=True, help="How long to wait for an answer.")
@as_json
def health(door: str | None, url: str | None, live: bool, insecure: bool, timeout: str, as_json: bool) -> int:
    """Say whether a server is ready: exit code 0 if so, 1 if not, with the reason.

    It asks /readyz of the HTTP door, or /healthz with --live. Where no door is named it is that of the settings of a
    server here (lamina.toml, the environment), with TLS if that has a certificate, which is then not checked.
    """
    if door is not None and url is not None:
        raise BadOption("--http and --url say the same", hint="give one of them")
    path, seconds = "/healthz" if live else "/readyz", parse_duration(timeout)
    where = url or door
    status, answer = ask(where, path, seconds, insecure) if where else _ask_own(path, seconds)
    is_well = status == http.client.OK
    if as_json:
        print_json({"is_well": is_well, **answer})
    else:
        out.print(_line(is_well, live, answer), markup=False)
    return 0 if is_well else _NOT_WELL


def _line(is_well: bool, live: bool, answer: dict[str, Any]) -> str:
    phase = str(answer.get("phase", "unknown"))
    if is_well:
        return f"alive, {phase}" if live else "ready"
    words = ["not alive" if live else "not ready", phase]
    if phase == "restoring":
        words.append(f"{answer.get('percent', 0)} %")
        left = answer.get("estimate_s")
        if left is not None:
            words.append(f"about {show_duration(float(left))} left")
    problems = answer.get("problems") or {}
    reasons = [str(answer["reason"])] if answer.get("reason") else []
    reasons += [f"{name}: {reason}" for name, reason in problems.items()]
    return ", ".join(words) + "".join(f"\n  {reason}" for reason in reasons)


def _ask_own(path: str, timeout: float) -> tuple[int, dict[str, Any]]:
    """The same of the door that a server with the settings of this place has. It does not leave this machine."""
    from lamina.config import load

    settings = load()
    at = settings.address("http")
    if at is None:
        raise BadOption("the HTTP door is switched off ([http] listen)", hint="name one with --http HOST:PORT")
    if at.path:
        return ask(str(at), path, timeout)
    host = _ANY.get(at.host, at.host)
    where = str(Address(host, at.port))
    cert, key = settings.maybe("server.tls_cert"), settings.maybe("server.tls_key")
    if cert is None or key is None:
        return ask(where, path, timeout)
    shown = (cert, key) if settings.maybe("server.tls_client_ca") is not None else None
    return ask(f"https://{where}", path, timeout, insecure=True, shown=shown)


def ask(
    where: str, path: str, timeout: float, insecure: bool = False, shown: tuple[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Status and answer. ``shown``: a certificate and its key, for a door that wants one.

    Raises: Disconnected; WireError for an answer that is none of such a door; BadOption.
    """
    connection = _connection(where, timeout, insecure, shown)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        response = connection.getresponse()
        body = response.read(_MOST)
    except (OSError, http.client.HTTPException) as error:
        reason = "no answer in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
        hint = "is a server running there, with its HTTP door open?"
        raise Disconnected(f"{where}: cannot ask: {reason}", hint=hint, server=where) from error
    finally:
        connection.close()
    try:
        answer = json.loads(body)
        if not isinstance(answer, dict) or "phase" not in answer:
            raise ValueError
    except ValueError:
        raise WireError(f"{where}: no answer of a lamina server", hint="check the address") from None
    return response.status, answer


def _connection(
    where: str, timeout: float, insecure: bool, shown: tuple[str, str] | None
) -> http.client.HTTPConnection:
    if where.startswith(_UNIX):
        return _UnixConnection(where.removeprefix(_UNIX), timeout)
    parts = urlsplit(where if "://" in where else f"http://{where}")
    try:
        host, port = parts.hostname or "127.0.0.1", parts.port or int(DOOR.rpartition(":")[2])
    except ValueError:
        host, port = "", 0
    if not host or not port or parts.scheme not in ("http", "https"):
        raise BadOption(f"{where!r} is no address", hint=f"give HOST:PORT, such as {DOOR}, or http://HOST:PORT")
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout)
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if shown is not None:
        try:
            context.load_cert_chain(*shown)
        except OSError as error:  # what ssl raises is one, too
            raise BadOption(f"{shown[0]}: the certificate cannot be used: {error}", hint="check its path") from error
    return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
