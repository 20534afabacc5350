"""Whatever happens to a file of a store that was closed in order: if it is refused, or shows anything else than before,
``verify`` has said so with file and byte.

Each file in turn is removed, cut at and between its records, flipped, zeroed by the sector, and replaced by each older
copy of itself. ``LAMINA_CAMPAIGN=10`` tries ten times as many places.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import pytest

from crash.store_story import FOLDER, Story, open_engine, story
from lamina.clock import ManualClock
from lamina.engines.store import as_of, epoch_file, looking
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.repairing import repair
from lamina.engines.store.verifying import VerifyReport, verify
from lamina.errors import Corruption, LaminaError, TooOld, WrongFormat
from lamina.log import kernel
from lamina.log.formats import EPOCH
from lamina.log.naming import parse
from lamina.testing import MemoryFiles
from store_model import Picture, seen_in

PLACES = 3 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
"""Of each kind of damage in one file that are tried at random."""

Contents = dict[str, bytes]


class Shown(NamedTuple):
    """All that a store shows."""

    now: Picture
    last_epoch: int
    earlier: tuple[Picture | str | None, ...]
    """As of each epoch; None: too old; or how that is refused."""
    moments: tuple[tuple[int, int], ...] | str
    """(time, epoch): when each became durable, as far back as epochs can be read."""


class Case(NamedTuple):
    """A store at rest."""

    contents: Contents
    older: dict[str, list[bytes]]
    """Other contents that each file had before, under the same name."""
    shown: Shown


# -- stories ---------------------------------------------------------------------------------------------------------


class Told:
    """A story, and what every file was in the course of it."""

    def __init__(self, name: str) -> None:
        self.story = story(name)
        self.older: dict[str, list[bytes]] = {}

    def keep(self) -> None:
        for path, data in self.story.disk.contents().items():
            versions = self.older.setdefault(path, [])
            if data not in versions:
                versions.append(data)

    def __call__(self, *acts: Callable[[Story], object]) -> None:
        for act in acts:
            self.story.clock.advance(0.5)
            act(self.story)
            self.keep()


def puts(number: int) -> Callable[[Story], None]:
    def act(told: Story) -> None:
        told.put(0, **{f"k{number}": "v" * 300, "gone": "x", "stays": f"{number}"})
        told.put(1, gone=None)
        with told.begin(number % 3) as session:
            session.put(2, b"in a storage", b"%d" % number)
            session.add_storage(3)
            session.remove_storage(3 + number % 2)
        told.sessions.clear()
        told.switch()

    return act


def void_by_a_crash(told: Story) -> None:
    told.put(0, never="durable")
    told.put(1, stays="never")
    told.write_out(0)
    told.write_out(1)
    told.kill()


def begin(told: Told) -> None:
    for number in range(3):
        told(puts(number))
    told(Story.compact, puts(3), void_by_a_crash, puts(4), Story.rotate, puts(5), Story.restart, puts(6))


def closed(told: Told) -> None:
    told(Story.close)


def compacted(told: Told) -> None:
    told(Story.compact, puts(7), Story.compact, puts(8), Story.close)


def cleaned(told: Told) -> None:
    told(Story.compact, puts(7), Story.compact, puts(8), lambda told: told.clean_up(), puts(9), Story.close)


def cleaned_in_part(told: Told) -> None:
    told(Story.compact, puts(7), lambda told: told.clean_up(told.engine.last_epoch - 1), puts(8), Story.compact)
    told(lambda told: told.clean_up(told.engine.catalog.epoch - 1), puts(9), Story.close)


def restarted_idle(told: Told) -> None:
    cleaned(told)
    told(Story.open, Story.close, Story.open, Story.close)


def cleaned_twice(told: Told) -> None:
    """Nothing that is there names the files that are gone."""
    told(Story.compact, lambda told: told.clean_up(), Story.restart, puts(7))
    told(Story.compact, lambda told: told.clean_up(), Story.restart, puts(8), Story.close)


def rotated(told: Told) -> None:
    told(Story.rotate, puts(7), Story.rotate, Story.close)


def void_in_the_last_run(told: Told) -> None:
    told(void_by_a_crash, puts(7), puts(8), Story.close)


def void_at_last(told: Told) -> None:
    told(void_by_a_crash, Story.close)


_ENDINGS = (
    closed,
    compacted,
    cleaned,
    cleaned_in_part,
    restarted_idle,
    cleaned_twice,
    rotated,
    void_at_last,
    void_in_the_last_run,
)
ENDINGS = {end.__name__: end for end in _ENDINGS}


@cache
def case(ending: str) -> Case:
    told = Told(ending)
    begin(told)
    ENDINGS[ending](told)
    contents = told.story.disk.contents()
    older = {path: [each for each in told.older[path] if each != data] for path, data in contents.items()}
    shown = show(contents)
    assert isinstance(shown, Shown)
    return Case(contents, older, shown)


# -- damage ----------------------------------------------------------------------------------------------------------


def ends_of_records(data: bytes) -> list[int]:
    found = kernel.scan(data, 8, len(data)) if len(data) > 8 else None
    if found is None:
        return []
    return [offset + length + 4 for offset, length in zip(found.offsets, found.lengths, strict=True)]


def payloads(data: bytes) -> list[bytes]:
    """Of an epoch file, without the kernel's marks."""
    found = kernel.scan(data, 8, len(data)) if len(data) > 8 else None
    if found is None:
        return []
    all_of_it = [data[offset : offset + length] for offset, length in zip(found.offsets, found.lengths, strict=True)]
    return [payload for payload in all_of_it if not EPOCH.is_mark(payload)]


