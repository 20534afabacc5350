"""The files of one log, from their names, sizes and indexes: nothing here reads records, or waits for an engine."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lamina.errors import LaminaError, NotThere
from lamina.log import index as indexes
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles
from lamina.log.naming import CHECKPOINT, CONSUMERS, INDEX_SUFFIX, RESERVE, FileName, parse
from lamina.log.scan import HEADER_SIZE, read_record
from lamina.log.segment import open_for_reading
from lamina.server.http.ops import logs_names as names
from lamina.server.http.ops.logs_model import ACTIVE, COMPACTED, DUMP, SEALED, Segment
from lamina.server.http.ops.logs_model import CHECKPOINT as CHECKPOINTED
from lamina.server.http.ops.logs_names import Ref
from lamina.server.inside import Inside
from lamina.units import show_bytes

FILES: Final[Files] = RealFiles()
_LONGEST_S: Final = 0.08  # for indexes that were not read before; the next who looks finds more of them
_KEPT: Final = 20_000


class Facts(NamedTuple):
    """Of one file, as its index has it."""

    first_ns: int | None
    last_ns: int | None
    records: int | None


@dataclass(slots=True)
class Listed:
    """What is in the folder of a log."""

    segments: list[Segment] = field(default_factory=list)
    """The oldest first."""
    others: dict[str, int] = field(default_factory=dict)
    """What stands beside them, and how many bytes it has."""
    names: dict[str, FileName] = field(default_factory=dict)

    @property
    def other_bytes(self) -> int:
        return sum(self.others.values())


_remembered: OrderedDict[tuple[str, int, int], Facts] = OrderedDict()


def list_files(inside: Inside, ref: Ref) -> Listed:
    """Raises: NotThere if the folder is gone."""
    try:
        entries = [(each.name, each.stat(follow_symlinks=False)) for each in os.scandir(ref.folder) if each.is_file()]
    except OSError:
        raise NotThere(f"the log {ref.name!r} is gone", hint="it may have been deleted just now") from None
    listed = Listed()
    growing = _growing(inside, ref)
    found: list[tuple[tuple[int, ...], str, FileName | None, os.stat_result]] = []
    newest: dict[str, FileName] = {}
    for name, stat in entries:
        parsed = parse(name)
        if parsed is None and name != CHECKPOINT:
            kind = _kind_of_other(name)
            listed.others[kind] = listed.others.get(kind, 0) + stat.st_size
            continue
        found.append((_order(name, parsed), name, parsed, stat))
        if parsed is not None:
            listed.names[name] = parsed
            newest[parsed.stream] = max(parsed, newest.get(parsed.stream, parsed))
    found.sort(key=lambda one: one[:2])
    _add_folders(ref.folder, listed)
    until = time.monotonic() + _LONGEST_S
    for _, name, parsed, stat in found:
        state = _state(name, parsed, newest, growing)
        facts = _facts(ref.folder, name, parsed, stat, state, growing, until)
        stream = parsed.stream if parsed is not None and ref.kind == names.STORE else ""
        listed.segments.append(
            Segment(
                file=name,
                state=state,
                bytes=stat.st_size,
                stream="" if stream == name else stream,
                first_ns=facts.first_ns,
                last_ns=facts.last_ns,
                records=facts.records,
                live_bytes=stat.st_size if state == CHECKPOINTED else None,
                dead_bytes=0 if state == CHECKPOINTED else None,
                pinned_bytes=0 if state == CHECKPOINTED else None,
                note="what a start begins with" if state == CHECKPOINTED else "",
            )
        )
    return listed


def _order(name: str, parsed: FileName | None) -> tuple[int, ...]:
    """Deep down what was laid down first: parts and dumps stand for what is older than all logs."""
    if parsed is None:
        return (0,)
    if parsed.is_part:
        return (1, *parsed.order)
    if name.endswith(".dump"):
        return (1, parsed.number)
    return (2, *parsed.order)


def _kind_of_other(name: str) -> str:
    if name.endswith(INDEX_SUFFIX):
        return "indexes"
    if name in (RESERVE, ".reserve"):
        return "room kept for a full disk"
    if ".torn-" in name or ".broken-" in name:
        return "put aside by a repair"
    if name.startswith("compaction_catalog"):
        return "catalogs"
    if name.startswith("run"):
        return "working files"
    return "other files"


def _add_folders(folder: str, listed: Listed) -> None:
    for below, kind in ((CONSUMERS, "positions of consumers"), ("ctrl", "other files")):
        try:
            with os.scandir(join(folder, below)) as entries:
                size = sum(each.stat(follow_symlinks=False).st_size for each in entries if each.is_file())
        except OSError:
            continue
        listed.others[kind] = listed.others.get(kind, 0) + size


def show_others(others: Mapping[str, int]) -> list[str]:
    """For people, the largest first."""
    return [f"{kind} {show_bytes(size)}" for kind, size in sorted(others.items(), key=lambda one: -one[1]) if size]


class _Growing(NamedTuple):
    """Which file grows, as the writer says: no name if none does just now."""

    is_known: bool
    name: str = ""
    last_ns: int | None = None


def _growing(inside: Inside, ref: Ref) -> _Growing:
    log = names.log_of(inside, ref)
    if log is None:
        return _Growing(False)
    readable = log.readable
    if readable is None or readable[1] is None:
        return _Growing(True)
    return _Growing(True, readable[0].name, int(log.written) or None)


def _state(name: str, parsed: FileName | None, newest: Mapping[str, FileName], growing: _Growing) -> str:
    if parsed is None:
        return CHECKPOINTED
    if parsed.is_part:
        return COMPACTED
    if name.endswith(".dump"):
        return DUMP
    if parsed.family == "pwal":
        return SEALED if parsed.is_closed else ACTIVE
    if growing.is_known:
        return ACTIVE if name == growing.name else SEALED
    return ACTIVE if newest[parsed.stream] == parsed else SEALED


def _facts(
    folder: str,
    name: str,
    parsed: FileName | None,
    stat: os.stat_result,
    state: str,
    growing: _Growing,
    until: float,
) -> Facts:
    if parsed is None or parsed.is_part:  # records of a part are in the order of their keys, not of time
        return Facts(None, None, None)
    first = parsed.number if parsed.family == "timed" else None
    if state == ACTIVE:
        return Facts(first or _first(folder, name), growing.last_ns, None)
    key = (join(folder, name), stat.st_size, stat.st_mtime_ns)
    known = _remembered.get(key)
    if known is None:
        if time.monotonic() > until:
            return Facts(first, None, None)
        known = _read(folder, name, first)
        _remembered[key] = known
        while len(_remembered) > _KEPT:
            _remembered.popitem(last=False)
    return known


def _read(folder: str, name: str, first: int | None) -> Facts:
    """Of a file that does not change: from the index beside it; without one, its first record alone."""
    try:
        file = open_for_reading(FILES, folder, name)
    except (OSError, LaminaError):
        return Facts(first, None, None)
    try:
        kept = indexes.load(FILES, folder, name, file)
        if kept is not None:
            return Facts(first or kept.first or None, kept.last_data or None, kept.records)
        head = read_record(file, HEADER_SIZE, file.size())
        return Facts(first or getattr(head, "time_ns", None), None, None)
    except (OSError, LaminaError):
        return Facts(first, None, None)
    finally:
        file.close()


def _first(folder: str, name: str) -> int | None:
    try:
        file = open_for_reading(FILES, folder, name)
    except (OSError, LaminaError):
        return None
    try:
        return getattr(read_record(file, HEADER_SIZE, file.size()), "time_ns", None)
    except (OSError, LaminaError):
        return None
    finally:
        file.close()
