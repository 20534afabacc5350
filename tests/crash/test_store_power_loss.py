"""No power cut and no kill, at any operation of the store, breaks a promise: nothing durable is lost, nothing removed
or void comes back, an epoch is there on all channels or on none, and no disk that a crash leaves is refused.

``LAMINA_CAMPAIGN=10`` looks at ten times as many disks.
"""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from crash.store_scenes import scripts
from crash.store_story import FOLDER, open_engine, story
from lamina.clock import ManualClock
from lamina.engines.store.importing import import_entries
from lamina.errors import StorageError
from lamina.log.files.faulty import FaultyFiles
from lamina.testing import PowerLoss
from lamina.testing.powerloss import Model
from store_model import seen_in

CAMPAIGN = int(os.environ.get("LAMINA_CAMPAIGN", "0"))
STORIES = 2 * CAMPAIGN or 1
PER_POINT = 4 + CAMPAIGN if CAMPAIGN else 3
SCENES = dict(scripts())


@pytest.mark.parametrize("model", ["strict", "journalled"])
@pytest.mark.parametrize("scene", SCENES)
def test_no_power_cut_at_any_operation_of(scene: str, model: Model) -> None:
    told = story(scene, model)
    since = SCENES[scene](told)
    assert told.check(since=since, per_point=PER_POINT, follows=0.05) > 20


def test_no_power_cut_behind_a_catalog_whose_sync_failed() -> None:
    """It may not be there after all: what it calls merged must not be removed before it is known to be."""
    told = story("sync failed")
    told.put(0, a="1", b="2")
    told.put(1, c="3")
    told.switch()
    faulty = FaultyFiles(told.disk)
    told.engine.files = faulty
    faulty.before = lambda operation, path: fail_behind_the_catalog(faulty, operation)
    with pytest.raises(StorageError):
        told.compact()
    assert told.engine.catalog.generation == 1, "it is the catalog, as far as anyone can see"
    faulty.before = lambda operation, path: None
    faulty.heal()
    with suppress(StorageError):
        told.clean_up()
    told.put(0, a=None)
    told.switch()
    assert told.check(per_point=20, follows=0.02) > 100


@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_no_power_cut_of_an_import_and_of_what_follows(model: Model) -> None:
    disk = PowerLoss(model=model)
    entries = [(1, b"%02d" % number, b"v" * 150) for number in range(20)]
    import_entries(disk, entries, 7, FOLDER, clock=ManualClock(), part_bytes=1024)
    disk.note("imported")
    engine = open_engine(disk, ManualClock())
    with engine.channel(0).begin() as session:
        session.remove(1, b"03")
        session.put(1, b"new", b"1")
    engine.switch_epoch()
    disk.note("changed")
    whole = tuple(((storage, key), value) for storage, key, value in entries)
    changed = (*(entry for entry in whole if entry[0][1] != b"03"), ((1, b"new"), b"1"))
    count = 0
    for state in disk.states(per_point=6):
        count += 1
        found = seen_in(open_engine(state.files, ManualClock()).snapshot())[0]
        may_be = (
            [changed] if "changed" in state.notes else [whole, changed] if "imported" in state.notes else [(), whole]
        )
        assert found in may_be, f"{state.label}: {state.notes}"
    assert count > 60


def fail_behind_the_catalog(faulty: FaultyFiles, operation: str) -> None:
    renamed = [path for kind, path in faulty.calls if kind == "rename"]
    if operation == "sync_folder" and renamed and renamed[-1].endswith("compaction_catalog.tmp") and not faulty.faults:
        faulty.fail("sync_folder")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_no_power_cut_breaks_a_promise(model: Model) -> None:
    count = 0
    for number in range(STORIES):
        count += story(f"{model} {number}", model).go_on(25).check(per_point=3, share=0.5, follows=0.05)
    assert count > 100 * STORIES
