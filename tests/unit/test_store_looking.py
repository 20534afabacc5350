"""Looking at a store without its lock: what is durable is seen, nothing is changed, whatever is written meanwhile."""

from __future__ import annotations

import pytest

from lamina.engines.store.looking import Looked, epoch_at, look
from lamina.errors import BadEntry, Corruption, DiskError, TooOld
from lamina.log.files import Files
from lamina.log.formats import EPOCH
from lamina.testing import MemoryFiles
from store_lab import FOLDER, StoreLab


def words(looked: Looked, storage: int = 1) -> dict[str, str]:
    found = {each.key.decode(): each.value.decode() for each in looked.snapshot.scan(storage)}
    for key, value in found.items():
        entry = looked.snapshot.entry(storage, key.encode())
        assert entry is not None and entry.value == value.encode()
    return found


def seen(files: Files, *, epoch: int | None = None, time_ns: int | None = None) -> dict[str, str]:
    with look(files, FOLDER, epoch=epoch, time_ns=time_ns) as looked:
        return words(looked)


def written() -> StoreLab:
    """Epochs 1 to 4 on two channels, the last of them is not durable."""
    lab = StoreLab()
    lab.s(0, 1, a="1", b="1")
    lab.s(1, 2, a="2", c="2")
    lab.s(0, 3, b=None, d="3")
    lab.sw(4)
    lab.s(1, 4, a="4")
    lab.flush()
    return lab


def test_what_is_durable_is_seen_beside_the_writer_and_nothing_is_changed() -> None:
    lab = written()
    before = lab.disk.contents()
    with look(lab.files, FOLDER) as looked:
        assert words(looked) == {"a": "2", "c": "2", "d": "3"}
        assert (looked.epoch, looked.durable) == (3, 3)
    assert lab.disk.contents() == before
    assert not [call for call in lab.files.calls if call[0] == "lock" and "lamina.lock" not in call[1]]
    lab.sw(5)
    assert seen(lab.files)["a"] == "4"


def test_epochs_that_a_crash_made_void_are_never_seen() -> None:
    lab = written()
    lab.crash()
    assert seen(lab.files) == {"a": "2", "c": "2", "d": "3"}
    lab.store = lab.open()
    lab.s(0, None, e="5")
    lab.sw()
    assert seen(lab.files) == {"a": "2", "c": "2", "d": "3", "e": "5"}


@pytest.mark.parametrize("is_compacted", [False, True])
def test_the_past_is_seen_as_it_was(is_compacted: bool) -> None:
    lab = written()
    if is_compacted:
        lab.compact()
    assert seen(lab.files, epoch=0) == {}
    assert seen(lab.files, epoch=1) == {"a": "1", "b": "1"}
    assert seen(lab.files, epoch=2) == {"a": "2", "b": "1", "c": "2"}
    assert seen(lab.files, epoch=3) == {"a": "2", "c": "2", "d": "3"}


def test_a_time_means_the_last_epoch_that_was_durable_then() -> None:
    lab = StoreLab()
    lab.clock.advance(10)
    lab.s(0, 1, a="1")
    lab.sw(2)
    lab.clock.advance(10)
    between = lab.clock.now_ns()
    lab.clock.advance(10)
    lab.s(0, 2, a="2")
    lab.sw(3)
    assert epoch_at(lab.files, FOLDER, between) == 1
    assert seen(lab.files, time_ns=between) == {"a": "1"}
    assert seen(lab.files, time_ns=lab.clock.now_ns() + 1) == {"a": "2"}
    assert epoch_at(lab.files, FOLDER, 1) == 0


def test_what_clean_up_removed_is_too_old_and_what_is_yet_to_come_is_refused() -> None:
    lab = written()
    lab.compact()
    lab.compactions.clean_up()
    with pytest.raises(TooOld):
        look(lab.files, FOLDER, epoch=2)
    with pytest.raises(TooOld):
        look(lab.files, FOLDER, time_ns=1)
    with pytest.raises(BadEntry, match="not durable yet"):
        look(lab.files, FOLDER, epoch=lab.store.last_epoch + 1)


