"""How ``lamina jobs`` shows queues and jobs to people."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from lamina.cli.jobs_place import STATES, Facts
from lamina.cli.render import out, print_table
from lamina.units import show_bytes, show_duration, show_time

_Show: TypeAlias = Callable[[Any], object]

_PREVIEW: Final = 40
_WIDTH: Final = 15


def print_queues(queues: Sequence[Facts]) -> None:
    if not queues:
        out.print("no queues")
        return
    columns: dict[str, tuple[str, _Show]] = {
        "name": ("queue", str),
        **{state: (f"{state} ", int) for state in STATES},
        "is_paused": ("paused", lambda is_paused: "yes" if is_paused else "no"),
        "waiting_workers": ("waiting workers ", int),
        "oldest_ready_s": ("oldest ready ", show_duration),
    }
    _print_table(columns, queues)


def print_jobs(found: Sequence[Facts], name: str, state: str, limit: int) -> None:
    if not found:
        out.print(f"no {state} jobs in {name}", markup=False)
        return
    columns: dict[str, tuple[str, _Show]] = {
        "id": ("id", str),
        "priority": ("priority ", int),
        "attempts": ("attempts ", int),
        "fails": ("fails ", int),
        "created_ns": ("age ", lambda created: show_duration(max(time.time_ns() - created, 0) / 1e9)),
        **_COLUMN_OF_STATE.get(state, {}),
        "payload": ("payload", _preview),
    }
    for key in ("priority", "fails", "result", "last_error"):
        if not any(facts.get(key) for facts in found):
            columns.pop(key, None)
    _print_table(columns, found)
    if len(found) == limit:
        out.print(f"the first {limit:,}; there may be more: --limit N")


def _print_table(columns: dict[str, tuple[str, _Show]], found: Sequence[Facts]) -> None:
    rows = [[_cell(facts.get(key), show) for key, (_, show) in columns.items()] for facts in found]
    print_table([title for title, _ in columns.values()], rows)


def _cell(value: object, show: _Show) -> object:
    return "-" if value is None else show(value)


def _second(time_ns: int) -> str:
    return show_time(time_ns).partition(".")[0] + "Z"


def _moment(time_ns: int) -> str:
    return show_time(time_ns).replace(".000000000", "")  # a server tells whole seconds only


def _preview(data: bytes) -> str:
    return repr(data[:_PREVIEW])[1:] + ("..." if len(data) > _PREVIEW else "")


_COLUMN_OF_STATE: Final[dict[str, dict[str, tuple[str, _Show]]]] = {
    "scheduled": {"scheduled_ns": ("scheduled for", _second)},
    "leased": {"lease_until_ns": ("leased until", _second)},
    "completed": {"result": ("result", _preview)},
    "failed": {"last_error": ("error", _preview)},
}


def print_job(facts: Facts) -> None:
    """Whatever is known of a job."""
    for key, (title, show) in _LINES.items():
        if facts.get(key) not in (None, ""):
            out.print(f"{title:{_WIDTH}}{show(facts[key])}{_limit(facts, key)}", markup=False)
    for key, title in _BYTES.items():
        if facts.get(key) is not None:
            _print_bytes(title, facts[key])


def _limit(facts: Facts, key: str) -> str:
    most = facts.get(f"max_{key}")
    if most is None:
        return ""
    no_limit = ", no limit" if key == "attempts" else ", the first is final"
    return f" of {most}" if most else no_limit


def _span(milliseconds: int) -> str:
    return show_duration(milliseconds / 1000)


_LINES: Final[dict[str, tuple[str, _Show]]] = {
    "id": ("id", str),
    "name": ("queue", str),
    "state": ("state", str),
    "exit_code": ("exit code", str),
    "priority": ("priority", str),
    "attempts": ("attempts", str),
    "fails": ("fails", str),
    "ttr_ms": ("time to run", _span),
    "ttl_ms": ("time to live", _span),
    "created_ns": ("created", _moment),
    "scheduled_ns": ("scheduled for", _moment),
    "lease_until_ns": ("leased until", _moment),
    "expires_ns": ("expires", _moment),
    "unique": ("unique key", str),
}
_BYTES: Final = {"payload": "payload", "result": "result", "last_error": "error"}


def _print_bytes(title: str, data: bytes) -> None:
    try:
        text, kind = data.decode(), "text"
    except UnicodeDecodeError:
        text, kind = data.hex(" ", -4), "bytes that are no text"
    out.print(f"{title:{_WIDTH}}{show_bytes(len(data))}" + (f" of {kind}:" if data else ""), markup=False)
    for line in text.splitlines():
        # It comes from whoever added the job: no control characters.
        shown = "".join(char if char.isprintable() or char == "\t" else "\N{REPLACEMENT CHARACTER}" for char in line)
        out.print(f"  {shown}", markup=False)
