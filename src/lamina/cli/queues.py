"""``lamina queues``: look at the queues of a data folder, and look after them."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from lamina.cli.asking import confirm, dry_run, yes
from lamina.cli.queues_place import (
    beside_a_server,
    folder_of,
    for_itself,
    looked_at,
    of_folder,
    opened,
    tell,
)
from lamina.cli.queues_show import (
    message_facts,
    print_message,
    print_migrated,
    print_moved,
    print_purged,
    print_queue,
    print_queues,
    print_would_migrate,
    print_would_move,
)
from lamina.cli.reaching import RESP, endpoint_of, one_of, server_or_folder
from lamina.cli.render import as_json, out, print_json, progress_bar
from lamina.errors import BadOption, LaminaError
from lamina.units import parse_duration, show_bytes, show_duration

if TYPE_CHECKING:
    from lamina.engines.queues.looking import QueueView
    from lamina.engines.queues.message import Queue
    from lamina.engines.queues.state import State

_SORTS: Final = {
    "waiting": lambda view: (-view.waiting, view.handle),
    "oldest": lambda view: (view.oldest_s is None, view.oldest_s, view.handle),
    "handle": lambda view: view.handle,
}
_DUMP_S: Final = 3600


@click.group()
def queues() -> None:
    """Look at the queues of a data folder, and look after them.

    HANDLE is what operators call a queue, or the beginning of it: ids and keys are never shown, what was sent only by
    browse. ls, info and browse read the files without a lock, also beside a running server. What changes queues needs
    the folder for itself.
    """


@queues.command()
@beside_a_server
@click.option("--sort", type=click.Choice(list(_SORTS)), default="waiting", show_default=True, help="What comes first.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), default=50, show_default=True, help="At most N.")
@as_json
def ls(data: str, force: bool, sort: str, limit: int, as_json: bool) -> None:
    """Show the queues: those in which most messages wait first. With --json one object a line."""
    views: list[QueueView] = sorted(looked_at(data, force=force).views(), key=_SORTS[sort])
    if as_json:
        for view in views[:limit]:
            print_json(asdict(view))
    else:
        print_queues(views[:limit], len(views))


@queues.command()
@click.argument("handle")
@beside_a_server
@as_json
def info(handle: str, data: str, force: bool, as_json: bool) -> None:
    """Show all that is known of a queue, but what was sent."""
    looked = looked_at(data, force=force)
    queue = looked.find(handle)
    view, messages = looked.view(queue), looked.messages(queue)
    size = sum(len(message.body or b"") for message in messages)
    newest = messages[-1].ts if messages else None
    if as_json:
        print_json({**asdict(view), "bytes": size, "newest_s": newest, "store": looked.store})
    else:
        print_queue(view, looked.store, size, newest)


@queues.command(short_help="Show the messages that wait, and leave them there.")
@click.argument("handle")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), default=20, show_default=True, help="The first N.")
@beside_a_server
@as_json
def browse(handle: str, limit: int, data: str, force: bool, as_json: bool) -> None:
    """Show the messages that wait in a queue, oldest first, and leave them there. With --json one object a line."""
    looked = looked_at(data, force=force)
    messages = looked.messages(looked.find(handle))
    tell(looked.warnings)
    for number, message in enumerate(messages[:limit], 1):
        print_json(message_facts(number, message)) if as_json else print_message(number, message)
    if not as_json:
        if not messages:
            out.print("no messages")
        elif len(messages) > limit:
            out.print(f"{len(messages) - limit:,} more: --limit {len(messages)}", markup=False)


@queues.command()
@server_or_folder(RESP)
@as_json
def dump(server: str | None, data: str | None, as_json: bool) -> None:
    """Write a dump now, so that the next start has less to read. A running server does it without stopping."""
    one_of(server, data)
    report = _dump_server(server) if data is None else _dump_folder(data)
    if as_json:
        print_json(report)
        return
    counts = f"{report['queues']:,} queues, {report['messages']:,} messages, {report['expired']:,} expired left out"
    size = f"{show_bytes(int(str(report['bytes'])))} in {show_duration(float(str(report['seconds'])))}"
    out.print(f"dump {report['number']}: {counts}, {size}", markup=False)


def _dump_server(server: str | None) -> dict[str, object]:
    from lamina.client.resp import RespClient

    with RespClient(endpoint=endpoint_of(server, RESP)) as client:
        answer = client.ask("L.DUMP", "queues", wait=_DUMP_S)
    if answer is None:
        raise LaminaError("a dump is being written already", hint="nothing has to be done")
    report: dict[str, object] = json.loads(answer)
    return report


def _dump_folder(data: str) -> dict[str, object]:
    from lamina.engines.queues.upkeep import Upkeep

    with for_itself("a server has it open: give --server HOST:PORT instead of --data"), opened(data) as engine:
        report = Upkeep(engine).dump()
    assert report is not None, "nobody else has the folder"
    return asdict(report)


@queues.command(short_help="Drop messages that wait for too long.")
@click.argument("handle", required=False)
@click.option("--older-than", metavar="DURATION", required=True, help="7d, 12h: what was sent longer ago goes.")
@dry_run
@yes
@of_folder
@as_json
def purge(handle: str | None, older_than: str, dry_run: bool, yes: bool, data: str, as_json: bool) -> None:
    """Drop messages that wait for longer than DURATION, of one queue or of all.

    The mark that says where a sender met the quota stays: the queue is open again when its recipient has seen it.
    """
    from lamina.engines.queues.tending import purge, would_purge

    before_s = int(time.time() - parse_duration(older_than))
    looked = looked_at(data)
    wanted = [looked.find(handle)] if handle is not None else list(looked.state.queues.values())
    if dry_run:
        purged = would_purge(looked, wanted, before_s)
        tell(looked.warnings)
    else:
        whose = "all queues" if handle is None else f"the queue {handle}"
        confirm(f"Drop what waits in {whose} for longer than {older_than}, for good?", yes=yes)
        rids = [queue.rid for queue in wanted]
        with opened(data) as engine:
            purged = purge(engine, _still_there(engine.state, rids), before_s)
    if as_json:
        print_json({"queues": [asdict(one) for one in purged], "is_done": not dry_run})
    else:
        print_purged(purged, dry_run=dry_run)


def _still_there(state: State, rids: list[bytes]) -> list[Queue]:
    return [state.queues[rid] for rid in rids if rid in state.queues]


@queues.command(short_help="Move all messages of one queue to another.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--quota", metavar="N", type=click.IntRange(min=1), help="That of the server.  [default: 128]")
@dry_run
@of_folder
@as_json
def move(source: str, target: str, quota: int | None, dry_run: bool, data: str, as_json: bool) -> None:
    """Move all messages of the queue FROM to the end of the queue TO, in order.

    They are safe in TO before they leave FROM. Broken off in between, some are in both: run it again.
    """
    from lamina.engines.queues.tending import move

    looked = looked_at(data)
    found = [looked.find(handle) for handle in (source, target)]
    rids = [queue.rid for queue in found]
    if dry_run:
        views = [looked.view(queue) for queue in found]
        facts = {"from_handle": views[0].handle, "to_handle": views[1].handle, "messages": views[0].waiting}
        tell(looked.warnings)
        print_json({**facts, "is_done": False}) if as_json else print_would_move(views[0], views[1])
        return
    with opened(data, quota=quota) as engine:
        ends = _still_there(engine.state, rids)
        if len(ends) < len(rids):
            raise BadOption("a queue was deleted just now", hint='"lamina queues ls" shows those that are left')
        moved = move(engine, *ends)
    if as_json:
        print_json({**asdict(moved), "is_done": True})
    else:
        print_moved(moved)


@queues.command(short_help="Bring all messages to the other store.")
@click.option("--to", type=click.Choice(["journal", "memory"]), required=True, help="The store to bring messages to.")
@click.option("--force", is_flag=True, help="Leave out what is damaged, and say what that was.")
@dry_run
@of_folder
@as_json
def migrate(to: str, force: bool, dry_run: bool, data: str, as_json: bool) -> None:
    """Bring the messages of all queues from one store to the other, and prove that none is missing.

    Broken off, it goes on when it is run again; until then no server opens the queues.
    """
    from lamina.engines.queues.migrating import migrate

    if dry_run:
        _would_migrate(data, to, force, as_json)
        return
    folder = folder_of(data)
    with for_itself(), progress_bar(f"to {to}") as progress:
        report = migrate(folder, to, force=force, progress=progress)
    tell(report.warnings)
    if as_json:
        facts = asdict(report)
        print_json({**facts, "before": report.before._asdict(), "after": report.after._asdict(), "is_done": True})
    else:
        print_migrated(report)


def _would_migrate(data: str, to: str, force: bool, as_json: bool) -> None:
    looked = looked_at(data, force=force)
    views = list(looked.views())
    facts = {"to": to, "store": looked.store, "queues": len(views), "messages": sum(view.waiting for view in views)}
    if as_json:
        print_json({**facts, "is_done": False})
    else:
        print_would_migrate(looked.store, to, len(views), sum(view.waiting for view in views))
