"""Damage of every kind in the folder of a queue that was closed in order.

Nothing intact is lost, altered, or cut for good, and whoever verifies the folder learns of whatever makes a difference.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from journal_lab import LOSS, JournalLab, number_of
from lamina.engines.queues.journal import records
from lamina.engines.queues.journal.verify import Verified, verify
from lamina.errors import WrongFormat
from lamina.log import kernel
from lamina.log.files import join
from lamina.testing import MemoryFiles

TRIALS = 400 * int(os.environ.get("LAMINA_CAMPAIGN", "0") or 1)
LOG = "queue.log"


@dataclass
class Closed:
    """A folder as it was left, and what waits in it."""

    contents: dict[str, bytes]
    waiting: list[int]
    sent: int
    bodies: dict[int, bytes] = field(default_factory=dict)

    def lab(self, contents: dict[str, bytes]) -> JournalLab:
        lab = JournalLab(MemoryFiles(), quota=100, max_file_messages=200, open_lines=16)
        folder = lab.folder
        lab.disk.inner.make_folder(folder)
        for name, data in contents.items():
            lab.put_content(name, data)
        return lab


def closed(kind: str) -> Closed:
    """``one``: a file, partly received. ``two``: reading one, writing another. ``short``: queue.log of one line."""
    options = {"two": {"quota": 5, "max_file_messages": 6}}.get(kind, {"quota": 100, "max_file_messages": 200})
    lab = JournalLab(open_lines=16, **options)
    bodies = {}
    for number in range(1, 7):
        bodies[number] = b"body number %d" % number
        lab.put(bodies[number])
    received = [lab.receive() for _ in range(2)]
    for number in (7, 8):
        bodies[number] = b"body number %d" % number
        lab.put(bodies[number])
    if kind == "short":
        lab.put()
        bodies[9] = b"body"
        folder = lab.store._queues.folder(lab.queue)
        folder.compact()
    lab.store.close()
    names = [name for name in lab.names() if name == LOG or records.NAME.fullmatch(name)]
    if kind == "two":
        names += lab.copies()
        assert len(lab.message_files()) == 2
    waiting = [number for number in bodies if number not in received]
    return Closed({name: lab.content(name) for name in names}, waiting, len(bodies), bodies)


KINDS = {kind: closed(kind) for kind in ("one", "two", "short")}


@dataclass
class Outcome:
    """What opening a damaged folder came to."""

    got: list[int]
    verified: Verified
    problems: list[str]
    after: dict[str, bytes]


def opened(kind: str, contents: dict[str, bytes]) -> Outcome:
    was = KINDS[kind]
    lab = was.lab(contents)
    verified = verify(lab.disk.inner, lab.folder)
    got, bodies = [], []
    while (message := lab.store.head(lab.queue)) is not None:
        got.append(number_of(message))
        if not message.is_loss:
            bodies.append((number_of(message), message.body))
        if len(got) == 1:  # before anything is received: all that there was is still there
            after = {name: lab.content(name) for name in lab.names()}
        lab.store.settle(lab.store.drop_head(lab.queue))
    if not got:
        after = {name: lab.content(name) for name in lab.names()}
    for number, body in bodies:
        assert body == was.bodies[number], "served altered"
    return Outcome(got, verified, [str(problem) for problem in lab.problems], after)


def intact(kind: str, contents: dict[str, bytes]) -> set[int]:
    """The messages whose records are still whole, wherever they stand."""
    was = KINDS[kind]
    whole = b"".join(data for name, data in contents.items() if records.NAME.fullmatch(name))
    found = set()
    for name, data in was.contents.items():
        if records.NAME.fullmatch(name):
            batch = kernel.scan(data, 8, len(data))
            at = 8
            for offset, length in zip(batch.offsets, batch.lengths, strict=True):
                record, at = data[at : offset + length + 4], offset + length + 4
                message = records.decode(data[offset : offset + length])
                assert message is not None
                if record in whole:
                    found.add(number_of(message))
    return found


def check(kind: str, contents: dict[str, bytes], label: str) -> Outcome:
    was = KINDS[kind]
    found = opened(kind, contents)
    missing = [number for number in was.waiting if number not in found.got]
    assert not set(missing) & intact(kind, contents), f"{label}: lost {missing}, though whole; {found.problems}"
    assert not missing or LOSS in found.got, f"{label}: {missing} lost, and the recipient was not told"
    real = [number for number in found.got if number != LOSS]
    assert real == sorted(set(real)), f"{label}: out of order, or twice: {found.got}"
    assert set(real) <= set(was.bodies), f"{label}: {found.got}"
    if found.got != was.waiting:
        assert found.verified.bad, f"{label}: {found.got} in place of {was.waiting}, and verify says nothing"
        assert found.problems, f"{label}: {found.got} in place of {was.waiting}, and the server says nothing"
    if LOSS in found.got or missing:
        assert found.verified.damage or found.verified.torn, label
    # Cut nothing without keeping it: every message file that was there is still there, or its bytes are.
    kept = b"".join(found.after.values())
    for name, data in contents.items():
        if records.NAME.fullmatch(name) and len(data) > 8:
            assert data[8:] in kept or _in_pieces(data, name, found.after), f"{label}: bytes of {name} are gone"
    return found


def _in_pieces(data: bytes, name: str, after: dict[str, bytes]) -> bool:
    """A head that stayed, and a tail that was kept beside it."""
    stayed = after.get(name, b"")
    tails = [kept for other, kept in after.items() if other.startswith(f"{name}.")]
    return any(data == stayed[: len(data) - len(tail)] + tail for tail in tails)


def flips(kind: str, file: str) -> Iterator[tuple[str, int, int]]:
    for name, data in KINDS[kind].contents.items():
        if (name == LOG) is (file == LOG) and (name == LOG or records.NAME.fullmatch(name)):
            for at in range(len(data)):
                yield name, at, 1 << (at * 7 + len(name)) % 8


@pytest.mark.parametrize("file", [LOG, "messages"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_anywhere_loses_nothing_that_is_whole_and_is_reported(kind: str, file: str) -> None:
    was = KINDS[kind]
    for name, at, bit in flips(kind, file):
        data = bytearray(was.contents[name])
        data[at] ^= bit
        try:
            found = check(kind, {**was.contents, name: bytes(data)}, f"{kind}, {name}, byte {at}, bit {bit}")
        except WrongFormat:  # refused: it may be of a later version
            assert name != LOG and 4 <= at < 8
            lab = was.lab({**was.contents, name: bytes(data)})
            assert [(bad.file, bad.offset) for bad in verify(lab.disk.inner, lab.folder).damage] == [(name, 0)]
            continue
        places = [(bad.file, bad.offset, bad.end) for bad in found.verified.damage]
        around = [place for place in places if place[0] == name and place[1] <= at <= max(place[2], place[1] + 1)]
        assert around, f"{kind}, {name}, byte {at}, bit {bit}: verify names {places or found.verified.bad}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_at_any_byte_loses_nothing_that_is_whole_and_is_reported(kind: str) -> None:
    was = KINDS[kind]
    for name, data in was.contents.items():
        if name == LOG or records.NAME.fullmatch(name):
            for at in range(len(data)):
                if name == LOG and data[at - 1 : at] == b"\n":
                    continue  # below
                check(kind, {**was.contents, name: data[:at]}, f"{kind}, {name} cut at byte {at}")


@pytest.mark.parametrize("kind", KINDS)
def test_queue_log_cut_between_two_lines_loses_nothing(kind: str) -> None:
    """What was received since comes again; that nobody can see, unless a message was sent since."""
    was = KINDS[kind]
    for at in [0, *(at + 1 for at, byte in enumerate(was.contents[LOG]) if byte == 10)][:-1]:
        found = opened(kind, {**was.contents, LOG: was.contents[LOG][:at]})
        assert [number for number in found.got if number in was.waiting] == was.waiting
        assert found.verified.bad or set(found.got) >= set(was.waiting)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_not_there_is_damage(kind: str) -> None:
    was = KINDS[kind]
    for name in was.contents:
        if name == LOG or records.NAME.fullmatch(name):
            contents = {other: data for other, data in was.contents.items() if other != name}
            found = check(kind, contents, f"{kind}, without {name}")
            assert name in {bad.file for bad in found.verified.bad}


@pytest.mark.parametrize("kind", KINDS)
def test_zeroed_sectors_and_strange_bytes_lose_nothing_that_is_whole(kind: str) -> None:
    was, chance = KINDS[kind], random.Random(18)
    names = [name for name in was.contents if name == LOG or records.NAME.fullmatch(name)]
    for trial in range(TRIALS):
        name = chance.choice(names)
        data = bytearray(was.contents[name])
        start = chance.randrange(len(data))
        size = min(chance.choice([1, 16, 64, 512]), len(data) - start)
        data[start : start + size] = bytes(size) if chance.random() < 0.5 else chance.randbytes(size)
        if bytes(data) == was.contents[name]:
            continue
        found = check(kind, {**was.contents, name: bytes(data)}, f"{kind}, trial {trial}: {name}, {size} at {start}")
        assert found.verified.bad


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_folder_is_whole(kind: str) -> None:
    was = KINDS[kind]
    found = opened(kind, was.contents)
    assert (found.got, found.verified.bad, found.problems) == (was.waiting, [], [])


def test_whoever_verifies_beside_a_server_is_not_told_of_what_it_is_just_writing() -> None:
    lab = JournalLab(MemoryFiles(), quota=100, max_file_messages=200, open_lines=16)
    lab.put()
    files = lab.disk.inner
    for _ in range(3):
        lab.put()
        assert not verify(files, lab.folder).damage
        lab.receive()
        assert not verify(files, lab.folder).damage
    assert not verify(files, join("messages", "AA")).bad
