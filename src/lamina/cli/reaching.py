"""How a command reaches a running server: ``--server``, who one is, and TLS; the same for every command.

    --server 127.0.0.1:6380                 one door, without TLS
    --server unix:/run/lamina/resp.sock     one door
    --server laminas://ann@db1              the server, as lamina.connect has it; also LAMINA_URL

Only ``--server`` and ``--data`` are arguments of a command; the rest is looked up where the connection is made.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import click

from lamina.errors import BadOption

if TYPE_CHECKING:
    from lamina.client.endpoint import Endpoint

RESP: Final = "127.0.0.1:6380"
WORKQ: Final = "127.0.0.1:9922"
TIMEOUT_S: Final = 30.0
_KEY: Final = "lamina.cli.reaching"

_Function = TypeVar("_Function", bound=Callable[..., object])


@dataclass(slots=True)
class _Said:
    """What was said of who one is."""

    user: str | None = None
    token: str | None = None
    password: str | None = None
    ca: str | None = None


def reaches_a_server(default: str) -> Callable[[_Function], _Function]:
    """The options of a command that asks a server. It gets ``server``; ``endpoint_of`` knows the others."""

    def decorate(command: _Function) -> _Function:
        for option in reversed(
            (
                click.option(
                    "--server",
                    "--url",
                    "server",
                    metavar="HOST:PORT|URL",
                    help="The server: HOST:PORT, unix:PATH, or lamina://USER@HOST (laminas:// with TLS).  "
                    f"[default: LAMINA_URL, or {default}]",
                ),
                _option("--user", "NAME", "Who you are, where a server has users."),
                _option("--token", "TEXT", "Of the user. Better in LAMINA_TOKEN."),
                _option("--password", "TEXT", "Of the server, where it has one. Better in LAMINA_PASSWORD."),
                _option("--ca", "FILE", "Speak TLS, and trust this certificate, too."),
            )
        ):
            command = option(command)
        return command

    return decorate


def server_or_folder(default: str) -> Callable[[_Function], _Function]:
    """The same for a command that also works on a folder: it gets ``server`` and ``data``."""
    data = click.option(
        "--data", metavar="DIR", type=click.Path(), help="A data folder that no server has open, instead of a server."
    )

    def decorate(command: _Function) -> _Function:
        return reaches_a_server(default)(data(command))

    return decorate


def one_of(server: str | None, data: str | None) -> None:
    """Raises: BadOption if both are given."""
    if server is not None and data is not None:
        raise BadOption("--server and --data exclude each other", hint="a running server has its folder for itself")


def endpoint_of(server: str | None, default: str, *, timeout: float = TIMEOUT_S) -> Endpoint:
    """The door to ask: that of ``default``, RESP or WORKQ, where a url is of the whole server. Raises: BadOption."""
    from lamina.addresses import Address
    from lamina.client.connecting import doors
    from lamina.client.endpoint import Endpoint

    said = _said()
    where = server or os.environ.get("LAMINA_URL") or default
    token = said.token
    if "://" in where:
        others = os.environ.get("LAMINA_TOKEN") or said.password or os.environ.get("LAMINA_PASSWORD")
        tls = trusting(said.ca)
        found = doors(where, user=said.user, token=token, otherwise=others, tls=tls, timeout=timeout, retry_s=0)
        endpoint = found[1] if default == WORKQ else found[0]
    else:
        token = token or os.environ.get("LAMINA_TOKEN") or said.password or os.environ.get("LAMINA_PASSWORD")
        at = Address.parse_listen(where)
        host, path = at.host or "127.0.0.1", at.path or None
        tls = trusting(said.ca)
        endpoint = Endpoint(host, at.port, path=path, user=said.user, token=token, tls=tls, timeout=timeout, retry_s=0)
    if endpoint.user and not endpoint.token:
        hint = "put it into LAMINA_TOKEN, or give --token"
        raise BadOption(f"the token of {endpoint.user} is missing", hint=hint, option="token")
    return endpoint


def trusting(ca: str | None) -> ssl.SSLContext | None:
    """TLS that trusts the certificates of this machine and this one; None without it. Raises: BadOption."""
    if ca is None:
        return None
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        hint = "a file of certificates in PEM, such as the one of the server itself"
        raise BadOption(f"--ca {ca}: no certificate can be read from it: {error}", hint=hint, option="ca") from error
    return context


def _option(name: str, metavar: str, help: str) -> Callable[[_Function], _Function]:
    return click.option(name, metavar=metavar, expose_value=False, callback=_keep, help=help)


def _keep(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    assert parameter.name is not None
    setattr(context.meta.setdefault(_KEY, _Said()), parameter.name, value)


def _said() -> _Said:
    context = click.get_current_context(silent=True)
    found = None if context is None else context.meta.get(_KEY)
    return found if isinstance(found, _Said) else _Said()
