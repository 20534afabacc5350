"""What a topic and its groups are after some commands, as Redis has it: an oracle that knows nothing of any log.

It runs the words that a client sends and says what has to be answered. Trims are exact. Ids are pairs of numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from integration.resp_wire import NULL_ARRAY, Error, Wire

Id = tuple[int, int]
Words = tuple[bytes, ...]
NO_ID: Id = (0, 0)
OF_TOPIC = frozenset((b"XADD", b"XDEL", b"XTRIM", b"XSETID"))
"""Commands that change entries; the others change groups."""


def id_of(text: bytes) -> Id:
    ms, sequence = text.split(b"-")
    return int(ms), int(sequence)


def text_of(id: Id) -> bytes:
    return b"%d-%d" % id


@dataclass
class Entries:
    """The topic without its groups."""

    fields: dict[Id, list[bytes]] = field(default_factory=dict)
    last: Id = NO_ID
    added: int = 0
    max_deleted: Id = NO_ID

    def copy(self) -> Entries:
        return Entries(dict(self.fields), self.last, self.added, self.max_deleted)


@dataclass
class Group:
    last: Id = NO_ID
    pending: dict[Id, tuple[bytes, int]] = field(default_factory=dict)
    """The consumer, and how often it was delivered."""

    def copy(self) -> Group:
        return Group(self.last, dict(self.pending))

    def cut(self, last: Id) -> Group:
        """As it is when the topic has nothing behind ``last``."""
        return Group(min(self.last, last), {id: given for id, given in self.pending.items() if id <= last})


class Model:
    """One topic."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.entries = Entries()
        self.groups: dict[bytes, Group] = {}

    def copy(self) -> Model:
        other = Model(self.key)
        other.entries = self.entries.copy()
        other.groups = self.copy_groups()
        return other

    def copy_groups(self) -> dict[bytes, Group]:
        return {name: group.copy() for name, group in self.groups.items()}

    def run(self, words: Words, made: Id | None = None) -> Any:
        """Do it, and return the answer. ``made``: the id that the server chose where the words leave it to it."""
        match words:
            case (b"XADD", _, b"MAXLEN", b"=", most, _, *fields):
                answer = self._add(words[5], fields, made)
                self._trim(len(self.entries.fields) - int(most))
                return answer
            case (b"XADD", _, id, *fields):
                return self._add(id, fields, made)
            case (b"XDEL", _, *ids):
                gone = [id for id in dict.fromkeys(map(id_of, ids)) if self.entries.fields.pop(id, None) is not None]
                self.entries.max_deleted = max(self.entries.max_deleted, *gone, NO_ID)
                return len(gone)
            case (b"XTRIM", _, b"MAXLEN", b"=", most):
                return self._trim(len(self.entries.fields) - int(most))
            case (b"XTRIM", _, b"MINID", b"=", oldest):
                return self._trim(sum(id < id_of(oldest) for id in self.entries.fields))
            case (b"XSETID", _, id):
                self.entries.last = id_of(id)
                return b"OK"
            case (b"XGROUP", b"CREATE", _, name, b"0", b"MKSTREAM"):
                self.groups[name] = Group()
                return b"OK"
            case (b"XGROUP", b"SETID", _, name, id):
                self.groups[name].last = id_of(id)
                return b"OK"
            case (b"XGROUP", b"DELCONSUMER", _, name, consumer):
                return self._drop(
                    name, [id for id, (owner, _) in self.groups[name].pending.items() if owner == consumer]
                )
            case (b"XREADGROUP", _, name, consumer, b"COUNT", count, _, _, b">"):
                return self._deliver(self.groups[name], consumer, int(count))
            case (b"XREADGROUP", _, name, consumer, _, _, b"0"):
                return self._history(self.groups[name], consumer)
            case (b"XACK", _, name, *ids):
                return self._drop(name, [id for id in map(id_of, ids) if id in self.groups[name].pending])
            case (b"XCLAIM", _, name, consumer, b"0", *ids):
                return self._claim(name, consumer, [id for id in map(id_of, ids) if id in self.groups[name].pending])[0]
            case (b"XAUTOCLAIM", _, name, consumer, b"0", b"0-0", b"COUNT", b"10000"):
                claimed, gone = self._claim(name, consumer, sorted(self.groups[name].pending))
                return [b"0-0", claimed, [text_of(id) for id in gone]]
        raise AssertionError(f"the model has no {words}")

    def _add(self, text: bytes, fields: list[bytes], made: Id | None) -> bytes:
        id = made if text == b"*" else id_of(text)
        assert id is not None
        assert id > self.entries.last, f"an id that is not new: {id} after {self.entries.last}"
        self.entries.fields[id] = fields
        self.entries.last = id
        self.entries.added += 1
        return text_of(id)

    def _trim(self, count: int) -> int:
        gone = list(self.entries.fields)[: max(count, 0)]
        for id in gone:
            del self.entries.fields[id]
        return len(gone)

    def _drop(self, name: bytes, ids: list[Id]) -> int:
        for id in ids:
            del self.groups[name].pending[id]
        return len(ids)

    def _deliver(self, group: Group, consumer: bytes, count: int) -> Any:
        new = [id for id in self.entries.fields if id > group.last][:count]
        for id in new:
            group.pending[id] = consumer, 1
            group.last = id
        return [[self.key, [self._shown(id) for id in new]]] if new else NULL_ARRAY

    def _history(self, group: Group, consumer: bytes) -> Any:
        own = sorted(id for id, (owner, _) in group.pending.items() if owner == consumer)
        for id in own:
            if id in self.entries.fields:
                group.pending[id] = consumer, group.pending[id][1] + 1
        return [[self.key, [self._shown(id) for id in own]]]

    def _claim(self, name: bytes, consumer: bytes, ids: list[Id]) -> tuple[list[Any], list[Id]]:
        """What is claimed, and what is not in the topic any more."""
        pending = self.groups[name].pending
        there = [id for id in ids if id in self.entries.fields]
        gone = [id for id in ids if id not in self.entries.fields]
        self._drop(name, gone)
        for id in there:
            pending[id] = consumer, pending[id][1] + 1
        return [self._shown(id) for id in there], gone

    def _shown(self, id: Id) -> list[Any]:
        return [text_of(id), self.entries.fields.get(id, NULL_ARRAY)]


