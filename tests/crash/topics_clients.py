"""Clients of a topic server that know what they were told, and that hold it to it when it is back.

Each has a topic of its own, of which it knows everything, and all share one. Commands go out several at a time, so when
the server dies some are in flight. Those that change entries and those that change groups go to two logs: of either
kind the first few may have happened, in order, and the rest not. A command that happened has happened as a whole.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

from crash.topics_model import OF_TOPIC, Id, Model, Words, found, id_of, text_of
from crash.topics_shared import ALL, SHARED, Shared
from integration.resp_wire import Wire, same

GROUPS = (b"audit", b"mail")
CONSUMERS = (b"ann", b"bob", b"eve")
MOST_AT_ONCE = 12


class Client(threading.Thread):
    """Publishes, reads, acknowledges, claims, deletes and trims until the server is gone."""

    def __init__(self, number: int, model: Model, shared: Shared, rng: random.Random, port: int) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self.model, self.shared = model, shared
        self.consumer = b"c%d" % number
        self.in_flight: list[Words] = []
        self.in_flight_shared: list[Words] = []
        self.answered = 0
        self.problem: BaseException | None = None
        self._rng, self._port = rng, port
        self._own: list[Id] = []
        """Of this round, in the shared topic."""

    def run(self) -> None:
        try:
            with Wire(self._port) as wire:
                while True:
                    self._work_shared(wire) if self._rng.random() < 0.4 else self._work(wire)
        except ConnectionError:
            return  # killed
        except BaseException as problem:
            self.problem = problem

    # -- its own topic -----------------------------------------------------------------------------------------------

    def _work(self, wire: Wire) -> None:
        self.in_flight = [self._some_command(first=not at) for at in range(self._how_many())]
        wire.send_raw(_packed(self.in_flight))
        while self.in_flight:
            answer, words = wire.read(), self.in_flight[0]
            made = id_of(answer) if words[0] == b"XADD" else None
            expected = self.model.run(words, made)
            assert answer == expected if isinstance(expected, bytes) else same(answer, expected), (
                f"{words} was answered {answer!r}, not {expected!r}"
            )
            del self.in_flight[0]
            self.answered += 1

    def _how_many(self) -> int:
        return self._rng.choice([1, 1, 2, 5, MOST_AT_ONCE])

    def _some_command(self, *, first: bool) -> Words:
        rng, key, entries = self._rng, self.model.key, self.model.entries
        name, consumer = rng.choice(GROUPS), rng.choice(CONSUMERS)
        pending = list(self.model.groups[name].pending)
        acts = {"add": 40, "read": 12, "history": 2, "autoclaim": 1, "delete consumer": 1}
        if first:  # what comes before it in the same batch might be refused else, or an id is known only now
            acts |= {"add at": 5, "set id": 2}
        if entries.fields:
            acts |= {"delete": 6, "trim": 3, "go back": 1}
        if pending:
            acts |= {"ack": 14, "claim": 6}
        match rng.choices(list(acts), list(acts.values()))[0]:
            case "read":
                return self._read(name, consumer)
            case "history":
                return (b"XREADGROUP", b"GROUP", name, consumer, b"STREAMS", key, b"0")
            case "autoclaim":
                return (b"XAUTOCLAIM", key, name, consumer, b"0", b"0-0", b"COUNT", b"10000")
            case "delete consumer":
                return (b"XGROUP", b"DELCONSUMER", key, name, consumer)
            case "add at":
                return (b"XADD", key, _behind(entries.last, rng), *self._fields())
            case "set id":
                return (b"XSETID", key, _behind(entries.last, rng))
            case "delete":
                return (b"XDEL", key, *_some(rng, list(entries.fields), 3))
            case "trim":
                if rng.random() < 0.5:
                    return (b"XTRIM", key, b"MAXLEN", b"=", self._length())
                return (b"XTRIM", key, b"MINID", b"=", text_of(rng.choice(list(entries.fields)[:20])))
            case "go back":
                return (b"XGROUP", b"SETID", key, name, text_of(rng.choice(list(entries.fields)[-30:])))
            case "ack":
                return (b"XACK", key, name, *_some(rng, pending, 20))
            case "claim":
                return (b"XCLAIM", key, name, consumer, b"0", *_some(rng, pending, 4))
        if rng.random() < 0.1:
            return (b"XADD", key, b"MAXLEN", b"=", self._length(), b"*", *self._fields())
        return (b"XADD", key, b"*", *self._fields())

    def _length(self) -> bytes:
        """More than are added at once: what is in flight is not trimmed away before one has seen it."""
        return b"%d" % self._rng.choice([2 * MOST_AT_ONCE, 100, 250])

    def _read(self, name: bytes, consumer: bytes) -> Words:
        return (
            *(b"XREADGROUP", b"GROUP", name, consumer, b"COUNT", b"%d" % self._rng.choice([1, 3, 20])),
            *(b"STREAMS", self.model.key, b">"),
        )

    def _fields(self) -> tuple[bytes, ...]:
        """No two are the same."""
        return b"token", self._rng.randbytes(16), b"body", self._rng.randbytes(self._rng.choice([0, 10, 300]))

    # -- the shared one ----------------------------------------------------------------------------------------------

    def _work_shared(self, wire: Wire) -> None:
        taken: set[bytes] = set()
        self.in_flight_shared = []
        for _ in range(self._how_many()):
            self.in_flight_shared.append(self._some_shared_command(taken))
            taken.update(self.in_flight_shared[-1])
        wire.send_raw(_packed(self.in_flight_shared))
        while self.in_flight_shared:
            answer, words = wire.read(), self.in_flight_shared[0]
            self.shared.note(words, answer, self.consumer)
            if words[0] == b"XADD":
                self._own.append(id_of(answer))
            del self.in_flight_shared[0]
            self.answered += 1

    def _some_shared_command(self, taken: set[bytes]) -> Words:
        """Acknowledges nothing that is in ``taken``: nobody knows what is answered to that."""
        rng, shared, act = self._rng, self.shared, self._rng.random()
        if act < 0.2:
            count = b"%d" % rng.choice([1, 5, 30])
            return (b"XREADGROUP", b"GROUP", ALL, self.consumer, b"COUNT", count, b"STREAMS", SHARED, b">")
        if act < 0.4 and (mine := [text for text in shared.pending_for(self.consumer) if text not in taken]):
            at = rng.randrange(len(mine))
            return (b"XACK", SHARED, ALL, *mine[at : at + rng.choice([1, 5])])
        if act < 0.5 and self._own:
            return (b"XDEL", SHARED, *(text_of(self._own.pop()) for _ in range(min(len(self._own), 2))))
        if act < 0.53 and shared.old and self.consumer == b"c0":
            return (b"XTRIM", SHARED, b"MINID", b"=", text_of(rng.choice(shared.old)))
        return (b"XADD", SHARED, b"*", *self._fields())


def _packed(commands: list[Words]) -> bytes:
    return b"".join(
        b"*%d\r\n%b" % (len(words), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
        for words in commands
    )


def _behind(last: Id, rng: random.Random) -> bytes:
    return text_of((last[0], last[1] + rng.choice([1, 1, 7])))


def _some(rng: random.Random, ids: list[Id], most: int) -> Iterator[bytes]:
    return map(text_of, rng.sample(ids, min(len(ids), rng.randint(1, most))))


# -- when the server is back -----------------------------------------------------------------------------------------


def reconcile(client: Client, wire: Wire) -> None:
    """Hold the topic of a client to what it was told; then know what became of what was in flight."""
    now = found(wire, client.model.key)
    ids = {tuple(fields): id for id, fields in now.entries.fields.items()}
    after = client.model.copy()
    entries, groups = [after.entries.copy()], [after.copy_groups()]
    for number, words in enumerate(client.in_flight):
        lost = (1 << 62) + number, 0  # an id that the server forgot: behind all it has
        made = ids.get(words[-4:], lost) if words[0] == b"XADD" else None
        after.run(words, made)
        if words[0] in OF_TOPIC:
            entries.append(after.entries.copy())
        else:
            groups.append(after.copy_groups())
    told = f"{client.name} {client.in_flight}"
    assert now.entries in entries, f"{told}: the entries are not as was answered: {differences(now, client.model)}"
    cut = [{name: group.cut(now.entries.last) for name, group in state.items()} for state in groups]
    assert now.groups in cut, f"{told}: the groups are not as was answered: {differences(now, client.model)}"
    client.model.entries, client.model.groups, client.in_flight = now.entries, now.groups, []


def differences(now: Model, told: Model) -> str:
    """For who has to find out. What was in flight may be among them."""
    views: list[dict[str, object]] = [
        {
            "last, added, deleted": (model.entries.last, model.entries.added, model.entries.max_deleted),
            **{f"entry {id}": fields for id, fields in model.entries.fields.items()},
            **{f"group {name!r}": group.last for name, group in model.groups.items()},
            **{f"{name!r} {id}": who for name, group in model.groups.items() for id, who in group.pending.items()},
        }
        for model in (told, now)
    ]
    mine, theirs = views
    lines = [
        f"{what}: told {mine.get(what)}, found {theirs.get(what)}"
        for what in dict.fromkeys([*mine, *theirs])
        if mine.get(what) != theirs.get(what)
    ]
    return "\n".join(lines[:20])
