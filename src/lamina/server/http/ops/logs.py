"""Operations on logs: which there are, the files of one with what is alive in them, and looking after them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

import msgspec

from lamina.errors import BadOption
from lamina.server.http.operations import (
    ANY,
    After,
    AnyOperation,
    Asks,
    Changes,
    Done,
    Limit,
    Name,
    Operation,
    Place,
    Plan,
)
from lamina.server.http.ops import logs_actions as actions
from lamina.server.http.ops import logs_names as names
from lamina.server.http.ops.logs_desk import desk_of, facts
from lamina.server.http.ops.logs_model import LogFacts, LogPage, LogRow, Totals, Work
from lamina.server.http.ops.logs_names import Ref
from lamina.server.http.ops.logs_sizes import Size
from lamina.server.http.ops.logs_works import Running
from lamina.server.inside import Inside

_SOON_S: Final = 1.5  # what is done by then is told at once
READ: Final = (ANY, "read")
"""To come in at all; then each log is shown, or not, by the right that its own engine asks for (logs_names.py)."""
ADMIN: Final = (ANY, "admin")

_DISK: Final = ("disk_full", "disk_error", "log_failed")
_OPENING: Final = ("corruption", "wrong_format", "log_locked", "log_closed")

Many = Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class ListAsks(Asks, frozen=True, kw_only=True):
    """Which logs."""

    search: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Part of their names."""
    limit: Limit = 100
    after: After = ""


async def _list(place: Place, asked: ListAsks) -> LogPage:
    place.check_some(*READ)
    return await place.in_thread(_page, place, asked)


def _page(place: Place, asked: ListAsks) -> LogPage:
    desk = desk_of(place.inside)
    known = desk.sizes.ask()
    if not place.user.may_everything:
        known = [size for size in known if size.ref.may(place, "read")]
    largest = max((size.bytes for size in known), default=0)
    wanted = asked.search.strip().lower()
    fitting = [size for size in known if wanted in size.ref.name.lower()] if wanted else known
    fitting.sort(key=_order)
    start = _after(asked.after)
    rest = fitting if start is None else [size for size in fitting if _order(size) > start]
    page = rest[: asked.limit]
    last = f"{page[-1].bytes} {page[-1].ref.name}" if len(rest) > asked.limit else ""
    return LogPage(
        logs=[_row(place.inside, size) for size in page],
        count=len(fitting),
        bytes=sum(size.bytes for size in fitting),
        largest_bytes=largest,
        looked_ns=desk.sizes.looked_ns,
        is_complete=desk.sizes.is_complete,
        next=last,
    )


def _order(size: Size) -> tuple[int, str]:
    return -size.bytes, size.ref.name


def _after(text: str) -> tuple[int, str] | None:
    if not text:
        return None
    size, space, name = text.partition(" ")
    if not space or not size.isdecimal() or len(size) > 19:
        raise BadOption(f"after: {text[:80]!r} is of no page", hint="give what the page before has as next")
    return -int(size), name


def _row(inside: Inside, size: Size) -> LogRow:
    measured = desk_of(inside).measures.known(size.ref.name)
    totals: Totals | None = None
    if measured is not None and measured.shares and size.ref.kind != names.JOURNALS:
        live = sum(share.live for share in measured.shares.values()) + size.checkpoint_bytes
        dead = sum(share.dead for share in measured.shares.values())
        pinned = sum(share.pinned for share in measured.shares.values())
        rest = max(size.bytes - live - dead - pinned - size.active_bytes, 0)
        totals = Totals(live=live, dead=dead, pinned=pinned, active=size.active_bytes, unknown=rest)
    return LogRow(
        name=size.ref.name,
        kind=size.ref.kind,
        bytes=size.bytes,
        other_bytes=size.other_bytes,
        files=size.files,
        newest_ns=size.newest_ns,
        pieces=size.pieces,
        active_bytes=size.active_bytes,
        totals=totals,
    )


class OneAsks(Asks, frozen=True, kw_only=True):
    """Which log, and which of its files."""

    name: Name
    limit: Many = 200
    """Of files."""
    after: After = ""


async def _one(place: Place, asked: OneAsks) -> LogFacts:
    return await place.in_thread(_facts, place, asked)


def _facts(place: Place, asked: OneAsks) -> LogFacts:
    return facts(place.inside, names.find(place, asked.name), asked.limit, asked.after)


# -- doing something -------------------------------------------------------------------------------------------------


class LogChange(Changes, frozen=True, kw_only=True):
    """Which log."""

    name: Name


class Worked(Done, frozen=True, kw_only=True):
    """What was begun, and maybe done: ``work`` says which. What takes longer goes on behind it."""

    work: Work | None = None


async def _rotate(place: Place, asked: LogChange) -> Worked:
    def act() -> Worked:
        ref = _for(place, asked, "rotate")
        did, count = actions.rotate(place.inside, ref)
        desk_of(place.inside).was_changed(ref)
        return Worked(did=did, count=count)

    return await place.in_thread(act)


