"""Writing the log of groups anew: a snapshot is put into a sealed file of it, and the files before that file go.

    … │ … record, M │ M        (room)        M, record … │ record …        what the log has; M begins a snapshot, and
                      snapshot of all before                               by itself means nothing

The engine makes room (group_log.py): it leaves as many positions free as a snapshot can need at most, between two
records of its own. Then it seals the file. Nothing is ever written to that again, so what was known at the room can be
found out from the files, by another process, while everybody goes on. The file is written once more with the snapshot
where the room was, and takes its own place (log/rewrite.py); nothing else in it changes, so whoever reads by positions
finds what was there. From then on all files before it say nothing that it does not say, and go one by one.

A crash leaves the old file or the new one, and a part of the files before it, the newest ones: in any case a log that
comes to the same state.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Final

from lamina.engines import elsewhere
from lamina.engines.elsewhere import EndedEarly, Stopper
from lamina.engines.topics import group_snapshot
from lamina.engines.topics.group_snapshot import FRAME
from lamina.engines.topics.group_state import State
from lamina.errors import LaminaError, Stopped, StorageError
from lamina.log import kernel, rewrite
from lamina.log.files import Files, file_size, join
from lamina.log.files.real import RealFiles
from lamina.log.formats import GROUP
from lamina.log.naming import TIMED, FileName, parse
from lamina.log.reader import Reader, Segment
from lamina.log.recovery import chunks_of
from lamina.log.scan import Batch
from lamina.log.segment import open_for_reading
from lamina.units import MIB

_MODULE: Final = "lamina.engines.topics.group_compaction"
_AT_ONCE: Final = 64  # records of a snapshot that are framed together
_SYNC_EVERY: Final = 4 * MIB


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be written anew."""

    folder: str
    files: Sequence[str]
    """Sealed ones, oldest first. The last one gets the snapshot, the others go when it has it."""
    start: int
    """The first free position: all records before it are what the snapshot says."""
    end: int
    """The first that is not free any more."""
    max_payload: int

    @property
    def staged(self) -> str:
        """The path under which the new file is written."""
        return join(self.folder, self.files[-1] + TIMED.temporary_suffix)


def room_for(logged: int) -> int:
    """How many positions a snapshot can need at most, of a state that so many bytes of records have made.

    Each record makes a consumer and what is pending for it at most, and takes more than twenty bytes.
    """
    return logged // 10 + 100


def stage_elsewhere(files: Files, task: Task, stopper: Stopper) -> int:
    """``stage`` in another process if the files are real, else here. Raises: as ``stage``."""
    if type(files) is not RealFiles:
        return stage(files, task, is_stopped=lambda: stopper.is_stopped)
    try:
        answer = elsewhere.ask(_MODULE, asdict(task), stopper, "writes groups anew")
    except EndedEarly:
        discard(files, task)  # what a process leaves that was killed
        if stopper.is_stopped:
            raise _given_up() from None
        raise
    if "error" in answer:
        raise elsewhere.error_of(answer["error"])
    return int(answer["bytes"])


def stage(
    files: Files,
    task: Task,
    snapshot: Iterable[bytes] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Write the new file under another name. Returns the bytes of the snapshot in the log.

    ``snapshot``: its records, if they are known; else they are found out from the files.
    Durability: when it returns, the file is synced, and counts for nothing yet.
    Raises: Corruption if a file is not what it was; DiskFull, DiskError; Stopped. Then nothing is left of it.
    """
    last = parse(task.files[-1])
    assert last is not None
    reader = Reader(task.folder, family=TIMED, files=files, max_payload=task.max_payload)
    if snapshot is None:
        snapshot = group_snapshot.records(_state_at_room(reader, task, is_stopped))
    size = 0

    def counted(records: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal size
        for record in records:
            if is_stopped():
                raise _given_up()
            size += len(record) + FRAME
            yield record

    discard(files, task)  # of one that did not come to its end
    try:
        rewrite.write_new(files, task.staged, _new_file(reader, last, task, counted(snapshot)), _SYNC_EVERY)
    except BaseException:
        discard(files, task)
        raise
    return size


def discard(files: Files, task: Task) -> None:
    """Take away what is staged, if something is."""
    with suppress(OSError):
        files.remove(task.staged)


def _state_at_room(reader: Reader, task: Task, is_stopped: Callable[[], bool]) -> State:
    """Every file is read to its end, so one that is not whole is noticed. Raises: Corruption, DiskError; Stopped."""
    names = [name for name in map(parse, task.files) if name is not None]

    def batches() -> Iterator[tuple[Segment, Batch]]:
        for pair in reader.batches(names=names, are_sealed=True):
            if is_stopped():
                raise _given_up()
            yield pair

    return group_snapshot.load(batches(), before=task.start).state


def _new_file(reader: Reader, name: FileName, task: Task, snapshot: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes of a sealed file, with the snapshot where there is room for it."""
    behind = _offset_behind_room(reader, name, task)
    file = open_for_reading(reader.files, reader.folder, name.name)
    try:
        size = file_size(file)
        behind = size if behind is None else behind
        yield from chunks_of(file, 0, behind)
        at = task.start
        while records := list(islice(snapshot, _AT_ONCE)):
            yield kernel.encode_many(at, records)
            at += len(records)
        if at >= task.end:
            raise StorageError(f"{reader.folder}: no room was left for {at - task.start} records of a snapshot")
        # It is synced before it counts: from here on a part of it that goes bad is no torn tail.
        yield kernel.encode_many(at, [GROUP.watermark(at - 1)])
        yield from chunks_of(file, behind, size)
    finally:
        file.close()


def _offset_behind_room(reader: Reader, name: FileName, task: Task) -> int | None:
    """Where the first record behind the room is; None: there is none."""
    for _, batch in reader.batches(after=task.start - 1, names=[name], are_sealed=True):
        for number, time_ns in enumerate(batch.times):
            if time_ns >= task.start:
                return batch.record_offset(number)
    return None


def _given_up() -> Stopped:
    return Stopped("writing the groups anew was given up", hint="it is done another time")


# -- the other process -----------------------------------------------------------------------------------------------


def main() -> int:
    gc.disable()  # all that is made is kept to the end
    try:
        elsewhere.tell({"bytes": stage(RealFiles(), Task(**elsewhere.take_task()))})
    except LaminaError as error:
        elsewhere.tell({"error": error.as_dict()})
    except KeyboardInterrupt:
        return 1  # nobody waits for an answer, and nothing was left behind
    return 0


if __name__ == "__main__":
    sys.exit(main())