def damages(case: Case, path: str, rng: random.Random) -> Iterator[tuple[str, bytes | None]]:
    data = case.contents[path]
    yield "removed", None
    for number, older in enumerate(case.older[path]):
        yield f"replaced by older copy {number} of {len(older)} bytes", older
    ends = ends_of_records(data)
    last, some = ends[-4:], rng.sample(ends[:-4], min(PLACES, len(ends[:-4])))
    cuts = {0, 7, 8, len(data) - 1, *last, *(end + 3 for end in last), *some, *(end - 5 for end in some)}
    for cut in sorted(cut for cut in cuts if 0 <= cut < len(data)):
        yield f"cut to {cut} of {len(data)}", data[:cut]
    flips = [rng.randrange(len(data)) for _ in range(2 * PLACES)] if data else []
    for at in [*flips, *(min(end + 20, len(data) - 1) for end in last)]:
        flipped = bytearray(data)
        flipped[at] ^= 1 << rng.randrange(8)
        yield f"a bit of byte {at} of {len(data)} flipped", bytes(flipped)
    sectors = [start for start in range(0, len(data), 512) if any(data[start : start + 512])]
    for start in {*sectors[-2:], *rng.sample(sectors, min(PLACES, len(sectors)))}:
        yield f"zeros from byte {start}", data[:start] + bytes(len(data[start : start + 512])) + data[start + 512 :]


def damaged(case: Case, path: str, data: bytes | None) -> Contents:
    others = {each: content for each, content in case.contents.items() if each != path}
    return others if data is None else {**others, path: data}


def is_a_file(path: str) -> bool:
    """What the store's own records speak of: no lock, no hint, nothing that was put aside."""
    name = path.rpartition("/")[2]
    return parse(name) is not None or name.startswith("compaction_catalog")


# -- looking ---------------------------------------------------------------------------------------------------------


def show(contents: Contents, *, is_all: bool = True) -> Shown | LaminaError:
    """Everything that is served, or how it is refused. An error of another kind fails the test.

    ``is_all``: as of earlier, too.
    """
    files = MemoryFiles(contents)
    try:
        with looking.look(MemoryFiles(contents), FOLDER) as looked:
            now = seen_in(looked.snapshot)
    except (Corruption, WrongFormat) as error:
        with pytest.raises((Corruption, WrongFormat)):  # what one refuses the other does not serve
            seen_in(open_engine(files, ManualClock()).snapshot())
        return error
    engine = open_engine(files, ManualClock())
    assert seen_in(engine.snapshot()) == now
    if not is_all:
        return Shown(now, engine.last_epoch, (), ())
    moments: tuple[tuple[int, int], ...] | str
    try:
        history = epoch_file.history(MemoryFiles(contents), FOLDER, files.list(FOLDER))
    except (Corruption, WrongFormat) as error:
        moments = str(error)
    else:
        oldest = as_of.readable(engine)[0].epoch
        voids = {epoch for first, last in engine.voids for epoch in range(first, last + 1)}
        firsts = {epoch: at for at, epoch in sorted(history, reverse=True) if epoch > oldest and epoch not in voids}
        moments = tuple((time_ns, epoch) for epoch, time_ns in sorted(firsts.items()))
    earlier = tuple(as_of_epoch(engine, epoch) for epoch in range(1, engine.last_epoch + 1))
    return Shown(now, engine.last_epoch, earlier, moments)