# -- what a server has -----------------------------------------------------------------------------------------------


def found(wire: Wire, key: bytes) -> Model:
    """A topic as the server has it now; what it says in two ways must be the same."""
    model = Model(key)
    facts = _facts(wire.ask("XINFO", "STREAM", key))
    rows = wire.ask("XRANGE", key, "-", "+")
    ids = [id_of(id) for id, _ in rows]
    assert ids == sorted(set(ids)), f"{key!r}: an entry is there twice, or out of order"
    assert len(rows) == facts[b"length"] == wire.ask("XLEN", key), f"{key!r}: {len(rows)} entries, and {facts}"
    assert id_of(facts[b"recorded-first-entry-id"]) == (ids[0] if ids else NO_ID)
    fields = {id: row[1] for id, row in zip(ids, rows, strict=True)}
    last, max_deleted = id_of(facts[b"last-generated-id"]), id_of(facts[b"max-deleted-entry-id"])
    model.entries = Entries(fields, last, facts[b"entries-added"], max_deleted)
    for group in map(_facts, wire.ask("XINFO", "GROUPS", key)):
        name = group[b"name"]
        rows = wire.ask("XPENDING", key, name, "-", "+", 1_000_000)
        pending = {id_of(id): (consumer, deliveries) for id, consumer, _, deliveries in rows}
        assert len(pending) == len(rows) == group[b"pending"] == wire.ask("XPENDING", key, name)[0]
        model.groups[name] = Group(id_of(group[b"last-delivered-id"]), pending)
    return model


def _facts(pairs: Any) -> dict[bytes, Any]:
    assert not isinstance(pairs, Error), f"what was made is not there: {pairs!r}"
    return dict(zip(pairs[::2], pairs[1::2], strict=True))
