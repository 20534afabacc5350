"""``lamina demo``: a server under load that is killed, comes back, and lost nothing; its past; Spark on its files.

The story is in ``tell``; each step is real: a ``lamina serve`` process, clients over sockets, SIGKILL, files.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lamina.cli.demo_server import Server
from lamina.cli.jobs_work import stoppable
from lamina.cli.render import as_json, err, out, print_json, print_table
from lamina.errors import BadOption

if TYPE_CHECKING:
    from lamina.cli.load import Load

PAGE: Final = "lamina-demo.html"
_BEFORE_KILL_S: Final = 2.5
_CALM_S: Final = 1.0

Say = Callable[[str], None]


@click.command()
@click.option("--report", "page", metavar="FILE", default=PAGE, show_default=True, help="Where the page goes.")
@click.option("--kills", type=click.IntRange(1, 100), default=3, show_default=True, help="How often the server dies.")
@click.option(
    "--keep", metavar="DIR", type=click.Path(file_okay=False), help="Keep the files in DIR, to look at them afterwards."
)
@click.option("--spark/--no-spark", "with_spark", default=True, help="Also show Spark at work, if it is installed.")
@click.option("--open/--no-open", "opens", default=True, help="Show the page in a browser, where there is a screen.")
@as_json
def demo(page: str, kills: int, keep: str | None, with_spark: bool, opens: bool, as_json: bool) -> int:
    """See lamina at work: jobs, topics, queues and the store of a server under load, which is killed again and again
    and loses nothing; its past, compaction, and Spark on the same files.

    Takes about a minute, on free ports and in a temporary folder. It leaves nothing behind but a page with plots.
    Exit codes: 0 nothing was lost, 1 something was.
    """
    folder = Path(keep) if keep else Path(tempfile.mkdtemp(prefix="lamina-demo-"))
    if keep and folder.exists() and any(folder.iterdir()):
        raise BadOption(f"{folder} is not empty", hint="name a folder that is new")
    folder.mkdir(parents=True, exist_ok=True)
    say: Say = (lambda text: None) if as_json else (lambda text: out.print(text, markup=False))
    try:
        with stoppable():
            summary = tell(folder / "data", Path(page), kills, say, with_spark=with_spark, quiet=as_json)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        print_json(summary)
    elif keep:
        say(f'The files are in {folder / "data"}: try "lamina doctor --data {folder / "data"}".')
    if opens and not as_json and out.is_terminal:
        click.launch(str(Path(page).resolve()))
    return 0 if summary["is_right"] else 1


def tell(data: Path, page: Path, kills: int, say: Say, *, with_spark: bool, quiet: bool) -> dict[str, object]:
    """The story. Returns what came out of it."""
    from lamina.cli.demo_past import change_something, compacting, restored
    from lamina.cli.demo_pipeline import pipeline_part, report_part
    from lamina.cli.load import Load

    started = time.monotonic()
    server = Server(data)
    with server:
        say(f"1. A server: {server.command}")
        say(f"   up in {server.took_s:.2f} s, jobs on port {server.workq}, all else on {server.resp}.")
        say(f"\n2. Load by eight clients on jobs, topics, queues and the store, and {kills} kills with SIGKILL.")
        load = Load(server.client)
        with load.running():
            deaths = _kill_again_and_again(server, load, kills, say, quiet=quiet)
        verdicts = load.settle()
        say("")
        if not quiet:
            print_table(
                ["", "acknowledged ", "finished ", "lost ", "came back "],
                [[each.kind, each.acknowledged, each.finished, each.lost, each.back] for each in verdicts],
            )
        is_right = all(verdict.is_right for verdict in verdicts) and not load.problems
        say(f"   {load.breaks} commands broke off in the kills; " + _verdict(is_right, load.problems) + "\n")
        say("3. The past: a price changes, a door closes; and the folder as it was before, beside the server.")
        with server.client() as lm:
            moment = change_something(lm)
        past = restored(data, data.parent / "then", moment, say)
        say("\n4. Compaction: of each key only the newest value is kept.")
        with server.client() as lm:
            compacted = compacting(lm, say)
        took = server.stop()
        say(f"   The server stops in order, in {took:.2f} s.\n")
    say("5. The same files are a Spark table.")
    piped = pipeline_part(data, say) if with_spark else {"skipped": "--no-spark"}
    found = report_part(data, page, say)
    seconds = round(time.monotonic() - started, 1)
    say(f"\nDone in {seconds} s. The page: {page.resolve()}")
    return {
        "is_right": is_right and past["is_right"],
        "verdicts": [verdict.as_dict() for verdict in verdicts],
        "problems": load.problems,
        "kills": deaths,
        "past": past,
        "compacted": compacted,
        "pipeline": piped,
        "report": {"path": str(page.resolve()), **found},
        "seconds": seconds,
    }


def _verdict(is_right: bool, problems: list[str]) -> str:
    if is_right:
        return "nothing acknowledged was lost, and nothing that was done came back."
    return " ".join(["SOMETHING WAS LOST, OR CAME BACK.", *problems[:3]])


def _kill_again_and_again(server: Server, load: Load, kills: int, say: Say, *, quiet: bool) -> list[dict[str, float]]:
    deaths = []
    for number in range(kills + 1):
        _watch(load, _BEFORE_KILL_S if number < kills else _CALM_S, quiet=quiet)
        if number == kills:
            break
        before = sum(load.counts().values())
        server.kill()
        server.start()
        deaths.append({"acknowledged": before, "back_in_s": round(server.took_s, 3)})
        say(f"   killed after {before:,} acknowledged changes; it is back in {server.took_s:.2f} s")
    return deaths


def _watch(load: Load, seconds: float, *, quiet: bool) -> None:
    """On a terminal, show what is acknowledged while it goes on."""
    from rich.live import Live
    from rich.text import Text

    end = time.monotonic() + seconds
    if quiet or not err.is_terminal:
        time.sleep(seconds)
        return
    with Live(console=err, transient=True, refresh_per_second=10) as live:
        while time.monotonic() < end:
            counts = "   ".join(f"{kind} {count:,}" for kind, count in load.counts().items())
            live.update(Text(f"   acknowledged: {counts}"))
            time.sleep(0.1)
