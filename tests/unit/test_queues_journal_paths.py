"""Where folders are, moving them, deleting them (cases J 82 to 88), and the pieces below."""

from __future__ import annotations

import threading

import pytest

from journal_lab import NOW, ROOT, JournalLab, mid
from lamina.engines.queues import ids
from lamina.engines.queues.journal import moving, paths, state_line
from lamina.engines.queues.journal.paths import Layout
from lamina.engines.queues.journal.state_line import StateLine
from lamina.engines.queues.message import NO_TTL, Message
from lamina.errors import BadOption, Corruption, DiskError, QueueRefused, StorageError
from lamina.log import interval
from lamina.testing import MemoryFiles

ID = "abcdefghijklmnopqrstuvwxyz012345"


def test_j82_path() -> None:
    assert paths.folder_of("root", ID) == "root/ab/cd/ef/gh/ijklmnopqrstuvwxyz012345"
    assert paths.folder_of("root", ID, 8, 4) == "root/abcd/efgh/ijkl/mnop/qrst/uvwx/yz01/2345"
    assert paths.folder_of("root", ID, 1, 2) == f"root/{ID}"


@pytest.mark.parametrize(
    "id", ["../../etc", "", ID[1:], ID[:-1] + "/", ID[:-1] + "\0", ID[:-1] + ".", ID + "a", "é" * 16]
)
def test_j83_hostile_id(id: str) -> None:
    with pytest.raises(ValueError, match="no id of a queue"):
        paths.folder_of("root", id)
    assert ids.parse(id.encode()) is None


def test_an_id_cannot_be_cut_into_more_than_it_has() -> None:
    with pytest.raises(BadOption):
        Layout(9, 4).check()
    assert Layout(8, 4).check() == (8, 4)


class _NoCase(MemoryFiles):
    """A disk that takes names that differ in case for the same."""

    def _find(self, path: str):  # type: ignore[no-untyped-def]
        for name, content in self.names.items():
            if name.lower() == path.lower():
                return content
        return super()._find(path)


def test_j84_case() -> None:
    lab = JournalLab()
    one, two = (ids.parse(text) for text in (b"A" * 32, b"a" + b"A" * 31))
    assert one is not None
    assert two is not None
    lab.put(queue=lab.new_queue(one))
    lab.put(queue=lab.new_queue(two))
    lab.restart()
    assert lab.receive(lab.new_queue(one)) == 1
    assert lab.receive(lab.new_queue(two)) == 2
    with pytest.raises(BadOption, match="differ in case"):
        JournalLab(_NoCase())


def test_the_probe_leaves_nothing_and_may_be_left_by_a_kill() -> None:
    lab = JournalLab()
    assert lab.disk.list(ROOT) == ["layout"]
    lab.disk.create(f"{ROOT}/.lamina-case-probe").close()
    lab.restart()
    assert lab.disk.list(ROOT) == ["layout"]


def test_a_layout_that_cannot_be_read_is_refused() -> None:
    lab = JournalLab()
    memory = lab.disk.inner
    assert isinstance(memory, MemoryFiles)
    memory.write(f"{ROOT}/layout", b"parts=x\n")
    with pytest.raises(Corruption):
        lab.restart()


# -- other depths ----------------------------------------------------------------------------------------------------


def filled(parts: int, queues: int = 5) -> JournalLab:
    lab = JournalLab(path_parts=parts)
    for number in range(queues):
        lab.put(queue=lab.new_queue(bytes([number]) * 24))
    return lab


def received(lab: JournalLab, queues: int = 5) -> list[int | None]:
    return [lab.receive(lab.new_queue(bytes([number]) * 24)) for number in range(queues)]


@pytest.mark.parametrize(("old", "new"), [(4, 5), (5, 4), (1, 5), (5, 1), (2, 3)])
def test_j85_other_depth(old: int, new: int) -> None:
    lab = filled(old)
    lab.restart(path_parts=new)
    assert received(lab) == [1, 2, 3, 4, 5]
    assert lab.kinds() == []
    assert list(moving.walk(lab.disk, ROOT, Layout(old, 2))) == []
    assert paths.read_layout(lab.disk, ROOT) == (Layout(old, 2), Layout(new, 2))
    assert lab.store.move_all() == moving.Moved()
    assert paths.read_layout(lab.disk, ROOT) == (Layout(new, 2), Layout(new, 2))


