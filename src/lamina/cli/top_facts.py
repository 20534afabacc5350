"""What ``lamina top`` shows: a running server, asked again and again, and the rates between two answers.

One INFO tells nearly all (server/resp/info_sections.py). A server whose RESP door knows nothing of jobs, or has no such
door, is asked at its workq door too, which tells less of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol
from urllib.parse import unquote

from lamina.errors import WireError

SECTIONS: Final = (
    "server",
    "clients",
    "memory",
    "stats",
    "cpu",
    "keyspace",
    "topics",
    "queues",
    "store",
    "disk",
    "jobs",
    "life",
)
_PAGE: Final = 100  # queues that one inspect tells of

Facts = dict[str, Any]


class AsksInfo(Protocol):
    """As much of a RESP client as is needed."""

    def ask(self, *words: str) -> Any: ...


class AsksJobs(Protocol):
    """As much of a workq client as is needed."""

    def inspect(self, what: str, *words: str | int) -> Any: ...


class Watcher:
    """Asks, and remembers the last answer: rates are what came between the two, by the second."""

    def __init__(
        self, resp: AsksInfo | None, workq: AsksJobs | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._resp, self._workq, self._clock = resp, workq, clock
        self._before: tuple[float, dict[str, str]] | None = None

    def look(self) -> Facts:
        """All that is shown, as plain values. Rates are None at the first time, and after the server began anew.

        Raises: Disconnected, WireError.
        """
        told = {} if self._resp is None else parse_info(self._resp.ask("INFO", *SECTIONS))
        now = self._clock()
        rates = _Rates(told, now, self._before)
        self._before = now, told
        facts: Facts = {"time_ms": time.time_ns() // 1_000_000}
        if told:
            facts |= {
                "server": _server(told, rates),
                "disk": _disk(told, rates),
                "topics": _topics(told, rates),
                "queues": _queues(told, rates),
                "store": _store(told, rates),
            }
        if "jobs" in told:
            facts["jobs"] = _jobs(told, rates)
        elif self._workq is not None:
            facts["jobs"] = _inspected(self._workq)
        return facts


def parse_info(answer: Any) -> dict[str, str]:
    """Lines ``name:value`` of an INFO. Raises: WireError."""
    if not isinstance(answer, bytes):
        raise WireError("the server has no INFO", hint="check the address: is it a RESP door?")
    lines = answer.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


class _Rates:
    def __init__(self, told: dict[str, str], now: float, before: tuple[float, dict[str, str]] | None) -> None:
        self._told = told
        # Of another process the numbers begin anew.
        is_same = before is not None and before[1].get("run_id") == told.get("run_id")
        self._seconds = now - before[0] if before is not None and is_same else 0.0
        self._before = before[1] if before is not None and is_same else {}

    def of(self, name: str, own: int = 0) -> float | None:
        """How much it grew by the second, without ``own``, which the asking itself made."""
        return _rounded(self.exactly(name, own))

    def exactly(self, name: str, own: int = 0) -> float | None:
        """The same, not rounded."""
        return self._rate(_number(self._told, name), _number(self._before, name), own)

    def of_pair(self, name: str, key: str) -> float | None:
        """The same of a value in ``name:key=value,…``."""
        now, before = _pairs(self._told, name), _pairs(self._before, name)
        return _rounded(self._rate(_number(now, key), _number(before, key), 0))

    def _rate(self, now: float | None, before: float | None, own: int) -> float | None:
        if now is None or before is None or self._seconds <= 0:
            return None
        return max(now - before - own, 0) / self._seconds


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


def _server(told: dict[str, str], rates: _Rates) -> Facts:
    user, system = rates.exactly("used_cpu_user"), rates.exactly("used_cpu_sys")
    cpu = None if user is None or system is None else round(100 * (user + system), 1)
    return {
        "version": told.get("lamina_version"),
        "process_id": _whole(told, "process_id"),
        "uptime_s": _whole(told, "uptime_in_seconds"),
        "phase": told.get("phase", "ready"),
        "problems": told.get("problems", ""),
        "connections": _whole(told, "connected_clients"),
        "most_connections": _whole(told, "maxclients"),
        "waiting": _whole(told, "blocked_clients"),
        "memory_bytes": _whole(told, "used_memory_rss"),
        "cpu_percent": cpu,
        "commands_per_s": rates.of("total_commands_processed", own=1),
        "connections_per_s": rates.of("total_connections_received"),
    }


def _disk(told: dict[str, str], rates: _Rates) -> Facts:
    engines = ("jobs", "topics", "queues", "store")
    return {
        "total_bytes": _whole(told, "disk_total_bytes"),
        "free_bytes": _whole(told, "disk_free_bytes"),
        "is_full": told.get("disk_is_full") == "1",
        "written_per_s": rates.of("disk_written_bytes"),
        "by_engine": {name: _whole(told, f"disk_{name}_bytes") for name in engines if f"disk_{name}_bytes" in told},
    }


def _topics(told: dict[str, str], rates: _Rates) -> Facts | None:
    if "topics" not in told:
        return None
    groups: dict[str, list[Facts]] = {}
    for name, pairs in _named(told, "group_"):
        topic, _, group = name.partition("/")
        groups.setdefault(topic, []).append(
            {"name": unquote(group), **{key: _whole(pairs, key) for key in ("lag", "pending", "consumers")}}
        )
    by_topic: list[Facts] = [
        {
            "name": unquote(name),
            "length": _whole(pairs, "length"),
            "added": _whole(pairs, "added"),
            "per_s": rates.of_pair(f"topic_{name}", "added"),
            "groups": groups.get(name, []),
        }
        for name, pairs in _named(told, "topic_")
    ]
    by_topic.sort(key=lambda topic: (-(topic["per_s"] or 0), -(topic["added"] or 0)))
    return {
        "topics": _whole(told, "topics"),
        "open": _whole(told, "topics_open"),
        "entries": _whole(told, "topics_entries"),
        "added_per_s": rates.of("topics_added"),
        "bytes_per_s": rates.of("topics_bytes"),
        "by_topic": by_topic,
    }


def _queues(told: dict[str, str], rates: _Rates) -> Facts | None:
    if "queues" not in told:
        return None
    return {
        "queues": _whole(told, "queues"),
        "messages": _whole(told, "queues_messages"),
        "subscribers": _whole(told, "queues_subscribers"),
        "expired": _whole(told, "queues_expired"),
        "changes_per_s": rates.of("queues_records"),
        "store": told.get("queues_store"),
    }


def _store(told: dict[str, str], rates: _Rates) -> Facts | None:
    if "store_epoch" not in told:
        return None
    return {
        "epoch": _whole(told, "store_epoch"),
        "durable_epoch": _whole(told, "store_durable_epoch"),
        "epochs_per_s": rates.of("store_epoch"),
        "channels": _whole(told, "store_channels"),
        "files": _whole(told, "store_files"),
        "parts": _whole(told, "store_parts"),
        "refusals": _whole(told, "store_refusals"),
    }


def _jobs(told: dict[str, str], rates: _Rates) -> Facts:
    counts = ("ready", "scheduled", "leased", "completed", "failed")
    by_queue = [
        {
            "name": unquote(name),
            **{state: _whole(pairs, state) for state in counts},
            "is_paused": pairs.get("paused") == "1",
            "oldest_s": _number(pairs, "oldest_s"),
        }
        for name, pairs in _named(told, "jobs_")
    ]
    return {
        "jobs": _whole(told, "jobs"),
        "queues": _whole(told, "jobs_queues"),
        "evicted": _whole(told, "jobs_evicted"),
        "changes_per_s": rates.of("jobs_records"),
        "bytes_per_s": rates.of("jobs_bytes"),
        "by_queue": by_queue,
    }


def _inspected(client: AsksJobs) -> Facts:
    blocks = client.inspect("queues", 0, _PAGE)
    server = {key: value.decode() for block in client.inspect("server") for key, value in block.facts.items()}
    by_queue: list[Facts] = []
    for block in blocks:
        pairs = {key: value.decode() for key, value in block.facts.items()}
        ready, scheduled = _whole(pairs, "ready-len"), _whole(pairs, "scheduled-len")
        by_queue.append({"name": block.title, "ready": ready, "scheduled": scheduled})
    by_queue.sort(key=lambda queue: -((queue["ready"] or 0) + (queue["scheduled"] or 0)))
    return {
        "jobs": sum((queue["ready"] or 0) + (queue["scheduled"] or 0) for queue in by_queue),
        "queues": len(by_queue),
        "evicted": _whole(server, "evicted-jobs"),
        "connections": _whole(server, "active-clients"),
        "by_queue": by_queue,
    }


def _named(told: dict[str, str], prefix: str) -> list[tuple[str, dict[str, str]]]:
    """Lines of one kind: ``prefix<name>:key=value,…``."""
    return [
        (name.removeprefix(prefix), _pairs(told, name))
        for name in told
        if name.startswith(prefix) and "=" in told[name]
    ]


def _pairs(told: dict[str, str], name: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in told.get(name, "").split(",") if "=" in pair)


def _number(values: dict[str, str], name: str) -> float | None:
    try:
        return float(values[name])
    except (KeyError, ValueError):
        return None


def _whole(values: dict[str, str], name: str) -> int | None:
    number = _number(values, name)
    return None if number is None else int(number)
