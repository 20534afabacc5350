"""What can be done to a log: what each action would do, in words, and doing it."""

from __future__ import annotations

from collections.abc import Callable

from lamina.engines.elsewhere import Stopper
from lamina.errors import BadOption, Busy
from lamina.server.http.operations import Plan
from lamina.server.http.ops import logs_desk, logs_store, logs_verify
from lamina.server.http.ops import logs_names as names
from lamina.server.http.ops import logs_pins as pins
from lamina.server.http.ops import logs_segments as files
from lamina.server.http.ops.logs_model import ACTIVE, DUMP, SEALED, Segment
from lamina.server.http.ops.logs_names import Ref
from lamina.server.http.ops.logs_works import Running
from lamina.server.inside import Inside
from lamina.units import show_bytes

_ROTATE_S = 30.0  # that a store may take to come to the end of its epoch and of open sessions

Act = Callable[[Inside, Ref, Running], str]


def check(inside: Inside, ref: Ref, action: str) -> None:
    """Raises: BadOption if there is no such action for this log."""
    can = logs_desk.can(inside, ref)
    if action not in can:
        why = {
            ("rotate", names.QUEUES): "only a dump begins the next file: clean it",
            ("rotate", names.PLAIN): "this server does not write it",
            ("compact", names.JOBS): "clean it: cleaning writes its files anew",
            ("compact", names.TOPIC): "files of a topic are let go as a whole: clean it",
        }.get((action, ref.kind), f"there are: {', '.join(can)}")
        raise BadOption(f"{ref.name} cannot be {_PAST[action]}", hint=why, option="name")


_PAST = {"rotate": "rotated", "clean": "cleaned", "compact": "compacted", "verify": "verified", "measure": "measured"}


# -- rotating --------------------------------------------------------------------------------------------------------


def plan_rotate(inside: Inside, ref: Ref) -> Plan:
    """Raises: NotThere."""
    if ref.kind == names.STORE:
        return Plan(
            will=f"seal the files of {ref.name}, and go on in new ones",
            details=["It waits for the end of the epoch, and of sessions that are open then."],
        )
    active = [one for one in files.list_files(inside, ref).segments if one.state == ACTIVE]
    if not active:
        return Plan(will=f"do nothing: no file of {ref.name} grows just now", count=0)
    one = active[-1]
    return Plan(will=f"seal {one.file} of {ref.name}, {show_bytes(one.bytes)}, and go on in a new file", count=1)


def rotate(inside: Inside, ref: Ref) -> tuple[str, int]:
    """What was done, and how many files were sealed. Raises: DiskFull, DiskError, LogFailed; Stopped; BadOption."""
    if ref.kind == names.STORE:
        store = names.is_open(inside.find_store())
        try:
            rotated = store.rotate(_ROTATE_S)
        except TimeoutError as error:
            raise Busy(f"{ref.name}: {error}", hint="sessions that are open keep it; end them, or try again") from None
        return f"rotated {ref.name} at epoch {rotated.epoch}: {len(rotated.new)} files sealed", len(rotated.new)
    log = names.log_of(inside, ref, opens=True)
    if log is None:
        raise BadOption(f"{ref.name} is not being written", hint="there is nothing to rotate", option="name")
    sealed = log.rotate()
    if sealed is None:
        return f"nothing was in the file of {ref.name} that grows", 0
    return f"sealed {sealed} of {ref.name}", 1


# -- cleaning --------------------------------------------------------------------------------------------------------


