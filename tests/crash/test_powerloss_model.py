"""The explorer itself: what it calls possible, and what it must not."""

from __future__ import annotations

from lamina.log.files import write_all
from lamina.testing import PowerLoss

FOLDER = "d"


def made(data: bytes = b"", **more) -> PowerLoss:
    disk = PowerLoss(**more)
    disk.make_folder(FOLDER)
    file = disk.create("d/a")
    if data:
        write_all(file, [data])
    return disk


def at_end(disk: PowerLoss) -> list[dict[str, bytes]]:
    return [state.files.contents() for state in disk.states(per_point=500, at=disk.points)]


def test_an_unsynced_name_may_be_gone_though_the_content_was_synced() -> None:
    disk = made(b"x")
    disk.open("d/a", write=True).sync()
    assert {} in at_end(disk)


def test_a_synced_name_with_synced_content_stays() -> None:
    disk = made(b"x")
    disk.open("d/a", write=True).sync()
    disk.sync_folder(FOLDER)
    assert all(contents == {"d/a": b"x"} for contents in at_end(disk))


def test_unsynced_bytes_may_be_lost_cut_or_zero() -> None:
    disk = made(b"y" * 1500)
    disk.sync_folder(FOLDER)
    found = [contents["d/a"] for contents in at_end(disk)]
    assert b"" in found
    assert b"y" * 512 in found
    assert bytes(1500) in found
    assert any(data.startswith(bytes(512)) and data.endswith(b"y") for data in found), "sectors arrive in any order"
    assert any(len(data) % 512 > 0 for data in found if len(data) < 1500), "cut at a byte"


def test_synced_bytes_are_never_touched() -> None:
    disk = made(b"safe" * 100)
    file = disk.open("d/a", write=True)
    file.sync()
    disk.sync_folder(FOLDER)
    write_all(file, [b"n" * 900])
    for contents in at_end(disk):
        assert contents["d/a"][:400] == b"safe" * 100


def test_a_rename_is_done_or_not_never_both_or_neither() -> None:
    disk = made(b"new")
    disk.open("d/a", write=True).sync()
    disk.sync_folder(FOLDER)
    disk.rename("d/a", "d/b")
    assert {frozenset(contents) for contents in at_end(disk)} == {frozenset({"d/a"}), frozenset({"d/b"})}


def test_a_removal_may_be_undone() -> None:
    disk = made(b"x")
    disk.open("d/a", write=True).sync()
    disk.sync_folder(FOLDER)
    disk.remove("d/a")
    assert {"d/a": b"x"} in at_end(disk)
    assert {} in at_end(disk)


def test_in_a_strict_model_names_change_independently() -> None:
    disk = made()
    disk.create("d/b")
    assert {frozenset(contents) for contents in at_end(disk)} >= {
        frozenset(), frozenset({"d/a"}), frozenset({"d/b"}), frozenset({"d/a", "d/b"})
    }  # fmt: skip


def test_in_a_journalled_model_names_change_in_order_and_a_sync_carries_them() -> None:
    disk = made(model="journalled")
    disk.create("d/b")
    assert frozenset({"d/b"}) not in {frozenset(contents) for contents in at_end(disk)}
    disk.open("d/b", write=True).sync()
    assert {frozenset(contents) for contents in at_end(disk)} == {frozenset({"d/a", "d/b"})}


def test_bytes_cut_back_and_written_again_may_show_either_version() -> None:
    disk = made(b"s")
    file = disk.open("d/a", write=True)
    file.sync()
    disk.sync_folder(FOLDER)
    write_all(file, [b"G" * 600])
    file.truncate(1)
    write_all(file, [b"N" * 600])
    found = {contents["d/a"][512:513] for contents in at_end(disk)}
    assert found >= {b"G", b"N"}


def test_notes_belong_to_the_points_after_them() -> None:
    disk = made()
    before = disk.points
    disk.note("told")
    disk.create("d/b")
    for state in disk.states():
        assert state.notes == (["told"] if state.point >= before else [])


def test_a_killed_process_loses_nothing() -> None:
    disk = made(b"x" * 700)
    kills = [state for state in disk.states(at=disk.points) if state.is_kill]
    assert [state.files.contents() for state in kills] == [{"d/a": b"x" * 700}]


def test_a_folder_is_renamed_whole_or_not_at_all() -> None:
    disk = PowerLoss({"data/a/one": b"1", "data/a/two": b"2"})
    disk.rename_folder("data/a", "data/b")
    before, after = {"data/a/one": b"1", "data/a/two": b"2"}, {"data/b/one": b"1", "data/b/two": b"2"}
    disks = [state.files.contents() for state in disk.states()]
    assert before in disks and after in disks
    assert all(found in (before, after) for found in disks)
    assert all(state.files.contents() == after for state in disk.states(at=disk.points))


def test_a_second_name_may_be_gone_but_never_the_content_of_the_first() -> None:
    disk = made(b"x")
    disk.open("d/a", write=True).sync()
    disk.sync_folder(FOLDER)
    disk.link("d/a", "d/b")
    assert {frozenset(contents.items()) for contents in at_end(disk)} == {
        frozenset({("d/a", b"x")}),
        frozenset({("d/a", b"x"), ("d/b", b"x")}),
    }
    disk.remove("d/a")
    disk.sync_folder(FOLDER)
    assert all(contents == {"d/b": b"x"} for contents in at_end(disk))


def test_both_names_of_a_file_that_was_not_synced_lose_the_same_bytes() -> None:
    disk = made(b"x" * 700)
    disk.link("d/a", "d/b")
    disk.sync_folder(FOLDER)
    found = at_end(disk)
    assert all(contents["d/a"] == contents["d/b"] for contents in found)
    assert {b"", b"x" * 700} <= {contents["d/a"] for contents in found}
