"""``lamina jobs``: look at, add, do and redrive jobs, of a running server or of a data folder.

Single changes to a job or a queue are in jobs_change.py.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lamina.cli import jobs_change
from lamina.cli.asking import confirm, dry_run, yes
from lamina.cli.jobs_place import (
    STATES,
    Facts,
    about,
    job_facts,
    jobs_at,
    list_facts,
    plain,
    queue_facts,
    state_after_fail,
    where,
)
from lamina.cli.jobs_show import print_job, print_jobs, print_queues
from lamina.cli.main import EXIT_FAILED, EXIT_NOTHING
from lamina.cli.render import as_json, err, out, print_json
from lamina.errors import BadJob, BadOption
from lamina.units import parse_duration, parse_time, show_bytes, show_duration

if TYPE_CHECKING:
    from lamina.cli.jobs_place import Place

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, from what ``parse_duration`` takes."""

    name = "duration"

    def __init__(self, *, least: float = 0, most: float = inf) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        option = param.opts[0] if param is not None else "duration"
        try:
            seconds = value if isinstance(value, float) else parse_duration(str(value))
        except BadOption as error:
            raise BadOption(f"{option}: {error.message}", hint=error.hint) from error
        if seconds < self._least:
            raise BadOption(f"{option} of {value} cannot be", hint=f"at least {show_duration(self._least)}")
        if seconds > self._most:
            raise BadOption(f"{option} of {value} cannot be", hint=f"at most {show_duration(self._most)}")
        return seconds


ANY_TIME: Final = Duration()
SOME_TIME: Final = Duration(least=0.001)
UP_TO_A_DAY: Final = Duration(most=86_400)


@click.group()
def jobs() -> None:
    """Look at, add, do, change and redrive jobs.

    Works on a running server (--server), or on a data folder that no server has open (--data).
    DURATION is 30 or 1.5 (seconds), 500ms, 10s, 5m, 2h or 1d.
    """


for _command in jobs_change.COMMANDS:
    jobs.add_command(_command)


# -- looking -----------------------------------------------------------------------------------------------------------


@jobs.command()
@click.argument("name", required=False)
@click.option("--state", type=click.Choice(STATES), default="ready", show_default=True, help="Which jobs of NAME.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(min=1), default=100, show_default=True, help="At most N jobs."
)
@where
@as_json
def ls(name: str | None, state: str, limit: int, server: str | None, data: str | None, as_json: bool) -> None:
    """Show the queues, or with NAME the jobs of one queue, next first.

    With --json one object a line. A server does not tell all of a queue: what is not known is shown as "-".
    """
    with jobs_at(server, data) as place:
        found = queue_facts(place) if name is None else list_facts(place, name, state, limit)
        if as_json:
            for facts in found:
                print_json(plain(facts))
        elif name is None:
            print_queues(list(found))
        else:
            print_jobs(list(found), name, state, limit)


@jobs.command()
@click.argument("id")
@where
@as_json
def show(id: str, server: str | None, data: str | None, as_json: bool) -> None:
    """Show all that is known of one job.

    With --json one object; bytes that are no text are in hexadecimal, under a name that ends in _hex.
    """
    with jobs_at(server, data) as place:
        facts = job_facts(place, id)
    if as_json:
        print_json(plain(facts))
    else:
        print_job(facts)


# -- adding ------------------------------------------------------------------------------------------------------------


