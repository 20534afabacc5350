"""Promises of clean-up: what nothing needs is gone, the content is the same, whatever happens on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lamina.engines.store import catalog as catalogs
from lamina.engines.store.catalog import NAME, PROGRESS, Catalog, former_name
from lamina.engines.store.cleaning import clean_up, obsolete
from lamina.errors import Corruption, DiskError, LaminaError
from lamina.testing import FaultyFiles, PowerLoss
from store_folder_lab import FOLDER, Lab, channel_file, content, expected, put, rotated, session

PWALS = ("pwal_0000", "pwal_0001")


def channels(*epochs: int) -> set[str]:
    return {rotated(stream, epoch) for epoch in epochs for stream in PWALS}


def as_of(lab: Lab, base: Catalog, epoch: int) -> bool:
    """All that a read as of ``epoch`` needs, beginning with ``base``, is there."""
    names = lab.names()
    needed = {part.name for part in base.parts}
    for boundary in (10, 20, 30):
        if base.epoch < boundary <= epoch:
            needed |= channels(boundary)
    return base.epoch <= epoch and needed <= names


def test_the_labs_store_is_what_it_says() -> None:
    lab = Lab()
    assert lab.content() == expected()
    lab.compact(20)
    assert lab.content() == expected()
    lab.compact(30)
    assert lab.content() == expected()


def test_nothing_is_removed_before_a_compaction() -> None:
    lab = Lab()
    before = lab.files.contents()
    done = clean_up(lab.files, FOLDER, lab.catalog())
    # The epoch files of rotations are needed only as far as the catalog has not come.
    assert (done.removed, done.bytes, done.kept) == ([], 0, [])
    assert lab.files.contents() == before


def test_merged_files_former_catalogs_and_their_parts_go() -> None:
    lab = Lab()
    lab.compact(10)
    catalog = lab.compact(20)
    before = lab.names()
    sizes = {name: len(lab.get(name)) for name in before}
    done = clean_up(lab.files, FOLDER, catalog)
    gone = channels(10, 20) | {rotated("epoch", 10), rotated("epoch", 20)}
    gone |= {former_name(0), former_name(1), "pwal_compacted.1.0", "pwal_compacted.1.1"}
    assert before - lab.names() == gone == set(done.removed)
    assert done.bytes == sum(sizes[name] for name in gone)
    assert done.catalog == replace(catalog, merged=()) == lab.catalog()
    assert lab.content() == expected()


def test_the_newest_rotated_epoch_file_stays_should_the_active_one_be_lost() -> None:
    lab = Lab()
    catalog = lab.compact(30)
    done = clean_up(lab.files, FOLDER, catalog)
    assert rotated("epoch", 30) in lab.names()
    assert done.catalog.merged == (rotated("epoch", 30),)


def test_cleaning_up_again_removes_nothing() -> None:
    lab = Lab()
    done = clean_up(lab.files, FOLDER, lab.compact(20))
    before = lab.files.contents()
    again = clean_up(lab.files, FOLDER, done.catalog)
    assert (again.removed, again.catalog) == ([], done.catalog)
    assert lab.files.contents() == before


def test_what_would_go_is_told_and_nothing_changed() -> None:
    lab = Lab()
    catalog = lab.compact(20)
    before = lab.files.contents()
    told = obsolete(lab.files, FOLDER, catalog)
    assert lab.files.contents() == before
    sizes = {name: len(lab.get(name)) for name in lab.names()}
    done = clean_up(lab.files, FOLDER, catalog)
    assert [name for name, _ in told] == done.removed
    assert all(size == sizes[name] for name, size in told)


def test_names_of_files_that_somebody_removed_by_hand_leave_the_catalog() -> None:
    lab = Lab()
    catalog = lab.compact(20)
    for name in channels(10):
        lab.drop(name)
    done = clean_up(lab.files, FOLDER, catalog)
    assert lab.catalog().merged == () and not channels(10) & set(done.removed)
    assert lab.content() == expected()


def test_what_somebody_reads_stays_and_is_still_named() -> None:
    lab = Lab()
    lab.compact(10)
    catalog = lab.compact(20)
    kept = {rotated("pwal_0001", 10), "pwal_compacted.1.0", former_name(1), "run.o1"}
    lab.put("run.o1", b"spilled")
    done = clean_up(lab.files, FOLDER, catalog, keep=kept)
    assert kept <= lab.names() and set(done.kept) == kept
    assert done.catalog.merged == (rotated("pwal_0001", 10),)
    assert lab.content() == expected()
    clean_up(lab.files, FOLDER, done.catalog)
    assert not kept & lab.names()


def test_working_files_and_parts_that_nobody_names_go() -> None:
    lab = Lab()
    catalog = lab.compact(10)
    strays = {"run.0", "run.o3", "run.2.1", "pwal_compacted.2.0", "pwal_compacted.1.7"}
    for name in strays:
        lab.put(name, b"stray")
    done = clean_up(lab.files, FOLDER, catalog)
    assert strays <= set(done.removed) and not strays & lab.names()


def test_parts_and_runs_of_an_unfinished_compaction_stay() -> None:
    lab = Lab()
    catalog = lab.compact(10)
    for name in ("pwal_compacted.2.0", "pwal_compacted.2.1", "run.2.4"):
        lab.put(name, b"half done")
    lab.put(PROGRESS, b"lamina compaction progress 1\npart pwal_compacted.2.0 10\nrun run.2.4\n")
    clean_up(lab.files, FOLDER, catalog)
    assert {"pwal_compacted.2.0", "run.2.4", PROGRESS} <= lab.names()
    assert "pwal_compacted.2.1" not in lab.names()


def test_files_that_are_not_the_stores_stay() -> None:
    lab = Lab()
    catalog = lab.compact(20)
    foreign = {"notes.txt", "running", "pwal_compacted.x", "lamina.lock", "pwal_0000.torn-20261115T061700.123456789Z"}
    for name in foreign:
        lab.put(name, b"mine")
    clean_up(lab.files, FOLDER, catalog)
    assert foreign <= lab.names()


def test_a_rotated_file_that_the_catalog_does_not_name_stays() -> None:
    lab = Lab()
    catalog = lab.compact(20)
    odd = "pwal_0007.01700000000005.5"
    lab.put(odd, channel_file(session(5, put(b"odd", b"odd", 5))))
    clean_up(lab.files, FOLDER, catalog)
    assert odd in lab.names()


# -- how far back reads reach ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "base_generation"),
    [(0, 0), (5, 0), (9, 0), (10, 1), (15, 1), (19, 1), (20, 2), (25, 2), (30, 3), (99, 3)],
)
def test_reads_as_of_an_epoch_stay_possible(epoch: int, base_generation: int) -> None:
    lab = Lab()
    for boundary in (10, 20, 30):
        catalog = lab.compact(boundary)
    done = clean_up(lab.files, FOLDER, catalog, keep_after_epoch=epoch)
    base = done.catalog if base_generation == 3 else catalogs.load_former(lab.files, FOLDER, base_generation)
    assert base is not None
    for later in range(max(epoch, base.epoch), 31):
        assert as_of(lab, base, later)
    others = {former_name(generation) for generation in (0, 1, 2) if generation != base_generation}
    assert not others & lab.names(), "only the catalog that reads begin with is kept"
    assert not channels(*(boundary for boundary in (10, 20, 30) if boundary <= base.epoch)) & lab.names()
    assert lab.content() == expected()


def test_keeping_more_than_there_is_keeps_what_there_is() -> None:
    lab = Lab()
    clean_up(lab.files, FOLDER, lab.compact(10))
    lab.compact(20)
    catalog = lab.compact(30)
    done = clean_up(lab.files, FOLDER, catalog, keep_after_epoch=3)
    base = catalogs.load_former(lab.files, FOLDER, 1)
    assert base is not None and as_of(lab, base, 30) and as_of(lab, base, 10)
    assert set(done.kept) >= channels(20, 30)


def test_a_former_catalog_from_which_nothing_can_be_read_is_not_kept_for_reading() -> None:
    lab = Lab()
    lab.compact(10)
    lab.drop("pwal_compacted.1.1")
    lab.compact(20)
    lab.put(former_name(0), b"torn")
    catalog = lab.compact(30)
    clean_up(lab.files, FOLDER, catalog, keep_after_epoch=5)
    assert {name for name in lab.names() if name.startswith(NAME + ".")} == {former_name(2)}


# -- when something is wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_nothing_is_removed_while_a_part_is_not_what_it_should_be(damage: str) -> None:
    lab = Lab()
    catalog = lab.compact(20)
    name = catalog.parts[1].name
    if damage == "missing":
        lab.drop(name)
    else:
        lab.put(name, lab.get(name)[:-1])
    before = lab.files.contents()
    with pytest.raises(Corruption, match=name):
        clean_up(lab.files, FOLDER, catalog)
    assert lab.files.contents() == before


def test_a_catalog_that_is_not_the_present_one_is_refused() -> None:
    lab = Lab()
    old = lab.compact(10)
    lab.compact(20)
    before = lab.files.contents()
    with pytest.raises(ValueError, match="generation 1"):
        clean_up(lab.files, FOLDER, old)
    assert lab.files.contents() == before


def count_calls(operation: str) -> int:
    lab = Lab()
    lab.compact(10)
    catalog = lab.compact(20)
    files = FaultyFiles(lab.files)
    clean_up(files, FOLDER, catalog)
    return sum(called == operation for called, _ in files.calls)


@pytest.mark.parametrize("operation", ["remove", "sync_folder", "create", "append", "sync", "rename", "list", "open"])
def test_a_failing_disk_at_any_point_leaves_the_same_content_and_it_goes_on(operation: str) -> None:
    for nth in range(1, count_calls(operation) + 1):
        lab = Lab()
        lab.compact(10)
        catalog = lab.compact(20)
        files = FaultyFiles(lab.files)
        files.fail(operation, nth=nth)
        try:
            clean_up(files, FOLDER, catalog)
        except LaminaError as error:
            assert isinstance(error, DiskError)
        assert lab.content() == expected(), (operation, nth)
        clean_up(lab.files, FOLDER, lab.catalog())
        assert not channels(10, 20) & lab.names() and lab.catalog().merged == ()


@pytest.mark.parametrize("model", ["strict", "journalled"])
@pytest.mark.parametrize("keep_after_epoch", [None, 15])
def test_a_power_cut_at_any_point_leaves_the_same_content(model: str, keep_after_epoch: int | None) -> None:
    lab = Lab()
    lab.compact(10)
    lab.compact(20)
    catalog = lab.compact(30)
    files = PowerLoss(lab.files.contents(), model=model)  # type: ignore[arg-type]
    clean_up(files, FOLDER, catalog, keep_after_epoch=keep_after_epoch)
    seen = 0
    for state in files.states(per_point=40):
        seen += 1
        assert content(state.files) == expected(), state.label
        after = Lab.__new__(Lab)
        after.files = state.files
        for name in after.names():
            generation = catalogs.former_generation(name)
            former = None if generation is None else catalogs.load_former(state.files, FOLDER, generation)
            if former is not None:
                assert as_of(after, former, 30), f"{name} is there without what it needs: {state.label}"
    assert seen > 10
