"""For each operation that changes something: fields with which it does so, on a server that ``fill`` filled.

One who adds an operation adds it here; the tests of the API, of forgery and of read-only tokens go through them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from integration.console_server import MARKUP, STRANGE, Filled
from lamina.server.http.operations import AnyOperation
from lamina.server.http.ops import all_operations

Fields = dict[str, Any]

SAMPLES: dict[str, Callable[[Filled], Fields]] = {
    "jobs.add": lambda filled: {"queue": "mail", "payload": "one more", "priority": 3},
    "jobs.delete": lambda filled: {"id": filled.dead[0]},
    "jobs.release": lambda filled: {"id": filled.working},
    "jobs.redrive": lambda filled: {"id": filled.dead[1]},
    "jobs.pause": lambda filled: {"queue": "mail"},
    "jobs.resume": lambda filled: {"queue": "paused"},
    "jobs.redrive_queue": lambda filled: {"queue": "returned", "limit": 3},
    "jobs.redrive_group": lambda filled: {"queue": "letters", "error": "smtp: timed out after # s", "limit": 2},
    "jobs.redrive_edited": lambda filled: {"id": filled.dead[2], "payload": "letter 2, to the right person"},
    "jobs.purge": lambda filled: {"queue": "letters", "state": "failed", "older_s": 0, "limit": 1},
    "topics.publish": lambda filled: {"name": "orders", "body": MARKUP},
    "topics.trim": lambda filled: {"name": "logs.web", "keep": 10},
    "topics.delete": lambda filled: {"name": STRANGE},
    "topics.create_group": lambda filled: {"name": "orders", "group": "newcomers", "at": "start"},
    "topics.delete_group": lambda filled: {"name": "orders", "group": "billing <b>"},
    "topics.reset_group": lambda filled: {"name": "orders", "group": "auditors", "to": "start"},
    "topics.acknowledge": lambda filled: {"name": "orders", "group": "packers", "ids": filled.pending[0]},
    "topics.claim": lambda filled: {"name": "orders", "group": "packers", "ids": filled.pending[1], "consumer": "two"},
    "queues.purge": lambda filled: {"handle": filled.handles[1], "older_than": "0"},
    "queues.move": lambda filled: {"handle": filled.handles[2], "to": filled.handles[3], "limit": 2},
    "queues.suspend": lambda filled: {"handle": filled.handles[5]},
    "queues.delete": lambda filled: {"handle": filled.handles[6]},
    "queues.dump": lambda filled: {},
    "logs.rotate": lambda filled: {"name": "topics/orders"},
    "logs.clean": lambda filled: {"name": "jobs"},
    "logs.compact": lambda filled: {"name": "store"},
    "logs.verify": lambda filled: {"name": "topics/logs.web"},
    "logs.measure": lambda filled: {"name": "jobs"},
    "logs.stop": lambda filled: {"name": "topics/big"},
    "store.put": lambda filled: {"storage": 1, "key": "stock/100", "value": MARKUP},
    "store.remove": lambda filled: {"storage": 1, "key": "stock/001"},
    "store.switch_epoch": lambda filled: {},
    "store.rotate": lambda filled: {},
    "store.compact": lambda filled: {},
    "store.cancel": lambda filled: {},
    "store.clean": lambda filled: {},
}
"""By name of the operation. Fields of the path are among them."""


def changing() -> list[AnyOperation]:
    """All that change something."""
    return [each for each in all_operations().values() if each.changes]


def address_of(operation: AnyOperation, fields: Fields) -> tuple[str, Fields]:
    """Path of the API, and what is left for the body."""
    left = dict(fields)

    def fill_in(found: re.Match[str]) -> str:
        value = str(left.pop(found[1], "x"))
        return quote(value, safe="/" if found[2] else "")

    return "/api/v1" + re.sub(r"{(\w+)(:path)?}", fill_in, operation.path), left


def known_names(filled: Filled) -> dict[str, list[str]]:
    """For each field: what is there, so that what is asked for at random is sometimes found."""
    found: dict[str, list[str]] = {}
    for sample in SAMPLES.values():
        for name, value in sample(filled).items():
            if isinstance(value, str):
                found.setdefault(name, []).append(value)
    found["id"] += [filled.ready, filled.scheduled, filled.done, filled.pending[2]]
    found["handle"] += filled.handles
    return {name: sorted(set(values)) for name, values in found.items() if name not in ("payload", "body")}