@jobs.command()
@click.argument("name")
@click.argument("payload", required=False)
@click.option("--id", metavar="UUID", help="A version 4 UUID.  [default: a new one]")
@click.option("--ttr", type=SOME_TIME, default="60s", show_default=True, help="Time to run: what a worker has for it.")
@click.option("--ttl", type=SOME_TIME, default="1d", show_default=True, help="Time to live: then it is gone.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher first.")
@click.option("--max-attempts", metavar="N", type=int, default=0, help="How often it is tried, 0: no limit.")
@click.option("--max-fails", metavar="N", type=int, default=0, help="How often it may fail, 0: the first is final.")
@click.option("--at", metavar="TIME", help="Not before: 2026-11-15T06:17:00Z, or nanoseconds since 1970.")
@click.option("--delay", type=ANY_TIME, default="0", help="Not before so long from now.")
@click.option("--unique", metavar="KEY", default="", help="Refused while another job of the queue has this key.")
@click.option("--backoff", type=ANY_TIME, default="0", help="Wait before the first retry, doubled each time.")
@where
@as_json
def add(
    name: str,
    payload: str | None,
    at: str | None,
    server: str | None,
    data: str | None,
    as_json: bool,
    **options: object,
) -> None:
    """Add a job to the queue NAME and print its id. A PAYLOAD of "-" is read from standard input."""
    from lamina.engines.jobs.api import job_fields

    options["at"] = None if at is None else _datetime(at)
    body = _payload(payload)
    job_fields(name, body, time.time_ns(), **options)  # type: ignore[arg-type]  # before a folder is made for it
    with jobs_at(server, data, makes=True) as place:
        id = place.add(name, body, **options)
    if as_json:
        print_json({"id": id, "name": name})
    else:
        click.echo(id)


def _payload(text: str | None) -> bytes:
    from lamina.engines.jobs.api import MAX_PAYLOAD

    if text == "-":
        return sys.stdin.buffer.read(MAX_PAYLOAD + 1)  # one more than there may be: it is refused, whatever its size
    return os.fsencode(text or "")


