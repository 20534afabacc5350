"""A topic and a group that many clients share: what they were told of it together, and whether that is so.

Of what one client does in between the others know nothing, so this oracle does not say how the topic has to be, but
what must be there, what must not, and who may have had a hand in the rest.
"""

from __future__ import annotations

import threading
from typing import Any

from crash.topics_model import NO_ID, Id, Model, Words, found, id_of, text_of
from integration.resp_wire import NULL_ARRAY, Wire

SHARED, ALL = b"shared", b"all"


class Shared:
    """What all clients together know of the topic. Each is a consumer of its one group."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.published: dict[Id, list[bytes]] = {}
        """Everything that was ever added."""
        self.old: list[Id] = []
        """Those of former rounds: only these are trimmed, so that nothing in flight is."""
        self.deleted: set[Id] = set()
        self.oldest: Id = NO_ID
        """A trim left nothing before it."""
        self.delivered: dict[Id, bytes] = {}
        self.acked: set[Id] = set()

    def pending_for(self, consumer: bytes) -> list[bytes]:
        with self.lock:
            return [text_of(id) for id, who in self.delivered.items() if who == consumer and id not in self.acked]

    def note(self, words: Words, answer: Any, consumer: bytes) -> None:
        """A command was answered."""
        with self.lock:
            match words:
                case (b"XADD", _, _, *fields):
                    assert id_of(answer) not in self.published, f"{answer!r} was given twice"
                    self.published[id_of(answer)] = fields
                case (b"XDEL", _, *ids):
                    self.deleted.update(map(id_of, ids))
                case (b"XTRIM", _, _, _, oldest):
                    self.oldest = max(self.oldest, id_of(oldest))
                case (b"XACK", _, _, *ids):
                    assert answer == len(ids), f"{words} was answered {answer}"
                    self.acked.update(map(id_of, ids))
                case (b"XREADGROUP", *_):
                    for text, _ in [] if answer is NULL_ARRAY else answer[0][1]:
                        assert id_of(text) not in self.delivered, f"{text!r} was delivered a second time"
                        self.delivered[id_of(text)] = consumer

    # -- when the server is back -------------------------------------------------------------------------------------

    def reconcile(self, in_flight: dict[bytes, list[Words]], wire: Wire) -> None:
        """Hold the topic to what was told; then know what became of what was in flight, by consumer."""
        now = found(wire, SHARED)
        for commands in in_flight.values():
            self._take_added(commands, now)
        doubtful = self._take_removed([words for commands in in_flight.values() for words in commands], now)
        self._check_entries(now, doubtful)
        self._check_group(in_flight, now, doubtful)
        self.old = list(now.entries.fields)

    def _take_added(self, commands: list[Words], now: Model) -> None:
        ids = {tuple(fields): id for id, fields in now.entries.fields.items()}
        made = [ids.get(words[3:]) for words in commands if words[0] == b"XADD"]
        there = [id for id in made if id is not None]
        assert made == there + [None] * (len(made) - len(there)), "an entry is there, and one sent before it is not"
        assert there == sorted(there), "entries are not in the order in which they were sent"
        self.published |= {id: now.entries.fields[id] for id in there}

    def _take_removed(self, commands: list[Words], now: Model) -> set[Id]:
        """Returns what may have been removed, and was not."""
        there, kept = now.entries.fields, set()
        for words in commands:
            if words[0] not in (b"XDEL", b"XTRIM"):
                continue
            if words[0] == b"XDEL":
                meant = {id for id in map(id_of, words[2:]) if id >= self.oldest}
            else:
                meant = {id for id in self.published if self.oldest <= id < id_of(words[-1])} - self.deleted
            left = {id for id in meant if id in there}
            assert not left or left == meant, f"half of {words} was done: {left} of {meant} are there"
            kept |= left
            self.deleted |= meant - left
        return kept

    def _check_entries(self, now: Model, doubtful: set[Id]) -> None:
        there = now.entries.fields
        expected = {id: fields for id, fields in self.published.items() if id >= self.oldest and id not in self.deleted}
        assert not expected.keys() - there.keys(), f"lost: {sorted(expected.keys() - there.keys())[:5]}"
        assert not there.keys() - expected.keys(), f"nobody's, or back: {sorted(there.keys() - expected.keys())[:5]}"
        assert there == expected, "an entry has other fields"
        assert now.entries.last == max(self.published, default=NO_ID)
        assert now.entries.added == len(self.published)
        assert doubtful <= there.keys()

    def _check_group(self, in_flight: dict[bytes, list[Words]], now: Model, doubtful: set[Id]) -> None:
        group = now.groups[ALL]
        assert not self.delivered.keys() - self.published.keys(), "an entry was shown that is lost"
        assert group.last >= max(self.delivered, default=NO_ID), "the group went back"
        for id, (consumer, deliveries) in group.pending.items():
            if id not in self.delivered:  # a read in flight
                reads = [words for words in in_flight[consumer] if words[0] == b"XREADGROUP"]
                assert reads, f"{text_of(id)!r} was delivered to {consumer!r}, who did not read"
                self.delivered[id] = consumer
            assert (consumer, deliveries) == (self.delivered[id], 1)
        for words in (words for commands in in_flight.values() for words in commands if words[0] == b"XACK"):
            ids = set(map(id_of, words[3:]))
            left = ids & group.pending.keys()
            assert left in (set(), ids), f"half of {words} was done"
            self.acked |= ids - left
        back, lost = self.acked & group.pending.keys(), self.delivered.keys() - self.acked - group.pending.keys()
        assert not back, f"acknowledged, and pending again: {sorted(back)[:5]}"
        assert not lost, f"delivered, not acknowledged, and not pending: {sorted(lost)[:5]}"
        # A deletion that was lost may have been seen by a read that was not: then the group has left the entry out.
        skipped = {id for id in now.entries.fields if id <= group.last} - self.delivered.keys() - doubtful
        assert not skipped, f"never delivered, and the group is past it: {sorted(skipped)[:5]}"
        self.delivered |= {id: b"nobody" for id in doubtful if id <= group.last and id not in self.delivered}
        self.acked |= {id for id, consumer in self.delivered.items() if consumer == b"nobody"}
