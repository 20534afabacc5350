"""Where in the console each action is: the page that has its button. The fields are those of console_samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlencode

from integration.console_server import STRANGE, Filled


class Way(NamedTuple):
    """How one gets there."""

    page: Callable[[Filled], str]
    hidden: Callable[[Filled], dict[str, object]] = lambda filled: {}
    """What is in its form already, where the page has several of the same action."""


def _at(path: str, **query: object) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _dead(number: int, **more: object) -> Callable[[Filled], str]:
    return lambda filled: _at("/jobs/one", id=filled.dead[number], **more)


def _of(path: str, **query: object) -> Callable[[Filled], str]:
    return lambda filled: _at(path, **query)


def _queue(number: int) -> Callable[[Filled], str]:
    return lambda filled: _at("/queues/one", handle=filled.handles[number])


def _group(name: str) -> Callable[[Filled], str]:
    return _of("/topics/group", name="orders", group=name)


WAYS: dict[str, Way] = {
    "jobs.add": Way(_of("/jobs/queue", name="mail")),
    "jobs.delete": Way(_dead(0)),
    "jobs.release": Way(lambda filled: _at("/jobs/one", id=filled.working)),
    "jobs.redrive": Way(_dead(1)),
    "jobs.pause": Way(_of("/jobs/queue", name="mail")),
    "jobs.resume": Way(_of("/jobs/queue", name="paused")),
    "jobs.redrive_queue": Way(_of("/jobs/dead", name="returned")),
    "jobs.redrive_group": Way(_of("/jobs/dead", name="letters"), lambda filled: {"error": "smtp: timed out after # s"}),
    "jobs.redrive_edited": Way(_dead(2, edit=1)),
    "jobs.purge": Way(_of("/jobs/queue", name="letters")),
    "topics.publish": Way(_of("/topics/one", name="orders")),
    "topics.trim": Way(_of("/topics/one", name="logs.web")),
    "topics.delete": Way(_of("/topics/one", name=STRANGE)),
    "topics.create_group": Way(_of("/topics/one", name="orders")),
    "topics.delete_group": Way(_group("billing <b>")),
    "topics.reset_group": Way(_group("auditors"), lambda filled: {"to": "start"}),
    "topics.acknowledge": Way(_group("packers")),
    "topics.claim": Way(_group("packers")),
    "queues.purge": Way(_queue(1)),
    "queues.move": Way(_queue(2)),
    "queues.suspend": Way(_queue(5)),
    "queues.delete": Way(_queue(6)),
    "queues.dump": Way(_of("/queues")),
    "logs.rotate": Way(_of("/log/one", name="topics/orders")),
    "logs.clean": Way(_of("/log/one", name="jobs")),
    "logs.compact": Way(_of("/log/one", name="store")),
    "logs.verify": Way(_of("/log/one", name="topics/logs.web")),
    "logs.measure": Way(_of("/log/one", name="jobs")),
    "logs.stop": Way(_of("/log/one", name="topics/big")),
    "store.put": Way(_of("/store/scan", storage=1)),
    "store.remove": Way(_of("/store/key", storage=1, key="stock/001")),
    "store.switch_epoch": Way(_of("/store")),
    "store.rotate": Way(_of("/store")),
    "store.compact": Way(_of("/store")),
    "store.cancel": Way(_of("/store/compactions")),
    "store.clean": Way(_of("/store")),
}