def _datetime(text: str) -> datetime:
    time_ns = parse_time(text)
    try:
        return _EPOCH + timedelta(microseconds=time_ns // 1000)
    except OverflowError:
        raise BadOption(f"--at: {text!r} is out of range", hint="give a time of the years 1 to 9999") from None


# -- working -----------------------------------------------------------------------------------------------------------


class _WithCommand(click.Command):
    """What follows ``--`` is a command line of its own."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            context.meta["command"] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(context, args)

    def collect_usage_pieces(self, context: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(context), "[-- COMMAND ARGS...]"]


@jobs.command(cls=_WithCommand)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--wait", type=UP_TO_A_DAY, default="0", help="Wait so long for a job.")
@click.option("--complete", metavar="RESULT", help="Complete it at once with this result.")
@click.option("--fail", metavar="ERROR", help="Fail it at once with this error.")
@where
@as_json
@click.pass_context
def lease(
    context: click.Context,
    names: tuple[str, ...],
    wait: float,
    complete: str | None,
    fail: str | None,
    server: str | None,
    data: str | None,
    as_json: bool,
) -> int:
    """Take the next job of any of the queues and print it.

    With a COMMAND the job is done: the command gets the payload on its standard input, and what it writes to its
    standard output is the result. If it exits other than 0 the job fails with what it wrote to its standard error.
    The lease is extended while it runs.

    Without COMMAND, --complete or --fail the job stays leased for its time to run and then goes back to its queue.

    Exit codes: 3 no job came in time, 4 the command failed.
    """
    from lamina.cli.jobs_work import check_command, work

    command = context.meta.get("command")
    if sum(each is not None for each in (command, complete, fail)) > 1:
        raise BadOption("--complete, --fail and a command exclude each other", hint="give one of them")
    if command is not None:
        check_command(command)
    with jobs_at(server, data) as place:
        found = place.lease_many(*names, most=1, wait=wait)
        if not found:
            return _no_job(names, as_json)
        job = found[0]
        facts: Facts = {"id": job.id, "name": job.name, "state": "leased", "ttr_ms": round(job.ttr_s * 1000)}
        facts["payload"] = job.payload
        code = 0
        if complete is not None:
            place.complete(job.id, os.fsencode(complete))
            facts["state"] = "completed"
        elif fail is not None:
            place.fail(job.id, os.fsencode(fail))
            facts["state"] = state_after_fail(place, job.id)
        elif command is not None:
            ending = work(place, job, command)
            facts["exit_code"] = ending.exit_code
            facts["result" if ending.is_success else "last_error"] = ending.told
            facts["state"] = "completed" if ending.is_success else state_after_fail(place, job.id)
            code = 0 if ending.is_success else EXIT_FAILED
    print_json(plain(facts)) if as_json else print_job(facts)
    return code


def _no_job(names: Iterable[str], as_json: bool) -> int:
    if as_json:
        print_json({"id": None})
    else:
        err.print(f"no job in {', '.join(names)}", markup=False)
    return EXIT_NOTHING


# -- looking after it --------------------------------------------------------------------------------------------------


@jobs.command()
@click.argument("id", required=False)
@click.option("--queue", metavar="NAME", help="The failed jobs of this queue, best first, instead of one.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="At most N of the queue.  [default: 1000]")
@dry_run
@where
@as_json
def redrive(
    id: str | None,
    queue: str | None,
    limit: int | None,
    dry_run: bool,
    server: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Put failed jobs back into their queue, as if they were new.

    Give the ID of one job, or --queue for the failed jobs of a queue.
    """
    if (id is None) == (queue is None):
        raise BadOption("give either an ID or --queue NAME", hint='"lamina jobs ls NAME --state failed" shows them')
    if id is not None and limit is not None:
        raise BadOption("--limit goes with --queue", hint="leave it out")
    done = 1
    with jobs_at(server, data) as place:
        if dry_run:
            done = _would_redrive(place, id, queue, limit or 1000)
        elif queue is not None:
            with about("queue", queue):
                done = _redrive_queue(place.redrive_queue, queue, limit or 1000)
        elif id is not None:
            with about("job", id):
                place.redrive(id)
    if as_json:
        print_json({"redriven": done, "is_done": not dry_run})
    elif dry_run:
        out.print(f"{done:,} would be redriven; nothing was changed: leave out --dry-run to do it", markup=False)
    else:
        more = "; there may be more: --limit N" if queue is not None and done == (limit or 1000) else ""
        out.print(f"{done:,} redriven{more}", markup=False)


def _would_redrive(place: Place, id: str | None, queue: str | None, limit: int) -> int:
    """One whose unique key is taken by then stays failed."""
    if queue is not None:
        return sum(1 for _ in list_facts(place, queue, "failed", limit))
    state = job_facts(place, id or "")["state"]
    if state != "failed":
        raise BadJob(f"job {id} is {state}", hint="only failed jobs can be redriven")
    return 1


def _redrive_queue(redrive: Callable[[str, int], int], name: str, limit: int) -> int:
    done = 0
    while done < limit:
        step = redrive(name, min(limit - done, 1000))
        if not step:  # those that are left have a unique key which is taken
            break
        done += step
    return done


@jobs.command()
@yes
@where
@as_json
def clean(yes: bool, server: str | None, data: str | None, as_json: bool) -> None:
    """Drop the records of jobs that are gone, now.

    Rewrites every sealed segment of a data folder. A running server does it by itself. Their past goes with them;
    "lamina pipeline clean --dry-run" counts what would go.
    """
    if server is not None or data is None:
        raise BadOption(
            "a running server cleans by itself", hint="give --data DIR to clean a folder that no server has open"
        )
    with jobs_at(None, data, history_s=0) as place:
        from lamina.engines.jobs.api import Jobs

        assert isinstance(place, Jobs)
        question = f"Drop the records of all jobs of {data} that are over? No restore as of before brings them back."
        confirm(question, yes=yes)
        before = _log_bytes(data)
        report = place.clean()
    after = _log_bytes(data)
    if as_json:
        print_json({**report, "bytes_before": before, "bytes_after": after})
        return
    out.print(f"{report['dropped']:,} records dropped, {report['kept']:,} kept", markup=False)
    removed = f"{report['rewritten']} rewritten, {report['removed']} removed"
    out.print(f"{report['visited']} sealed segments visited: {removed}", markup=False)
    out.print(f"{show_bytes(before)} of log files before, {show_bytes(after)} now", markup=False)


def _log_bytes(data: str) -> int:
    return sum(path.stat().st_size for path in (Path(data) / "jobs").glob("*.log"))
