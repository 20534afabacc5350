"""Which files of the store are loaded, in what order, and which are passed over: from their names alone.

    smp-server-store-7.dump           all queues as they were when log 7 ended
    smp-server-store-8.log            what happened since
    smp-server-store-8.dump.saving    a dump that is being written, or that a crash left behind

The newest dump is the base; behind it come the logs with larger numbers, without a hole. Numbers are never used again:
the next one is larger than any that a file has. Names of any other form are not ours, and are neither touched nor told.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lamina.log.naming import FileName, parse

_NAME: Final = re.compile(r"smp-server-store-(0|[1-9]\d*)\.(log|dump|dump\.saving)", re.ASCII)

_MOST_MISSING: Final = 100  # that are told by name

IN_PROGRESS: Final = "in-progress dump"
OLDER: Final = "older dump"
COVERED: Final = "log already covered by the dump"
BROKEN: Final = "broken dump"


def log_name(number: int) -> FileName:
    """As the kernel has it, for ``Log.start``."""
    name = parse(f"smp-server-store-{number}.log")
    assert name is not None
    return name


def dump_name(number: int) -> str:
    return f"smp-server-store-{number}.dump"


def saving_name(number: int) -> str:
    return dump_name(number) + ".saving"


class Ignored(NamedTuple):
    """A file of the store that is not loaded, and why."""

    file: str
    reason: str


@dataclass(slots=True)
class Found:
    """The numbers of what is there, ascending."""

    dumps: list[int] = field(default_factory=list)
    logs: list[int] = field(default_factory=list)
    savings: list[int] = field(default_factory=list)

    @property
    def next_number(self) -> int:
        return max([-1, *self.dumps, *self.logs, *self.savings]) + 1


def find(names: Iterable[str]) -> Found:
    """Sort out the names of a folder."""
    found = Found()
    lists = {"log": found.logs, "dump": found.dumps, "dump.saving": found.savings}
    for name in names:
        if match := _NAME.fullmatch(name):
            lists[match[2]].append(int(match[1]))
    for numbers in lists.values():
        numbers.sort()
    return found


@dataclass(slots=True)
class Plan:
    """What is loaded: the base, then the logs."""

    base: int | None
    logs: list[int]
    ignored: list[Ignored]
    missing: list[int]
    """Logs that should be there and are not, so that what is behind them cannot be understood."""
    next_number: int

    @property
    def load_order(self) -> list[str]:
        base = [] if self.base is None else [dump_name(self.base)]
        return [*base, *(log_name(number).name for number in self.logs)]


def plan(
    names: Iterable[str], *, broken: Collection[int] = (), up_to: int | None = None, lost: Iterable[str] = ()
) -> Plan:
    """What to load of these files. ``broken``: dumps that turned out to be; ``up_to``: as if nothing came later;
    ``lost``: files that must be there and are not, as the manifest says.

    With a broken dump all logs since the one before it are needed, or since the very first one.
    """
    found, gone = find(names), find(lost)
    broken = {*broken, *gone.dumps}
    next_number = max(found.next_number, gone.next_number)
    dumps, logs = found.dumps, found.logs
    if up_to is not None:
        dumps = [number for number in dumps if number < up_to]
        logs = [number for number in logs if number <= up_to]
    base = max((number for number in dumps if number not in broken), default=None)
    loaded = [number for number in logs if base is None or number > base]
    ignored = [Ignored(saving_name(number), IN_PROGRESS) for number in found.savings]
    for number in dumps:
        if number in broken:
            ignored.append(Ignored(dump_name(number), BROKEN))
        elif number != base:
            ignored.append(Ignored(dump_name(number), OLDER))
    ignored += [Ignored(log_name(number).name, COVERED) for number in logs if number not in loaded]
    needed = {number for number in gone.logs if base is None or number > base}
    missing = sorted({*_missing(base, loaded, broken), *needed})
    return Plan(base, loaded, ignored, missing, next_number)


def _missing(base: int | None, logs: list[int], broken: Collection[int]) -> list[int]:
    passed_over = [number for number in broken if base is None or number > base]
    if base is not None:
        before = base
    elif passed_over:
        before = -1
    else:
        before = min(logs, default=0) - 1
    missing: list[int] = []
    newest = max([before, *passed_over])
    for number in [*logs, *([newest + 1] if newest > max(logs, default=before) else [])]:
        # Numbers may be anything that a file can be called.
        missing += range(before + 1, min(number, before + 1 + _MOST_MISSING))
        before = number
    return missing[:_MOST_MISSING]