def _for(place: Place, asked: LogChange, action: str) -> Ref:
    """Raises: NotAllowed, NotThere; BadOption if that cannot be done to this log."""
    ref = names.find(place, asked.name, "admin")
    actions.check(place.inside, ref, action)
    return ref


def _planned(
    action: str, plan: Callable[[Inside, Ref], Plan], *, is_exclusive: bool = True
) -> Callable[[Place, LogChange], Awaitable[Plan]]:
    async def planned(place: Place, asked: LogChange) -> Plan:
        def act() -> Plan:
            ref = _for(place, asked, action)
            if is_exclusive:
                desk_of(place.inside).works.check_free(ref.name)
            return plan(place.inside, ref)

        return await place.in_thread(act)

    return planned


def _working(
    action: str, act: actions.Act, *, can_stop: bool = False
) -> Callable[[Place, LogChange], Awaitable[Worked]]:
    async def work(place: Place, asked: LogChange) -> Worked:
        def begin() -> Worked:
            ref, desk = _for(place, asked, action), desk_of(place.inside)

            def run(work: Running) -> str:
                try:
                    return act(place.inside, ref, work)
                finally:
                    desk.was_changed(ref)

            running = desk.works.begin(Running(ref.name, action, place.user.name, can_stop=can_stop), run)
            running.over.wait(_SOON_S)
            return _told(running)

        return await place.in_thread(begin)

    return work


def _told(running: Running) -> Worked:
    work = running.shown()
    if work.outcome == "running":
        return Worked(did=f"began to {work.action} {work.log}; the page shows how far it is", id=work.id, work=work)
    is_well = work.outcome == "done"
    did = f"{work.log}: {work.told}" if is_well else f"{work.action} of {work.log} ended: {work.told or work.outcome}"
    return Worked(did=did, id=work.id, work=work)


async def _plan_stop(place: Place, asked: LogChange) -> Plan:
    ref = await place.in_thread(names.find, place, asked.name, "admin")
    running = [work for work in desk_of(place.inside).works.of(ref.name) if work.ended_ns is None]
    if not running:
        return Plan(will=f"do nothing: nothing is going on in {ref.name}", count=0)
    return Plan(will=f"stop what {running[0].by} began: {running[0].action} {ref.name}", count=1)


async def _stop(place: Place, asked: LogChange) -> Worked:
    def act() -> Worked:
        ref = names.find(place, asked.name, "admin")
        running = desk_of(place.inside).works.stop(ref.name)
        running.over.wait(_SOON_S)
        return Worked(did=f"stopped: {running.action} {ref.name}", id=running.id, work=running.shown())

    return await place.in_thread(act)


def _change(
    action: str,
    summary: str,
    do: Callable[[Place, LogChange], Awaitable[Worked]],
    plan: Callable[[Place, LogChange], Awaitable[Plan]],
    *errors: str,
) -> Operation[LogChange, Worked]:
    return Operation(
        name=f"logs.{action}",
        method="POST",
        path=f"/logs/{action}",
        summary=summary,
        right=ADMIN,
        asks=LogChange,
        gives=Worked,
        do=do,
        plan=plan,
        target=lambda asked: asked.name,
        errors=("bad_name", "busy", *_DISK, *errors),
    )


LIST: Final = Operation(
    name="logs.list",
    method="GET",
    path="/logs",
    summary="The logs of the server, the largest first",
    right=READ,
    asks=ListAsks,
    gives=LogPage,
    do=_list,
)
ONE: Final = Operation(
    name="logs.one",
    method="GET",
    path="/logs/one",
    summary="One log: its files, what of them is alive, and who keeps the rest",
    right=READ,
    asks=OneAsks,
    gives=LogFacts,
    do=_one,
    errors=("bad_name",),
)
ROTATE: Final = _change(
    "rotate",
    "Seal the file of a log that grows",
    _rotate,
    _planned("rotate", actions.plan_rotate, is_exclusive=False),
    *_OPENING,
    "stopped",
)
CLEAN: Final = _change(
    "clean",
    "Remove what nobody needs any more from a log",
    _working("clean", actions.clean),
    _planned("clean", actions.plan_clean),
    *_OPENING,
)
COMPACT: Final = _change(
    "compact",
    "Write what is alive in a log into new files",
    _working("compact", actions.compact),
    _planned("compact", actions.plan_compact),
)
VERIFY: Final = _change(
    "verify",
    "Read every byte of a log and check it",
    _working("verify", actions.verify, can_stop=True),
    _planned("verify", actions.plan_verify),
)
MEASURE: Final = _change(
    "measure",
    "Find out what of a log is alive, however large it is",
    _working("measure", actions.measure, can_stop=True),
    _planned("measure", actions.plan_measure),
)
STOP: Final = _change("stop", "Stop what is going on in a log", _stop, _plan_stop)
OPERATIONS: Final[tuple[AnyOperation, ...]] = (LIST, ONE, ROTATE, CLEAN, COMPACT, VERIFY, MEASURE, STOP)