def as_of_epoch(engine: StoreEngine, epoch: int) -> Picture | str | None:
    try:
        return seen_in(as_of.as_of_epoch(engine, epoch))
    except TooOld:
        return None
    except (Corruption, WrongFormat) as error:
        return str(error)


def reports(contents: Contents) -> tuple[VerifyReport, VerifyReport]:
    deep, quick = verify(MemoryFiles(contents), FOLDER), verify(MemoryFiles(contents), FOLDER, is_quick=True)
    for damage in (*deep.damage, *quick.damage):
        assert damage.file and 0 <= damage.offset <= damage.end and damage.reason
    return deep, quick


# -- promises --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_store_that_was_closed_in_order_is_sound(ending: str) -> None:
    for report in reports(case(ending).contents):
        assert report.damage == [] and report.torn == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_that_happens_to_a_file_is_silent(ending: str) -> None:
    whole = case(ending)
    rng = random.Random(f"{ending} {PLACES}")
    outcomes: dict[str, int] = {}
    for path in sorted(filter(is_a_file, whole.contents)):
        for what, data in damages(whole, path, rng):
            contents = damaged(whole, path, data)
            outcome = judged(whole, contents, f"{path} ({ending}): {what}", path, data)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes["refused"] > 50 and outcomes["right"] > 5, outcomes


def judged(whole: Case, contents: Contents, label: str, path: str, data: bytes | None) -> str:
    deep, quick = reports(contents)
    shown = show(contents, is_all=not deep.damage)
    if isinstance(shown, LaminaError):
        assert not deep.is_sound, f"{label}: refused ({shown}), and verify finds nothing"
        return "refused"
    assert quick.is_sound, f"{label}: quickly it is called damaged, and it is served: {quick.damage}"
    if shown == whole.shown:
        return "right"
    if deep.damage and shown[:2] == whole.shown[:2]:
        return "told, and right now"
    what = [
        f"{name}: {now!r}, and was {was!r}"
        for name, was, now in zip(Shown._fields, whole.shown, shown, strict=True)
        if was != now
    ]
    is_former = "compaction_catalog." in path and data is None  # as after clean-up: reads reach less far back
    assert shown[:2] == whole.shown[:2] and is_former, f"{label}: served otherwise: {what}; verify: {deep.damage}"
    return "a former catalog is gone"


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_repair_puts_back_all_that_the_newest_epoch_file_lost(ending: str) -> None:
    whole = case(ending)
    path = f"{FOLDER}/epoch"
    rng = random.Random(ending)
    for what, data in damages(whole, path, rng):
        contents = damaged(whole, path, data)
        if verify(MemoryFiles(contents), FOLDER).is_sound:
            continue
        files = MemoryFiles(contents)
        report = repair(files, FOLDER, ManualClock())
        assert report.is_sound and report.done and not report.lost, f"{what}: {report}"
        assert verify(files, FOLDER).is_sound
        shown = show(files.contents())
        assert isinstance(shown, Shown) and (shown.now, shown.last_epoch) == whole.shown[:2], what
        kept = [each for each in files.contents() if each.startswith(f"{path}.broken-")]
        assert kept or {*payloads(data or b"")} <= {*payloads(files.contents()[path])}, f"{what}: it is not kept"


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_repair_of_the_catalog_loses_nothing_or_is_left(ending: str) -> None:
    whole = case(ending)
    path = f"{FOLDER}/compaction_catalog"
    for what, data in damages(whole, path, random.Random(ending)):
        contents = damaged(whole, path, data)
        if verify(MemoryFiles(contents), FOLDER).is_sound:
            continue
        files = MemoryFiles(contents)
        report = repair(files, FOLDER, ManualClock())
        shown = show(files.contents())
        if report.is_sound:
            assert isinstance(shown, Shown) and shown.now == whole.shown.now, what
        else:
            assert isinstance(shown, LaminaError), what
