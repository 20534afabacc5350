"""``lamina worker``: makes the calls that tasks were put for."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from lamina.cli.render import print_json
from lamina.errors import BadOption

if TYPE_CHECKING:
    from lamina.client.worker import Tasks, Worker

EXIT_NOTHING = 3
EXIT_FAILED = 4


@click.command()
@click.argument("app", metavar="MODULE:APP")
@click.option("--concurrency", "-c", default=4, show_default=True, metavar="N", help="Jobs at a time, 1 to 1000.")
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Only this queue; may be given several times.")
@click.option(
    "--server", "--url", "url", metavar="URL", help="The server whose jobs are done, instead of the place that APP has."
)
@click.option("--once", is_flag=True, help="Do one job that is ready, and end.")
@click.option("--burst", is_flag=True, help="Do the jobs that are ready, and end.")
@click.option("--grace", default=30.0, show_default=True, metavar="SECONDS", help="For what runs at a stop.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing about single jobs.")
@click.option("--json", "as_json", is_flag=True, help="At the end, what was done, as JSON.")
def worker(
    app: str,
    concurrency: int,
    queues: tuple[str, ...],
    url: str | None,
    once: bool,
    burst: bool,
    grace: float,
    quiet: bool,
    as_json: bool,
) -> int:
    """Lease the jobs of the tasks of an application, make their calls, and tell how they ended.

    APP is what lamina.open or lamina.connect gave, in a module that can be imported from here: tasks:lm. Functions run
    in threads, coroutine functions on one loop. SIGTERM or Ctrl-C: no new job is begun, what runs may end, and after
    --grace what is left is given back (its attempt does not count); a second one gives it back at once.

    Exit codes: 0 stopped, or all that was ready is done; 1 error; 2 wrong usage; 3 with --once no job was ready; 4 with
    --once the job failed or was buried.
    """
    from lamina.client.worker import Worker

    if once and burst:
        raise BadOption("--once and --burst exclude each other", hint="--burst does all that is ready")
    if not 0 <= grace <= 86_400:
        raise BadOption(f"a grace of {grace:g} s cannot be", hint="0 to 86400")
    found = load(app)
    tasks, place = tasks_of(app, found), place_of(found, url)

    def say(line: str) -> None:
        if not (quiet and line.startswith("job ")):
            click.echo(f"{time.strftime('%H:%M:%S')} {line}", err=True)

    try:
        working = Worker(place.jobs, tasks, queues=queues, concurrency=concurrency, grace_s=grace, say=say)
        where = getattr(place, "folder", None) or f"{place.jobs!r}".strip("<>").rpartition(" ")[2]
        say(f"worker {os.getpid()}: tasks {', '.join(tasks)}; queues {', '.join(working.queues)}; {where}")
        started = time.monotonic()
        with stopped_by_signals(working):
            tally = working.run(until_empty=burst, most=1 if once else None)
    finally:
        if hasattr(place, "close"):
            place.close()
    seconds = time.monotonic() - started
    counts = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in asdict(tally).items())
    say(f"ended after {seconds:.1f} s: {counts}")
    if as_json:
        print_json({**asdict(tally), "seconds": round(seconds, 3)})
    if once and not any(asdict(tally).values()):
        return EXIT_NOTHING
    return EXIT_FAILED if once and (tally.failed or tally.buried) else 0


def load(spec: str) -> Any:
    """The object of ``module:name``. Raises: BadOption; what the module raises when it is imported."""
    module, _, name = spec.partition(":")
    if not module or not name:
        raise BadOption(f"{spec!r} is no MODULE:APP", hint="such as tasks:lm, for lm in tasks.py")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        value: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there; what it imports is not
        raise BadOption(f"there is no module {module!r}", hint="start the worker in the folder it is in") from None
    for part in name.split("."):
        if not hasattr(value, part):
            raise BadOption(f"{module!r} has no {name!r}", hint="name what lamina.open or lamina.connect gave")
        value = getattr(value, part)
    return value


def tasks_of(spec: str, app: Any) -> Tasks:
    """Raises: BadOption."""
    from lamina.tasks import TaskBook

    tasks = app if isinstance(app, TaskBook) else getattr(app, "tasks", None)
    if not isinstance(tasks, TaskBook):
        hint = "it has to be what lamina.open or lamina.connect gave"
        raise BadOption(f"{spec} is {type(app).__name__}, which has no tasks", hint=hint)
    return tasks


def place_of(app: Any, url: str | None) -> Any:
    """What has the jobs. Raises: BadOption."""
    if url is None:
        return app
    from lamina.client.connecting import connect

    return connect(url)


@contextmanager
def stopped_by_signals(working: Worker) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        working.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