def test_what_does_not_fit_into_memory_is_spilled_elsewhere() -> None:
    lab = StoreLab()
    wanted = {}
    for number in range(300):
        key, value = f"k{number % 200:03d}", f"{number}" * 2000
        lab.s(0, None, **{key: value})
        lab.sw()
        wanted[key] = value
    lab.disk.make_folder("elsewhere")
    before = lab.names()
    with look(lab.files, FOLDER, memory_bytes=100_000, spill_to="elsewhere") as looked:
        assert len(looked.snapshot.layers) > 3
        assert words(looked) == wanted
        assert lab.names() == before
        assert lab.disk.list("elsewhere") == []
    assert any(path.startswith("elsewhere/") for kind, path in lab.files.calls if kind == "create")


def test_damage_is_refused_and_so_is_an_end_that_is_missing() -> None:
    lab = written()
    lab.store.close()
    name = lab.names("pwal_0000")[0]
    whole = bytes(lab.data(name))
    lab.damage(name, 60)
    with pytest.raises(Corruption, match=name):
        look(lab.files, FOLDER)
    lab.put_file(name, whole[:8])
    with pytest.raises(Corruption, match="the end of the file is gone"):
        look(lab.files, FOLDER)


def test_a_file_that_is_gone_is_noticed() -> None:
    lab = written()
    lab.rotate()
    (name,) = lab.rotated("pwal_0000")
    lab.drop(name)
    with pytest.raises(Corruption, match=name):
        look(lab.files, FOLDER)


def test_a_folder_that_is_not_there_and_a_disk_that_fails_are_told() -> None:
    with pytest.raises(DiskError):
        look(MemoryFiles(), "nowhere")
    lab = written()
    lab.files.fail("open", only="epoch", times=100)
    with pytest.raises(DiskError):
        look(lab.files, FOLDER)


def test_an_epoch_file_that_is_rotated_while_it_is_read_is_not_taken_for_an_empty_one() -> None:
    lab = written()
    lab.rotate()  # an earlier epoch file, which would do if there were no later one
    lab.s(0, None, e="6")
    last = lab.sw() - 1
    was_rotated = False

    def meanwhile(operation: str, path: str) -> None:
        nonlocal was_rotated
        if operation == "open" and path == f"{FOLDER}/epoch" and not was_rotated:
            was_rotated = True
            lab.disk.rename(path, f"{path}.{9_000_000_000_000:014d}.{last}")
            lab.put_file("epoch", EPOCH.header)  # its head is not written yet

    lab.files.before = meanwhile
    assert seen(lab.files)["e"] == "6"
    assert was_rotated


@pytest.mark.parametrize("what", ["rotate", "compact", "clean up"])
@pytest.mark.parametrize("epoch", [None, 2])
def test_whatever_a_writer_does_between_two_steps_all_is_seen(what: str, epoch: int | None) -> None:
    """At each call on the disk in turn. A look as of the past may be too old afterwards, but never wrong."""
    right = {"a": "2", "c": "2", "d": "3"} if epoch is None else {"a": "2", "b": "1", "c": "2"}
    number = 0
    while True:
        lab = StoreLab()
        lab.s(0, 1, a="1", b="1")
        lab.compact()  # rotated files and a part, both with a past
        lab.s(1, lab.store.epoch, a="2", c="2")
        second = lab.sw() - 1
        lab.s(0, None, b=None, d="3")
        lab.sw()
        left = number

        def meanwhile(operation: str, path: str, lab: StoreLab = lab) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                if what == "rotate":
                    lab.rotate()
                else:
                    lab.compact()
                if what == "clean up":
                    lab.compactions.clean_up()
                for channel in (0, 1):  # new files under the names of those that were rotated
                    lab.s(channel, None, z="later")
                lab.sw()

        lab.files.before = meanwhile
        try:
            found = seen(lab.files, epoch=None if epoch is None else second)
            if epoch is None:
                found.pop("z", None)
            assert found == right, f"at step {number}"
        except TooOld:
            assert what == "clean up" and epoch is not None
        if left > 0:
            break
        number += 1
    assert number > 10
