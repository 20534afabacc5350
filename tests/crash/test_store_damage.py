"""Flipped bits, missing files and cut files of a store, in every format: what is read is right, or refused by name.

What cannot be told from what a crash leaves is the very last batch of a file that was being written (attest.py). Then
the loss is of whole epochs, and the store says what is void. ``LAMINA_CAMPAIGN=10`` flips ten times as many bits.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from functools import cache
from typing import NamedTuple

import pytest

from crash.store_story import FOLDER, Promises, Story, open_engine, story
from lamina.clock import ManualClock
from lamina.engines.store.catalog import part_generation, rotated_epoch
from lamina.engines.store.engine import StoreEngine
from lamina.errors import Corruption, LaminaError, WrongFormat
from lamina.testing import MemoryFiles
from store_model import Picture, seen_in

FLIPS = 200 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
FORMATS = ["pwal", "epoch", "catalog", "part"]
ENDS = ["killed", "closed", "rotated", "restarted"]


class Folder(NamedTuple):
    """A store that is at rest."""

    contents: dict[str, bytes]
    expected: Picture
    moments: list[Picture]
    """Of each durable epoch."""


def tell(told: Story) -> None:
    for number in range(5):
        told.put(0, **{f"k{number}": "v" * 400, "gone": "x", "stays": f"{number}"})
        told.put(1, gone=None)
        told.switch()
    told.compact()
    told.put(0, k1="newer", k3=None)
    told.put(1, only_here="1" * 300)
    told.switch()
    told.compact()
    told.put(1, not_compacted="2", stays=None)
    told.switch()
    told.rotate()
    told.put(0, k4=None, k5="3" * 300)
    told.put(1, last="4")
    told.switch()
    told.put(0, k4="again", last=None)
    told.switch()


@cache
def folder(ending: str) -> Folder:
    told = story("damage")
    tell(told)
    if ending == "closed":
        told.close()
    elif ending == "rotated":
        told.rotate()
    elif ending == "restarted":
        told.kill()
    promises = Promises(told.ended, [fact for _, fact in told.disk._notes])
    contents = told.disk.contents()
    model = promises.settled(open_engine(MemoryFiles(contents), ManualClock()))
    epochs = sorted({each.epoch for each in model.sessions})
    return Folder(contents, model.now(), [model.at(epoch) for epoch in epochs])


def is_of(name: str, format: str) -> bool:
    if format == "catalog":
        return name == "compaction_catalog"
    if format == "part":
        return part_generation(name) is not None
    return part_generation(name) is None and name.startswith(format) and "." + "index" not in name


def names_of(contents: dict[str, bytes], format: str) -> list[str]:
    return [path for path in sorted(contents) if is_of(path.rpartition("/")[2], format) and contents[path]]


def read(contents: dict[str, bytes], expected: Picture) -> tuple[Picture | None, StoreEngine | LaminaError]:
    """What a damaged folder shows, or how it is refused. An error of another kind fails the test."""
    try:
        engine = open_engine(MemoryFiles(contents), ManualClock())
    except (Corruption, WrongFormat) as error:
        return None, error
    single: dict[tuple[int, bytes], bytes | None] = {}
    for place, _ in expected[0]:
        with suppress(Corruption):
            entry = engine.view.get(*place)
            single[place] = None if entry is None else entry.value
    try:
        found = seen_in(engine.snapshot())
    except Corruption as error:
        assert single.items() <= dict(expected[0]).items(), "a single key is served altered, or lost"
        return None, error
    assert single == {place: dict(found[0]).get(place) for place, _ in expected[0]}, "get and scan differ"
    return found, engine


def check(damaged: dict[str, bytes], whole: Folder, path: str, what: str) -> str:
    """Returns what became of it: refused, right, or (the last batch of an active file only) cut and said so."""
    found, outcome = read(damaged, whole.expected)
    if found is None:
        assert isinstance(outcome, Corruption | WrongFormat)
        assert outcome.file
        return "refused"
    assert isinstance(outcome, StoreEngine)
    if found == whole.expected:
        return "right"
    name = path.rpartition("/")[2]
    assert found in whole.moments, f"{what}: altered, or lost in part"
    assert name in ("epoch", "pwal_0000", "pwal_0001"), f"{what}: lost, though the file was closed"
    assert any("void" in warning for warning in outcome.warnings), f"{what}: lost, and nobody is told"
    return "cut" if found == whole.moments[-2] else "cut by more than the last batch"


@pytest.mark.parametrize("ending", ENDS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_flipped_bit_is_never_served_and_never_silent(format: str, ending: str) -> None:
    whole = folder(ending)
    paths = names_of(whole.contents, format)
    assert paths
    rng = random.Random(f"{format} {ending} {FLIPS}")
    outcomes: dict[str, int] = {}
    for _ in range(FLIPS // 2):
        path = rng.choice(paths)
        data = bytearray(whole.contents[path])
        at, bit = rng.randrange(len(data)), rng.randrange(8)
        data[at] ^= 1 << bit
        what = f"{path} ({ending}), bit {bit} of byte {at} of {len(data)}"
        outcome = check({**whole.contents, path: bytes(data)}, whole, path, what)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    may_be = {"refused", "right"} if ending == "closed" else {"refused", "right", "cut"}
    assert {*outcomes} <= may_be, "after an orderly stop nothing is in doubt, and else the last batch"


@pytest.mark.parametrize("ending", ENDS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_is_gone_is_missed(format: str, ending: str) -> None:
    whole = folder(ending)
    for path in names_of(whole.contents, format):
        damaged = {each: data for each, data in whole.contents.items() if each != path}
        check(damaged, whole, path, f"{path} ({ending}) is gone")


@pytest.mark.parametrize("ending", ENDS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_was_cut(format: str, ending: str) -> None:
    """A file that is the newest of its channel; nothing vouches for the length of those before it."""
    whole = folder(ending)
    rng = random.Random(f"{format} {ending} cut")
    paths = names_of(whole.contents, format)
    if format == "pwal":
        paths = [*{path.partition(".")[0]: path for path in sorted(paths, key=is_active)}.values()]
    for path in paths:
        data = whole.contents[path]
        for size in {0, 7, 8, len(data) - 1, *(rng.randrange(len(data)) for _ in range(FLIPS // 20))}:
            check({**whole.contents, path: data[:size]}, whole, path, f"{path} ({ending}) cut to {size} of {len(data)}")


def is_active(path: str) -> bool:
    return "." not in path


def test_the_folder_has_every_kind_of_file() -> None:
    contents = folder("killed").contents
    for format in FORMATS:
        assert names_of(contents, format)
    active = {f"{FOLDER}/{name}" for name in ("pwal_0000", "pwal_0001", "epoch")}
    rotated = [path for path in contents if rotated_epoch(path.rpartition("/")[2]) is not None]
    assert {path.partition(".")[0] for path in rotated} == active
    assert active <= {*contents}