def test_a_root_without_a_layout_tells_its_depth_by_its_folders() -> None:
    lab = filled(4)
    lab.disk.remove(f"{ROOT}/layout")
    lab.restart(path_parts=5)
    assert received(lab) == [1, 2, 3, 4, 5]


def test_all_are_moved_at_once() -> None:
    lab = filled(4)
    lab.restart(path_parts=5)
    seen: list[int] = []
    assert lab.store.move_all(seen.append) == moving.Moved(moved=5)
    assert seen == [1, 2, 3, 4, 5]
    assert list(moving.walk(lab.disk, ROOT, Layout(4, 2))) == []
    assert len(list(moving.walk(lab.disk, ROOT, Layout(5, 2)))) == 5
    lab.restart()
    assert lab.store.old_layout is None
    assert received(lab) == [1, 2, 3, 4, 5]


def test_j86_migration_interrupted() -> None:
    lab = filled(4)
    for nth in range(1, 6):
        lab.restart(path_parts=5)
        lab.disk.fail("rename", nth=9)  # none of a folder
        lab.disk.before = _Kill(nth)
        with pytest.raises((RuntimeError, DiskError)):
            lab.store.move_all()
        lab.disk.before = lambda operation, path: None
    lab.restart()
    lab.store.move_all()
    assert received(lab) == [1, 2, 3, 4, 5]
    layouts = [name for name in lab.disk.list(ROOT) if name != "layout"]
    assert sorted(layouts) == sorted({ids.show(bytes([number]) * 24)[:2] for number in range(5)})
    assert list(moving.walk(lab.disk, ROOT, Layout(4, 2))) == []