def plan_clean(inside: Inside, ref: Ref) -> Plan:
    """Raises: NotThere; Corruption, DiskError."""
    if ref.kind == names.JOBS:
        return _plan_jobs(inside, ref)
    if ref.kind == names.TOPIC:
        upkeep, topic = names.is_open(inside.topics_upkeep), names.topic_of(inside, ref)
        report = upkeep.why(ref.of, topic)
        return Plan(
            will=f"let {report.goes_files} files of {ref.name} go, {show_bytes(report.goes_bytes)}",
            details=[f"Limits: {report.retention}.", report.answer[:1].upper() + report.answer[1:] + "."],
            warning="Entries that go cannot be brought back." if report.goes_files else "",
            count=report.goes_files,
        )
    if ref.kind == names.STORE:
        store = names.is_open(inside.find_store())
        going = logs_store.goes(store)
        return Plan(
            will=f"remove {len(going)} files of {ref.name} that compactions made obsolete, "
            f"{show_bytes(sum(going.values()))}",
            details=[f"{name}, {show_bytes(size)}" for name, size in list(going.items())[:10]],
            warning="Reads as of an earlier time reach less far back then." if going else "",
            count=len(going),
        )
    if ref.kind == names.JOURNALS:
        return Plan(will="let expired messages of all queues go, and take what was received out of the journals")
    return _plan_dump(inside, ref)


def _plan_jobs(inside: Inside, ref: Ref) -> Plan:
    segments = files.list_files(inside, ref).segments
    sealed = [one for one in segments if one.state == SEALED]
    found = logs_desk.desk_of(inside).measures.known(ref.name)
    details = ["Records of jobs that are gone are taken out; jobs that are there stay as they are."]
    if found is not None and found.shares:
        dead = sum(share.dead for share in found.shares.values())
        pinned = sum(share.pinned for share in found.shares.values())
        details.append(f"{show_bytes(dead)} of them are of jobs that are gone, by what was measured last.")
        if pinned:
            details.append(f"{show_bytes(pinned)} more stay for who has yet to read them.")
    return Plan(
        will=f"write {len(sealed)} sealed files of {ref.name} anew, {show_bytes(sum(one.bytes for one in sealed))}",
        details=details,
        warning="What is taken out cannot be seen as of an earlier time any more." if sealed else "",
        count=len(sealed),
    )


def _plan_dump(inside: Inside, ref: Ref) -> Plan:
    engine = names.is_open(inside.queues).engine
    listed = files.list_files(inside, ref)
    _, held = pins.of(pins.holding(ref.folder, engine.clock.now_ns()), listed.segments, listed.names)
    going = [one for one in listed.segments if one.state in (DUMP, SEALED, ACTIVE) and one.file not in held]
    keeps = names.is_open(inside.queues_upkeep).dumper.history.keep_s
    return Plan(
        will=f"write a dump of {len(engine.state.queues)} queues, and remove the files that it stands for",
        details=[
            f"These are {'at most ' if keeps else ''}{len(going)} files, {show_bytes(_size(going))}.",
            "The dump is as large as what waits in the queues.",
        ],
        warning="The queues cannot be seen as of an earlier time any more." if going and not keeps else "",
        count=None if keeps else len(going),
    )


def _size(segments: list[Segment]) -> int:
    return sum(one.bytes for one in segments)


def clean(inside: Inside, ref: Ref, work: Running) -> str:
    """Raises: Corruption, DiskFull, DiskError, LogFailed; Stopped."""
    if ref.kind == names.JOBS:
        done = names.is_open(inside.jobs_upkeep).clean(everything=True)
        held = f", {done.held} stay for who has yet to read them" if done.held else ""
        held += f", {done.past} stay for the recent past" if done.past else ""
        return (
            f"visited {done.visited} files: took out {done.dropped} records, kept {done.kept}; "
            f"{done.rewritten} written anew, {done.removed} removed{held}"
        )
    if ref.kind == names.TOPIC:
        shed = names.is_open(inside.topics_upkeep).shed(ref.of)
        return f"let {shed.files} files go, {show_bytes(shed.bytes)}, {shed.entries} entries"
    if ref.kind == names.STORE:
        store = names.is_open(inside.find_store())
        gone = store.compactions.clean_up(keeps_recent=True)
        kept = f"; {len(gone.kept)} stay for now" if gone.kept else ""
        return f"removed {len(gone.removed)} files, {show_bytes(gone.bytes)}{kept}"
    upkeep = names.is_open(inside.queues_upkeep)
    if ref.kind == names.JOURNALS:
        return f"let {upkeep.expire_all()} expired messages go"
    report = upkeep.dump()
    if report is None:
        return "a dump is being written already"
    return (
        f"wrote dump {report.number}: {report.queues} queues, {report.messages} messages, "
        f"{show_bytes(report.bytes)}; removed {len(report.removed)} files"
    )


