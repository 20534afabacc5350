"""``lamina top``: a running server, live."""

from __future__ import annotations

import contextlib
import os
import select
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import click

from lamina.addresses import Address
from lamina.cli.render import as_json, out, print_json
from lamina.cli.top_facts import Watcher
from lamina.errors import BadOption, Disconnected
from lamina.units import parse_duration

RESP: Final = "127.0.0.1:6380"
WORKQ: Final = "127.0.0.1:9922"
_LEAST_S: Final = 0.1
_TIMEOUT_S: Final = 10.0


@click.command()
@click.option(
    "--server",
    "--url",
    "url",
    metavar="URL",
    help="The server: lamina://USER@HOST, laminas:// with TLS, or LAMINA_URL.",
)
@click.option("--resp", default=RESP, metavar="HOST:PORT", show_default=True, help="The RESP door, or off.")
@click.option("--workq", default=WORKQ, metavar="HOST:PORT", show_default=True, help="The workq door, or off.")
@click.option("--user", metavar="NAME", help="Who you are, where a server has users.")
@click.option("--token", metavar="TEXT", envvar="LAMINA_TOKEN", help="Of the user. Better in LAMINA_TOKEN.")
@click.option("--password", metavar="TEXT", envvar="LAMINA_PASSWORD", help="Of the server. Better in LAMINA_PASSWORD.")
@click.option("--tls", is_flag=True, help="The doors speak TLS.")
@click.option(
    "--ca", metavar="FILE", type=click.Path(), help="With TLS: the certificate to trust, beside this machine's."
)
@click.option("--every", default="1s", metavar="TIME", show_default=True, help="How often to look.")
@click.option("--once", is_flag=True, help="Look for one interval, print one table, and end.")
@as_json
def top(
    url: str | None,
    resp: str,
    workq: str,
    user: str | None,
    token: str | None,
    password: str | None,
    tls: bool,
    ca: str | None,
    every: str,
    once: bool,
    as_json: bool,
) -> None:
    """Show a running server, live: rates, jobs, topics, queues, store, disk, connections.

    It ends with q or Ctrl-C. Where the output is no terminal, it prints one table. With --json it prints one object
    for each look, a line each. The workq door is asked only for jobs that the RESP door does not tell of.
    """
    from lamina.client.connecting import doors
    from lamina.client.endpoint import Endpoint
    from lamina.client.resp import RespClient
    from lamina.client.workq import WorkqClient

    seconds = max(parse_duration(every), _LEAST_S)
    context = _tls(ca) if tls or ca else None
    said = token or password
    where = url or os.environ.get("LAMINA_URL")
    ends: list[Endpoint | None]
    if where and (resp, workq) == (RESP, WORKQ):
        given = None if token == os.environ.get("LAMINA_TOKEN") else token
        ends = list(doors(where, user=user, token=given, otherwise=said, tls=context, timeout=_TIMEOUT_S, retry_s=0))
    elif url:
        raise BadOption("--server says which doors there are", hint="leave out --resp and --workq, or --server")
    else:

        def endpoint(at: Address | None) -> Endpoint | None:
            if at is None:
                return None
            host, path = at.host or "127.0.0.1", at.path or None
            return Endpoint(host, at.port, path=path, user=user, token=said, tls=context, timeout=_TIMEOUT_S)

        ends = [endpoint(_address(resp)), endpoint(_address(workq))]
    if ends == [None, None]:
        raise BadOption("there is no door to ask", hint="leave --resp or --workq on")
    where = str(ends[0] or ends[1])

    with contextlib.ExitStack() as opened:
        asks_info = asks_jobs = None
        if ends[0] is not None:
            asks_info = opened.enter_context(RespClient(endpoint=ends[0]))
        if ends[1] is not None:
            asks_jobs = opened.enter_context(WorkqClient(endpoint=ends[1]))
        watcher = Watcher(asks_info, asks_jobs)
        if once or (not as_json and not sys.stdout.isatty()):
            _print_once(watcher, where, seconds, as_json)
        elif as_json:
            _print_lines(watcher, seconds)
        else:
            _show(watcher, where, seconds)


def _address(text: str) -> Address | None:
    return None if text == "off" else Address.parse_listen(text)


def _tls(ca: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca is not None:
        try:
            context.load_verify_locations(ca)
        except (OSError, ssl.SSLError) as error:
            raise BadOption(f"--ca {ca}: no certificate can be read from it: {error}") from error
    return context


def _print_once(watcher: Watcher, where: str, seconds: float, as_json: bool) -> None:
    watcher.look()
    time.sleep(seconds)  # rates need two looks
    facts = watcher.look()
    if as_json:
        print_json(facts)
        return
    from lamina.cli.top_view import view

    out.print(view(facts, where), soft_wrap=False)


def _print_lines(watcher: Watcher, seconds: float) -> None:
    while True:
        print_json(watcher.look())
        sys.stdout.flush()
        time.sleep(seconds)


def _show(watcher: Watcher, where: str, seconds: float) -> None:
    """Until somebody has seen enough. A server that goes away is waited for."""
    from rich.live import Live

    from lamina.cli.top_view import view

    facts = watcher.look()  # the first error ends it: nobody is there
    problem = ""
    with _keys() as wait, Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            live.update(view(facts, where, height=out.size.height, problem=problem), refresh=True)
            if wait(seconds):
                return
            try:
                facts, problem = watcher.look(), ""
            except Disconnected as error:
                problem = f"{error.message}: what is shown was so before; trying again"


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Gives what waits for so many seconds, or for a q: then it returns True."""
    if not sys.stdin.isatty():

        def sleep(seconds: float) -> bool:
            time.sleep(seconds)
            return False

        yield sleep
        return
    import termios
    import tty

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def wait(seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([stdin], [], [], left)[0] and os.read(stdin, 1).lower() in (b"q", b""):
                return True
        return False

    tty.setcbreak(stdin)  # keys come one by one; Ctrl-C stays what it is
    try:
        yield wait
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