class _Kill:
    """The n-th folder to be renamed is not."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __call__(self, operation: str, path: str) -> None:
        if operation == "rename_folder":
            self.left -= 1
            if not self.left:
                raise RuntimeError("killed")
        elif operation == "rename" and path.endswith("layout.new"):
            raise RuntimeError("killed")


def test_no_third_depth_while_folders_are_moved() -> None:
    lab = filled(4)
    lab.restart(path_parts=5)
    for parts in (3, 4):
        with pytest.raises(BadOption, match="on their way to 5 parts"):
            lab.restart(path_parts=parts)


def test_j87_both_depths_hold_the_queue() -> None:
    lab = filled(4)
    lab.restart(path_parts=5)
    rid = bytes(24)
    memory = lab.disk.inner
    assert isinstance(memory, MemoryFiles)
    memory.write(Layout(5, 2).folder(ROOT, rid) + "/queue.log", b"")
    before = {path: data for path, data in memory.contents().items() if ids.show(rid)[10:] in path}
    assert len(before) == 3
    with pytest.raises(StorageError, match="two places"):
        lab.store.head(lab.new_queue(rid))
    assert lab.kinds() == ["folder_in_two_places"]
    assert lab.store.move_all() == moving.Moved(moved=4, refused=1)
    assert {path: data for path, data in memory.contents().items() if ids.show(rid)[10:] in path} == before
    assert [lab.receive(lab.new_queue(bytes([number]) * 24)) for number in range(1, 5)] == [2, 3, 4, 5]
    assert lab.store.old_layout == Layout(4, 2)


# -- deleting --------------------------------------------------------------------------------------------------------


def test_j88_delete_removes_the_folder() -> None:
    lab = JournalLab()
    lab.put()
    other = lab.new_queue(lab.rid[:3] + bytes(21))
    lab.put(queue=other)
    lab.store.delete(lab.queue)
    assert lab.names() == []
    assert lab.disk.list(lab.folder.rpartition("/")[0].rpartition("/")[0].rpartition("/")[0]) != []
    lab.store.delete(lab.queue)
    lab.store.delete(lab.new_queue(bytes(24)))
    with pytest.raises(QueueRefused):
        lab.put()
    assert lab.receive(other) == 2
    lab.store.delete(other)
    assert lab.disk.list(ROOT) == ["layout"]


def test_what_was_pending_for_a_deleted_queue_makes_no_folder() -> None:
    lab = JournalLab()
    position = lab.store.put(lab.queue, Message(mid(1), NOW, b"", b"pending"))
    lab.store.delete(lab.queue)
    lab.store.settle(position)
    assert lab.disk.list(ROOT) == ["layout"]


def test_a_send_that_races_with_a_delete_leaves_no_folder() -> None:
    lab = JournalLab(sync=interval(1000))
    for number in range(1000):
        queue = lab.new_queue(number.to_bytes(24))

        def send(queue=queue) -> None:  # type: ignore[no-untyped-def]
            try:
                lab.store.settle(lab.store.put(queue, Message(mid(1), NOW, b"", b"raced")))
            except QueueRefused:
                return

        thread = threading.Thread(target=send)
        thread.start()
        lab.store.delete(queue)
        thread.join()
    assert lab.disk.list(ROOT) == ["layout"]


def test_what_a_crash_left_of_a_deleted_queue_goes_at_the_start() -> None:
    lab = JournalLab()
    memory = lab.disk.inner
    assert isinstance(memory, MemoryFiles)
    memory.write(f"{ROOT}/.gone-1/messages.{'A' * 16}.log", b"")
    lab.restart()
    assert lab.disk.list(ROOT) == ["layout"]


# -- one line --------------------------------------------------------------------------------------------------------


def test_a_line_comes_back_as_it_was_written() -> None:
    state = StateLine("A" * 16, 2, 200, "B" * 16, 7, 4, 700, False, 9)
    line = state_line.encode(state)
    assert line.startswith(
        b"read_file=AAAAAAAAAAAAAAAA read_msg=2 read_byte=200 write_file=BBBBBBBBBBBBBBBB write_msg=7 "
    )
    assert b" read_count=4 write_byte=700 can_write=0 size=9 crc=" in line
    assert state_line.parse(line[:-1]) == state_line.Parsed(state, is_whole=True, is_checked=True)
    assert state_line.parse(line[: line.index(b" crc=")]) == state_line.Parsed(state, is_whole=True)
    five = state_line.parse(line[: line.index(b" read_count=")])
    assert five is not None
    assert not five.is_whole


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"read_file=short read_msg=0 read_byte=0 write_file=short write_msg=0",
        b"read_file=%s  read_msg=0 read_byte=0 write_file=%s write_msg=0" % (b"A" * 16, b"A" * 16),
        b"read_file=%s read_msg=2 read_byte=0 write_file=%s write_msg=1" % (b"A" * 16, b"A" * 16),
        b"read_file=%s read_msg=0 read_byte=0 write_file=%s write_msg=1 read_count=1" % (b"A" * 16, b"A" * 16),
    ],
)
def test_what_is_no_line(line: bytes) -> None:
    assert state_line.parse(line) is None


def test_every_flipped_bit_of_a_line_is_noticed() -> None:
    line = state_line.encode(StateLine("A" * 16, 0, 0, "A" * 16, 1, 1, 100, True, 1))[:-1]
    for at in range(len(line)):
        for bit in range(8):
            changed = bytearray(line)
            changed[at] ^= 1 << bit
            assert state_line.parse(bytes(changed)) is None


def test_lifetimes_and_markers_come_back() -> None:
    lab = JournalLab()
    lab.store.put(lab.queue, Message(mid(1), NOW, b"flags", b"body", 7))
    lab.store.put(lab.queue, Message(mid(2), NOW, b"", b""))
    lab.store.settle(lab.store.put(lab.queue, Message(mid(3), NOW, b"", None)))
    lab.restart()
    found = lab.store.messages(lab.queue)
    assert [(each.id, each.ts, each.flags, each.body, each.ttl) for each in found] == [
        (mid(1), NOW, b"flags", b"body", 7),
        (mid(2), NOW, b"", b"", NO_TTL),
        (mid(3), NOW, b"", None, NO_TTL),
    ]