# -- compacting ------------------------------------------------------------------------------------------------------


def plan_compact(inside: Inside, ref: Ref) -> Plan:
    """Raises: NotThere."""
    segments = files.list_files(inside, ref).segments
    if ref.kind == names.GROUPS:
        return Plan(
            will=f"write what the groups know anew, and remove the {len(segments)} files from before",
            details=[f"They have {show_bytes(sum(one.bytes for one in segments))}."],
            count=len(segments),
        )
    store = names.is_open(inside.find_store())
    merged = set(store.engine.catalog.merged)
    new = [one for one in segments if one.file.startswith("pwal_") and one.state in (ACTIVE, SEALED)]
    new = [one for one in new if one.file not in merged]
    return Plan(
        will=f"rotate {ref.name} and merge {len(new)} files, {show_bytes(sum(one.bytes for one in new))}, "
        "into sorted ones",
        details=[
            "It runs in a process of its own; readers and writers go on.",
            "The files that are merged stay until they are cleaned.",
        ],
        count=len(new),
    )


def compact(inside: Inside, ref: Ref, work: Running) -> str:
    """Raises: Stopped; StorageError: then all is as it was."""
    if ref.kind == names.GROUPS:
        topic, stopper = names.topic_of(inside, ref), Stopper()
        work.cancel, work.can_stop = stopper.stop, True
        with topic.at_work:
            removed = topic.groups.compact(stopper)
        return f"wrote the groups anew, and removed {removed} files"
    store = names.is_open(inside.find_store())
    work.cancel, work.can_stop = store.cancel_compaction, True

    def progress(done: int, total: int) -> None:
        work.done, work.total = done, total

    report = store.compact(progress)
    if not report.inputs:
        return "nothing was new: there was nothing to do"
    return (
        f"merged {len(report.inputs)} files up to epoch {report.epoch}: {report.entries_live} entries live, "
        f"{show_bytes(report.bytes_before)} before, {show_bytes(report.bytes_after)} after"
    )


# -- reading ---------------------------------------------------------------------------------------------------------


def plan_verify(inside: Inside, ref: Ref) -> Plan:
    """Raises: NotThere."""
    if ref.kind == names.JOURNALS:
        return Plan(will=f"read every journal of {ref.name}, and check it; nothing is changed")
    segments = files.list_files(inside, ref).segments
    size = show_bytes(sum(one.bytes for one in segments))
    return Plan(
        will=f"read all {len(segments)} files of {ref.name}, {size}, and check every byte; nothing is changed",
        details=["It goes on in the background, shows how far it is, and can be stopped."],
        count=len(segments),
    )


def verify(inside: Inside, ref: Ref, work: Running) -> str:
    """Raises: DiskError; Stopped."""
    return logs_verify.verify(ref, work)


def plan_measure(inside: Inside, ref: Ref) -> Plan:
    """Raises: NotThere."""
    segments = files.list_files(inside, ref).segments
    size = show_bytes(sum(one.bytes for one in segments))
    return Plan(will=f"read all files of {ref.name}, {size}, to find out what of them is alive; nothing is changed")


def measure(inside: Inside, ref: Ref, work: Running) -> str:
    """Raises: Corruption, DiskError; Stopped."""
    found = logs_desk.measure_of(inside, ref)
    assert found is not None
    done = logs_desk.desk_of(inside).measures.take(ref.name, found, work.progress)
    shares = done.shares.values()
    live, dead = sum(share.live for share in shares), sum(share.dead for share in shares)
    pinned = sum(share.pinned for share in shares)
    return f"{show_bytes(live)} are alive, {show_bytes(dead)} dead, {show_bytes(pinned)} pinned"
