"""One contract for every disk, and what is particular to each."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lamina.errors import DiskError
from lamina.log.files import File, Files, join, read_at, write_all
from lamina.log.files.faulty import FaultyFiles
from lamina.log.files.memory import MemoryFiles
from lamina.log.files.real import RealFiles


class Disk(NamedTuple):
    files: Files
    root: str

    def at(self, name: str) -> str:
        return join(self.root, name)

    def put(self, name: str, data: bytes = b"") -> None:
        file = self.files.create(self.at(name))
        write_all(file, [data])
        file.close()

    def get(self, name: str) -> bytes:
        file = self.files.open(self.at(name))
        data = content(file)
        file.close()
        return data

    def names(self) -> list[str]:
        return sorted(self.files.list(self.root))


def content(file: File) -> bytes:
    return read_at(file, 0, file.size())


@pytest.fixture(params=["real", "memory", "faulty"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "real":
        return Disk(RealFiles(), str(tmp_path))
    memory = MemoryFiles()
    memory.make_folder("disk")
    return Disk(memory if request.param == "memory" else FaultyFiles(memory), "disk")


@pytest.fixture
def real(tmp_path: Path) -> Disk:
    return Disk(RealFiles(), str(tmp_path))


# -- the contract: one file ----------------------------------------------------------------------------------------


def test_a_new_file_is_empty(disk: Disk) -> None:
    assert disk.files.create(disk.at("a")).size() == 0


def test_creating_refuses_a_taken_name(disk: Disk) -> None:
    disk.put("a", b"old")
    with pytest.raises(FileExistsError):
        disk.files.create(disk.at("a"))


def test_a_refused_creation_leaves_the_file_as_it_was(disk: Disk) -> None:
    disk.put("a", b"old")
    with pytest.raises(FileExistsError):
        disk.files.create(disk.at("a"))
    assert disk.get("a") == b"old"


def test_creating_refuses_the_name_of_a_folder(disk: Disk) -> None:
    disk.files.make_folder(disk.at("a"))
    with pytest.raises(FileExistsError):
        disk.files.create(disk.at("a"))


def test_creating_in_a_missing_folder_is_not_found(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.files.create(disk.at("missing/a"))


def test_opening_a_missing_file_is_not_found(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.files.open(disk.at("missing"))


def test_a_file_knows_the_name_it_was_opened_by(disk: Disk) -> None:
    assert disk.files.create(disk.at("a")).path == disk.at("a")


def test_appended_parts_stand_in_order(disk: Disk) -> None:
    file = disk.files.create(disk.at("a"))
    file.append([b"one", b"", b"two"])
    assert content(file) == b"onetwo"


def test_an_append_says_how_many_bytes_it_took(disk: Disk) -> None:
    assert disk.files.create(disk.at("a")).append([b"one", b"two"]) == 6


def test_an_append_of_nothing_takes_nothing(disk: Disk) -> None:
    assert disk.files.create(disk.at("a")).append([]) == 0


def test_many_parts_are_written_in_the_end(disk: Disk) -> None:
    file = disk.files.create(disk.at("a"))
    write_all(file, [b"ab"] * 3000)
    assert content(file) == b"ab" * 3000


def test_an_append_goes_to_the_end_whoever_wrote_before(disk: Disk) -> None:
    one = disk.files.create(disk.at("a"))
    other = disk.files.open(disk.at("a"), write=True)
    other.append([b"other"])
    one.append([b"one"])
    assert content(one) == b"otherone"


def test_a_file_opened_for_writing_keeps_its_content(disk: Disk) -> None:
    disk.put("a", b"old")
    disk.files.open(disk.at("a"), write=True).append([b"new"])
    assert disk.get("a") == b"oldnew"


def test_a_file_opened_for_reading_refuses_appends(disk: Disk) -> None:
    disk.put("a")
    with pytest.raises(OSError):
        disk.files.open(disk.at("a")).append([b"x"])


def test_a_file_opened_for_reading_refuses_to_be_cut(disk: Disk) -> None:
    disk.put("a", b"abc")
    with pytest.raises(OSError):
        disk.files.open(disk.at("a")).truncate(0)


def test_reading_starts_at_the_offset(disk: Disk) -> None:
    disk.put("a", b"0123456789")
    assert read_at(disk.files.open(disk.at("a")), 3, 4) == b"3456"


def test_reading_over_the_end_gives_what_is_there(disk: Disk) -> None:
    disk.put("a", b"0123456789")
    assert read_at(disk.files.open(disk.at("a")), 8, 100) == b"89"


def test_reading_behind_the_end_gives_nothing(disk: Disk) -> None:
    disk.put("a", b"0123456789")
    assert read_at(disk.files.open(disk.at("a")), 100, 4) == b""


def test_reading_fills_only_the_buffer_it_was_given(disk: Disk) -> None:
    disk.put("a", b"0123456789")
    buffer = bytearray(b"......")
    disk.files.open(disk.at("a")).read_into(memoryview(buffer)[1:4], 0)
    assert buffer == b".012.."


def test_an_open_file_sees_what_is_appended_later(disk: Disk) -> None:
    writer = disk.files.create(disk.at("a"))
    reader = disk.files.open(disk.at("a"))
    writer.append([b"later"])
    assert content(reader) == b"later"


def test_truncating_cuts_the_end_off(disk: Disk) -> None:
    file = disk.files.create(disk.at("a"))
    file.append([b"0123456789"])
    file.truncate(4)
    assert content(file) == b"0123"


def test_an_append_after_a_cut_stands_at_the_new_end(disk: Disk) -> None:
    file = disk.files.create(disk.at("a"))
    file.append([b"0123456789"])
    file.truncate(4)
    file.append([b"x"])
    assert content(file) == b"0123x"


def test_syncing_keeps_the_content(disk: Disk) -> None:
    file = disk.files.create(disk.at("a"))
    file.append([b"abc"])
    file.sync()
    assert content(file) == b"abc"


def test_a_closed_file_refuses_appends(disk: Disk) -> None:
    file = disk.files.create(disk.at("a"))
    file.close()
    with pytest.raises(OSError):
        file.append([b"x"])


def test_a_closed_file_refuses_to_be_synced(disk: Disk) -> None:
    file = disk.files.create(disk.at("a"))
    file.close()
    with pytest.raises(OSError):
        file.sync()


def test_closing_a_file_twice_does_nothing(disk: Disk) -> None:
    file = disk.files.create(disk.at("a"))
    file.close()
    file.close()


# -- the contract: names -------------------------------------------------------------------------------------------


def test_a_renamed_file_has_its_new_name_only(disk: Disk) -> None:
    disk.put("a", b"abc")
    disk.files.rename(disk.at("a"), disk.at("b"))
    assert disk.names() == ["b"]


def test_renaming_replaces_what_had_the_name(disk: Disk) -> None:
    disk.put("a", b"new")
    disk.put("b", b"old")
    disk.files.rename(disk.at("a"), disk.at("b"))
    assert disk.get("b") == b"new"


def test_renaming_a_missing_file_is_not_found(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.files.rename(disk.at("a"), disk.at("b"))


def test_renaming_into_a_missing_folder_is_not_found(disk: Disk) -> None:
    disk.put("a")
    with pytest.raises(FileNotFoundError):
        disk.files.rename(disk.at("a"), disk.at("missing/a"))


def test_a_linked_file_has_both_names(disk: Disk) -> None:
    disk.put("a", b"abc")
    disk.files.link(disk.at("a"), disk.at("b"))
    assert disk.names() == ["a", "b"] and disk.get("a") == disk.get("b") == b"abc"


def test_both_names_of_a_linked_file_are_one_content(disk: Disk) -> None:
    disk.put("a", b"abc")
    disk.files.link(disk.at("a"), disk.at("b"))
    disk.files.open(disk.at("a"), write=True).append([b"def"])
    assert disk.get("b") == b"abcdef"
    assert disk.files.open(disk.at("a")).identity == disk.files.open(disk.at("b")).identity


def test_a_linked_file_stays_when_its_first_name_is_removed_or_taken_by_another(disk: Disk) -> None:
    disk.put("a", b"abc")
    disk.files.link(disk.at("a"), disk.at("b"))
    disk.files.link(disk.at("a"), disk.at("c"))
    disk.files.remove(disk.at("a"))
    disk.put("new", b"xyz")
    disk.files.rename(disk.at("new"), disk.at("b"))
    assert (disk.get("b"), disk.get("c")) == (b"xyz", b"abc")


def test_linking_refuses_a_taken_name(disk: Disk) -> None:
    disk.put("a", b"new")
    disk.put("b", b"old")
    disk.files.make_folder(disk.at("c"))
    for taken in ("a", "b", "c"):
        with pytest.raises(FileExistsError):
            disk.files.link(disk.at("a"), disk.at(taken))
    assert disk.get("b") == b"old"


def test_linking_a_missing_file_is_not_found(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.files.link(disk.at("a"), disk.at("b"))


def test_linking_into_a_missing_folder_is_not_found(disk: Disk) -> None:
    disk.put("a")
    with pytest.raises(FileNotFoundError):
        disk.files.link(disk.at("a"), disk.at("missing/a"))


def test_a_removed_file_is_gone(disk: Disk) -> None:
    disk.put("a")
    disk.files.remove(disk.at("a"))
    assert disk.names() == []


def test_removing_a_missing_file_is_not_found(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.files.remove(disk.at("a"))


def test_an_open_file_stays_readable_after_it_was_removed(disk: Disk) -> None:
    disk.put("a", b"abc")
    file = disk.files.open(disk.at("a"))
    disk.files.remove(disk.at("a"))
    assert content(file) == b"abc"


def test_an_open_file_stays_readable_after_it_was_renamed(disk: Disk) -> None:
    disk.put("a", b"abc")
    file = disk.files.open(disk.at("a"))
    disk.files.rename(disk.at("a"), disk.at("b"))
    assert content(file) == b"abc"


def test_an_open_file_keeps_its_content_when_another_takes_its_name(disk: Disk) -> None:
    disk.put("a", b"old")
    file = disk.files.open(disk.at("a"))
    disk.put("b", b"new")
    disk.files.rename(disk.at("b"), disk.at("a"))
    assert content(file) == b"old"


def test_identity_tells_a_replaced_file_from_the_one_before(disk: Disk) -> None:
    disk.put("a")
    before = disk.files.open(disk.at("a"))
    disk.put("b")
    disk.files.rename(disk.at("b"), disk.at("a"))
    assert disk.files.open(disk.at("a")).identity != before.identity


def test_identity_stays_through_a_rename(disk: Disk) -> None:
    disk.put("a")
    before = disk.files.open(disk.at("a")).identity
    disk.files.rename(disk.at("a"), disk.at("b"))
    assert disk.files.open(disk.at("b")).identity == before


def test_identity_stays_while_a_file_grows(disk: Disk) -> None:
    file = disk.files.create(disk.at("a"))
    before = file.identity
    file.append([b"abc"])
    assert disk.files.open(disk.at("a")).identity == before


# -- the contract: folders -----------------------------------------------------------------------------------------


def test_a_folder_lists_its_files_and_folders(disk: Disk) -> None:
    disk.put("file")
    disk.files.make_folder(disk.at("folder"))
    assert disk.names() == ["file", "folder"]


def test_a_folder_does_not_list_what_is_below_its_folders(disk: Disk) -> None:
    disk.files.make_folder(disk.at("folder/inner"))
    disk.put("folder/file")
    assert disk.names() == ["folder"]


def test_listing_a_missing_folder_is_not_found(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.files.list(disk.at("missing"))


def test_nested_folders_are_made_at_once(disk: Disk) -> None:
    disk.files.make_folder(disk.at("a/b/c"))
    disk.put("a/b/c/file", b"abc")
    assert disk.get("a/b/c/file") == b"abc"


def test_making_a_folder_twice_keeps_its_files(disk: Disk) -> None:
    disk.files.make_folder(disk.at("a"))
    disk.put("a/file")
    disk.files.make_folder(disk.at("a"))
    assert disk.files.list(disk.at("a")) == ["file"]


def test_a_folder_is_not_made_where_a_file_is(disk: Disk) -> None:
    disk.put("a")
    with pytest.raises(NotADirectoryError):
        disk.files.make_folder(disk.at("a"))


def test_a_folder_is_not_made_below_a_file(disk: Disk) -> None:
    disk.put("a")
    with pytest.raises(NotADirectoryError):
        disk.files.make_folder(disk.at("a/b"))


def test_syncing_a_folder_keeps_its_names(disk: Disk) -> None:
    disk.put("a")
    disk.files.sync_folder(disk.root)
    assert disk.names() == ["a"]


def test_syncing_a_missing_folder_is_not_found(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.files.sync_folder(disk.at("missing"))


# -- the contract: locks -------------------------------------------------------------------------------------------


def test_a_free_lock_is_taken(disk: Disk) -> None:
    assert not isinstance(disk.files.lock(disk.at("lock")), str)


def test_a_held_lock_names_its_holder(disk: Disk) -> None:
    held = disk.files.lock(disk.at("lock"))
    assert not isinstance(held, str)
    assert disk.files.lock(disk.at("lock")) in ("this process", f"process {os.getpid()}")


def test_a_released_lock_can_be_taken_again(disk: Disk) -> None:
    held = disk.files.lock(disk.at("lock"))
    assert not isinstance(held, str)
    held.release()
    assert not isinstance(disk.files.lock(disk.at("lock")), str)


def test_releasing_twice_does_not_free_the_next_holder(disk: Disk) -> None:
    first = disk.files.lock(disk.at("lock"))
    assert not isinstance(first, str)
    first.release()
    second = disk.files.lock(disk.at("lock"))
    assert not isinstance(second, str)
    first.release()
    assert disk.files.lock_holder(disk.at("lock")) is not None


def test_two_locks_do_not_hinder_each_other(disk: Disk) -> None:
    one, other = disk.files.lock(disk.at("one")), disk.files.lock(disk.at("other"))
    assert not isinstance(one, str) and not isinstance(other, str)


def test_the_holder_of_a_lock_can_be_asked_for(disk: Disk) -> None:
    held = disk.files.lock(disk.at("lock"))
    assert not isinstance(held, str)
    assert disk.files.lock_holder(disk.at("lock")) in ("this process", f"process {os.getpid()}")


def test_a_released_lock_has_no_holder(disk: Disk) -> None:
    held = disk.files.lock(disk.at("lock"))
    assert not isinstance(held, str)
    held.release()
    assert disk.files.lock_holder(disk.at("lock")) is None


def test_asking_for_the_holder_makes_no_file(disk: Disk) -> None:
    disk.files.lock_holder(disk.at("lock"))
    assert disk.names() == []


def test_asking_for_the_holder_in_a_missing_folder_finds_nobody(disk: Disk) -> None:
    assert disk.files.lock_holder(disk.at("missing/lock")) is None


def test_asking_for_the_holder_leaves_the_lock_held(disk: Disk) -> None:
    held = disk.files.lock(disk.at("lock"))
    assert not isinstance(held, str)
    disk.files.lock_holder(disk.at("lock"))
    assert isinstance(disk.files.lock(disk.at("lock")), str)


def test_asking_for_the_holder_leaves_a_free_lock_free(disk: Disk) -> None:
    disk.files.lock_holder(disk.at("lock"))
    assert not isinstance(disk.files.lock(disk.at("lock")), str)


# -- the contract: watching ----------------------------------------------------------------------------------------


def test_a_watch_times_out_when_nothing_changes(disk: Disk) -> None:
    watch = disk.files.watch(disk.root)
    assert watch.wait(0.01) is False
    watch.close()


def change_by(disk: Disk, kind: str) -> None:
    if kind == "create":
        disk.files.create(disk.at("new"))
    elif kind == "append":
        disk.files.open(disk.at("old"), write=True).append([b"x"])
    elif kind == "rename":
        disk.files.rename(disk.at("old"), disk.at("new"))
    elif kind == "link":
        disk.files.link(disk.at("old"), disk.at("new"))
    elif kind == "remove":
        disk.files.remove(disk.at("old"))
    else:
        disk.files.open(disk.at("old"), write=True).truncate(0)


@pytest.mark.parametrize("kind", ["create", "append", "rename", "link", "remove", "truncate"])
def test_a_watch_wakes_on_a_change(disk: Disk, kind: str) -> None:
    disk.put("old", b"abc")
    watch = disk.files.watch(disk.root)
    change_by(disk, kind)
    assert watch.wait(5) is True
    watch.close()


def test_a_watch_wakes_while_it_waits(disk: Disk) -> None:
    watch = disk.files.watch(disk.root)
    later = threading.Timer(0.05, disk.put, ["new"])
    later.start()
    started = time.monotonic()
    assert watch.wait(30) is True and time.monotonic() - started < 20
    later.join()
    watch.close()


def test_a_change_is_told_only_once(disk: Disk) -> None:
    watch = disk.files.watch(disk.root)
    disk.put("new")
    watch.wait(5)
    assert watch.wait(0.01) is False
    watch.close()


def test_closing_a_watch_twice_does_nothing(disk: Disk) -> None:
    watch = disk.files.watch(disk.root)
    watch.close()
    watch.close()


# -- real files only -----------------------------------------------------------------------------------------------


def is_too_many_links(error: OSError) -> bool:
    return error.errno == errno.ELOOP


@pytest.mark.parametrize("write", [False, True])
def test_a_link_is_not_followed_when_opening(real: Disk, write: bool) -> None:
    real.put("target", b"secret")
    os.symlink(real.at("target"), real.at("link"))
    with pytest.raises(OSError, check=is_too_many_links):
        real.files.open(real.at("link"), write=write)


def test_a_link_is_not_followed_when_creating(real: Disk) -> None:
    os.symlink(real.at("elsewhere"), real.at("link"))
    with pytest.raises(FileExistsError):
        real.files.create(real.at("link"))


def test_a_link_is_not_followed_when_linking(real: Disk) -> None:
    real.put("target", b"secret")
    os.symlink(real.at("target"), real.at("link"))
    real.files.link(real.at("link"), real.at("copy"))
    with pytest.raises(OSError, check=is_too_many_links):
        real.files.open(real.at("copy"))


def test_a_link_is_not_followed_when_locking(real: Disk) -> None:
    real.put("target", b"kept")
    os.symlink(real.at("target"), real.at("lock"))
    with pytest.raises(OSError, check=is_too_many_links):
        real.files.lock(real.at("lock"))


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.usefixtures("open_umask")
def test_files_are_for_their_owner_only(real: Disk) -> None:
    real.put("a")
    assert mode_of(real.at("a")) == 0o600


@pytest.mark.usefixtures("open_umask")
def test_lock_files_are_for_their_owner_only(real: Disk) -> None:
    real.files.lock(real.at("lock"))
    assert mode_of(real.at("lock")) == 0o600


@pytest.mark.usefixtures("open_umask")
def test_folders_are_for_their_owner_only(real: Disk) -> None:
    real.files.make_folder(real.at("a/b"))
    assert [mode_of(real.at("a")), mode_of(real.at("a/b"))] == [0o700, 0o700]


HOLD = """
import sys
from lamina.log.files.real import RealFiles
held = RealFiles().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(real: Disk) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, real.at("lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_lock_of_another_process_names_it(real: Disk, holder: subprocess.Popen[bytes]) -> None:
    assert real.files.lock(real.at("lock")) == f"process {holder.pid}"


def test_a_killed_holder_blocks_nobody(real: Disk, holder: subprocess.Popen[bytes]) -> None:
    holder.kill()
    holder.wait()
    assert not isinstance(real.files.lock(real.at("lock")), str)


def test_a_killed_holder_is_not_named(real: Disk, holder: subprocess.Popen[bytes]) -> None:
    holder.kill()
    holder.wait()
    assert real.files.lock_holder(real.at("lock")) is None


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """More open files than select(2) can count."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1400:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1400), hard))
    handles = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    yield
    for handle in handles:
        os.close(handle)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_open_files")
def test_a_watch_works_beside_a_thousand_open_files(real: Disk) -> None:
    watch = real.files.watch(real.root)
    real.put("new")
    assert watch.wait(5) is True
    watch.close()


# -- memory files only ---------------------------------------------------------------------------------------------


def test_a_disk_in_memory_starts_with_the_files_it_is_given() -> None:
    files = MemoryFiles({"a/b": b"abc"})
    assert content(files.open("a/b")) == b"abc"


def test_a_disk_in_memory_shows_every_file() -> None:
    files = MemoryFiles({"a/b": b"abc"})
    files.write("c", b"d")
    assert files.contents() == {"a/b": b"abc", "c": b"d"}


def test_a_disk_in_memory_takes_absolute_paths() -> None:
    # In a process of its own: the mistake to fear is a loop without end.
    code = "from lamina.log.files.memory import MemoryFiles as M; m = M(); m.make_folder('/a/b'); m.create('/a/b/c')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=5)


# -- helpers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "name", "path"), [("a", "b", "a/b"), ("a/", "b", "a/b"), ("", "b", "b"), ("/", "b", "/b")]
)
def test_paths_are_joined_with_one_slash(folder: str, name: str, path: str) -> None:
    assert join(folder, name) == path


def test_reading_at_a_place_that_fails_names_the_file() -> None:
    files = FaultyFiles(MemoryFiles({"a": b"abc"}))
    files.fail("read")
    with pytest.raises(DiskError, match="a: cannot read the file"):
        read_at(files.open("a"), 0, 1)


# -- faulty files only ---------------------------------------------------------------------------------------------


@pytest.fixture
def faulty() -> FaultyFiles:
    return FaultyFiles(MemoryFiles({"a": b"abc", "b": b"bcd"}))


def fails(files: FaultyFiles, path: str = "a") -> bool:
    try:
        files.open(path)
    except OSError:
        return True
    return False


def test_without_a_fault_nothing_fails(faulty: FaultyFiles) -> None:
    assert not fails(faulty)


def test_the_first_call_fails_unless_told(faulty: FaultyFiles) -> None:
    faulty.fail("open")
    assert [fails(faulty) for _ in range(3)] == [True, False, False]


def test_the_nth_call_fails(faulty: FaultyFiles) -> None:
    faulty.fail("open", nth=3)
    assert [fails(faulty) for _ in range(4)] == [False, False, True, False]


def test_several_calls_in_a_row_fail(faulty: FaultyFiles) -> None:
    faulty.fail("open", nth=2, times=2)
    assert [fails(faulty) for _ in range(4)] == [False, True, True, False]


def test_only_paths_that_match_fail(faulty: FaultyFiles) -> None:
    faulty.fail("open", only="b")
    assert [fails(faulty, "a"), fails(faulty, "b")] == [False, True]


def test_paths_that_do_not_match_are_not_counted(faulty: FaultyFiles) -> None:
    faulty.fail("open", nth=2, only="b")
    assert [fails(faulty, path) for path in ("b", "a", "b")] == [False, False, True]


def test_other_operations_are_not_counted(faulty: FaultyFiles) -> None:
    faulty.fail("open", nth=2)
    faulty.list("")
    assert [fails(faulty), fails(faulty)] == [False, True]


def test_a_fault_is_an_input_output_error_unless_told(faulty: FaultyFiles) -> None:
    faulty.fail("open")
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
        faulty.open("a")


def test_a_fault_has_the_error_it_is_given(faulty: FaultyFiles) -> None:
    faulty.fail("open", error=errno.EACCES)
    with pytest.raises(PermissionError):
        faulty.open("a")


def test_a_fault_names_the_path(faulty: FaultyFiles) -> None:
    faulty.fail("open")
    with pytest.raises(OSError, check=lambda error: error.filename == "a"):
        faulty.open("a")


def test_a_fault_says_how_often_it_struck(faulty: FaultyFiles) -> None:
    fault = faulty.fail("open", times=2)
    for _ in range(5):
        fails(faulty)
    assert (fault.seen, fault.struck) == (5, 2)


def test_healing_ends_every_fault(faulty: FaultyFiles) -> None:
    faulty.fail("open", times=100)
    faulty.fail("open", only="a", times=100)
    faulty.heal()
    assert not fails(faulty)


def test_an_unknown_operation_cannot_be_made_to_fail(faulty: FaultyFiles) -> None:
    with pytest.raises(ValueError, match="is none of"):
        faulty.fail("explode")


def test_a_failing_append_writes_nothing_unless_told(faulty: FaultyFiles) -> None:
    file = faulty.open("a", write=True)
    faulty.fail("append", error=errno.ENOSPC)
    with pytest.raises(OSError, check=lambda error: error.errno == errno.ENOSPC):
        file.append([b"xyz"])
    assert content(file) == b"abc"


def test_a_failing_append_may_have_written_some_bytes(faulty: FaultyFiles) -> None:
    file = faulty.open("a", write=True)
    faulty.fail("append", taken=2)
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
        file.append([b"x", b"yz"])
    assert content(file) == b"abcxy"


def test_a_short_write_says_what_it_took(faulty: FaultyFiles) -> None:
    file = faulty.open("a", write=True)
    faulty.fail("append", error=0, taken=2)
    assert file.append([b"x", b"yz"]) == 2


def test_a_short_write_leaves_what_it_took(faulty: FaultyFiles) -> None:
    file = faulty.open("a", write=True)
    faulty.fail("append", error=0, taken=2)
    file.append([b"x", b"yz"])
    assert content(file) == b"abcxy"


def test_a_short_write_never_takes_more_than_it_was_offered(faulty: FaultyFiles) -> None:
    file = faulty.open("a", write=True)
    faulty.fail("append", error=0, taken=100)
    assert file.append([b"xyz"]) == 3


def test_writing_all_goes_on_after_short_writes(faulty: FaultyFiles) -> None:
    file = faulty.open("a", write=True)
    faulty.fail("append", error=0, taken=1, times=3)
    write_all(file, [b"0123", b"456789"])
    assert content(file) == b"abc0123456789"


def test_writing_all_gives_up_on_a_disk_that_takes_nothing(faulty: FaultyFiles) -> None:
    file = faulty.open("a", write=True)
    faulty.fail("append", error=0, taken=0)
    with pytest.raises(OSError, match="took no bytes"):
        write_all(file, [b"xyz"])


@pytest.mark.parametrize("operation", ["read", "truncate", "sync"])
def test_each_operation_on_a_file_can_fail(faulty: FaultyFiles, operation: str) -> None:
    file = faulty.open("a", write=True)
    faulty.fail(operation)
    calls = {
        "read": lambda: file.read_into(memoryview(bytearray(1)), 0),
        "truncate": lambda: file.truncate(0),
        "sync": file.sync,
    }
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
        calls[operation]()


@pytest.mark.parametrize("operation", ["open", "create", "list", "rename", "link", "remove", "sync_folder"])
def test_each_operation_on_a_disk_can_fail(faulty: FaultyFiles, operation: str) -> None:
    faulty.fail(operation)
    arguments = {"create": ["c"], "list": [""], "rename": ["a", "c"], "link": ["a", "c"], "sync_folder": [""]}.get(
        operation, ["a"]
    )
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
        getattr(faulty, operation)(*arguments)


@pytest.mark.parametrize("operation", ["create", "rename", "link", "remove"])
def test_an_operation_that_fails_changes_nothing(faulty: FaultyFiles, operation: str) -> None:
    faulty.fail(operation)
    arguments = {"create": ["c"], "rename": ["a", "c"], "link": ["a", "c"], "remove": ["a"]}[operation]
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
        getattr(faulty, operation)(*arguments)
    assert sorted(faulty.list("")) == ["a", "b"]


def test_calls_are_remembered_in_order(faulty: FaultyFiles) -> None:
    faulty.open("a", write=True).sync()
    assert faulty.calls == [("open", "a"), ("sync", "a")]


def test_a_test_can_look_before_each_operation(faulty: FaultyFiles) -> None:
    seen: list[tuple[str, str]] = []
    faulty.before = lambda operation, path: seen.append((operation, path))
    faulty.remove("a")
    assert seen == [("remove", "a")]


# -- folders -------------------------------------------------------------------------------------------------------


def test_a_renamed_folder_has_all_that_was_in_it(disk: Disk) -> None:
    disk.files.make_folder(disk.at("a/inner"))
    disk.put("a/one", b"1")
    disk.put("a/inner/two", b"2")
    disk.put("ab", b"beside")
    held = disk.files.open(disk.at("a/one"))
    disk.files.rename_folder(disk.at("a"), disk.at("b"))
    assert disk.names() == ["ab", "b"]
    assert (disk.get("b/one"), disk.get("b/inner/two"), disk.get("ab")) == (b"1", b"2", b"beside")
    assert content(held) == b"1"
    held.close()


def test_a_folder_takes_no_name_that_is_taken(disk: Disk) -> None:
    disk.files.make_folder(disk.at("a"))
    disk.files.make_folder(disk.at("b"))
    disk.put("c")
    for taken in ("b", "c"):
        with pytest.raises(FileExistsError):
            disk.files.rename_folder(disk.at("a"), disk.at(taken))
    with pytest.raises(FileNotFoundError):
        disk.files.rename_folder(disk.at("none"), disk.at("d"))
    assert disk.names() == ["a", "b", "c"]


def test_a_removed_folder_is_gone_with_all_in_it(disk: Disk) -> None:
    disk.files.make_folder(disk.at("a/inner"))
    disk.put("a/inner/two", b"2")
    disk.put("ab", b"beside")
    disk.files.remove_folder(disk.at("a"))
    assert disk.names() == ["ab"]
    with pytest.raises(FileNotFoundError):
        disk.files.remove_folder(disk.at("a"))
