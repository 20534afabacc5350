"""The catalog of topics: what is there under which name, after every command, every error and every restart."""

from __future__ import annotations

import errno
import threading

import pytest

from lamina.engines.topics import ids
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics, is_possible
from lamina.errors import BadName, DiskError, DiskFull, LogLocked, StorageError, WrongFormat
from lamina.log import OS, LogOptions
from lamina.testing import Fault, FaultyFiles, ManualClock, MemoryFiles

FOLDER = "topics"


class Lab:
    def __init__(self) -> None:
        self.disk, self.clock = MemoryFiles(), ManualClock()
        self.files = FaultyFiles(self.disk)
        self.topics = self.opened(self.files)

    def opened(self, files: MemoryFiles | FaultyFiles) -> Topics:
        options = LogOptions(sync=OS)
        return Topics.open(FOLDER, files=files, clock=self.clock, options=options, threaded=False)

    def add(self, name: bytes, value: bytes) -> None:
        topic = self.topics.get_or_make(name)
        topic.settle(topic.add([b"f", value])[1])

    def sync_all(self) -> None:
        """From now on what is written again has a name already."""
        for _, topic in self.topics.opened():
            topic.sync(topic.newest_position())

    def killed(self) -> Topics:
        """The topics as a server finds them that starts after a kill."""
        return self.opened(MemoryFiles(self.disk.contents()))

    def leftovers(self) -> list[str]:
        return [name for name in self.disk.list(FOLDER) if name.startswith(".gone-")]


def shown(topics: Topics) -> dict[bytes, list[bytes]]:
    """The values of all topics."""
    found = {name: topics.get(name) for name in topics.names()}
    return {name: values(topic) for name, topic in found.items() if topic is not None}


def values(topic: Topic) -> list[bytes]:
    return [fields[1] for _, fields in topic.read(ids.FIRST)[0]]


@pytest.fixture
def lab() -> Lab:
    """Topics a and b, with an entry each."""
    lab = Lab()
    lab.add(b"a", b"of a")
    lab.add(b"b", b"of b")
    return lab


def same(lab: Lab) -> dict[bytes, list[bytes]]:
    """What is shown now, and after a kill too."""
    found = shown(lab.topics)
    assert shown(lab.killed()) == found
    return found


# -- which there are -------------------------------------------------------------------------------------------------


def test_a_topic_exists_from_its_first_record_on(lab: Lab) -> None:
    topic = lab.topics.get_or_make(b"c")
    assert lab.topics.get(b"c") is None and lab.topics.names() == [b"a", b"b"]
    assert lab.topics.known() == [b"a", b"b", b"c"]
    topic.settle(topic.add([b"f", b"v"])[1])
    assert lab.topics.get(b"c") is topic and lab.topics.names() == [b"a", b"b", b"c"]


def test_a_topic_without_entries_exists_if_it_had_some(lab: Lab) -> None:
    topic = lab.topics.get_or_make(b"a")
    topic.settle(topic.trim_length(0)[1])
    assert same(lab) == {b"a": [], b"b": [b"of b"]}


def test_asking_for_a_topic_that_is_not_there_makes_none(lab: Lab) -> None:
    assert lab.topics.get(b"c") is None
    assert lab.topics.known() == [b"a", b"b"] and lab.disk.list(FOLDER).count("c") == 0


def test_topics_are_opened_when_they_are_asked_for(lab: Lab) -> None:
    again = lab.killed()
    assert list(again.opened()) == [] and again.known() == [b"a", b"b"]
    topic = again.get(b"a")
    assert list(again.opened()) == [(b"a", topic)] and again.get(b"a") is topic


def test_what_else_lies_in_the_folder_is_no_topic(lab: Lab) -> None:
    for path in ("file", ".hidden/file", "not%zz/file", "a b/file", ".gone-1/file"):
        lab.disk.write(f"{FOLDER}/{path}", b"x")
    assert lab.killed().known() == [b"a", b"b"]


@pytest.mark.parametrize("name", [b"", b".", b"..", b"/", b"a/b", b"%", b"\0", b"\xff" * 84, b".lock", b".gone-1"])
def test_any_bytes_are_a_name_within_the_folder(lab: Lab, name: bytes) -> None:
    lab.add(name, b"v")
    assert same(lab)[name] == [b"v"]
    lab.topics.rename(name, name + b"x")
    assert lab.topics.delete(name + b"x") and set(same(lab)) == {b"a", b"b"}


def test_a_name_too_long_for_a_folder_is_refused_everywhere(lab: Lab) -> None:
    name = b"n" * 256
    assert not is_possible(name) and is_possible(name[1:])
    assert lab.topics.get(name) is None and not lab.topics.delete(name)
    for make in (lambda: lab.topics.get_or_make(name), lambda: lab.topics.rename(b"a", name)):
        with pytest.raises(BadName):
            make()
    assert same(lab) == {b"a": [b"of a"], b"b": [b"of b"]}


def test_one_process_owns_them_all(lab: Lab) -> None:
    with pytest.raises(LogLocked):
        lab.opened(lab.files)
    lab.topics.close()
    assert shown(lab.opened(lab.files)) == {b"a": [b"of a"], b"b": [b"of b"]}


def test_threads_that_ask_at_once_get_the_same_topic(lab: Lab) -> None:
    found: list[Topic] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        found.append(lab.topics.get_or_make(b"c"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1


# -- deleting --------------------------------------------------------------------------------------------------------


def test_what_is_deleted_is_gone_for_good_and_its_name_is_free(lab: Lab) -> None:
    assert lab.topics.delete(b"a") and not lab.topics.delete(b"a")
    assert same(lab) == {b"b": [b"of b"]}
    lab.add(b"a", b"new")
    assert same(lab) == {b"a": [b"new"], b"b": [b"of b"]}


def test_deleting_what_was_never_written_to_says_so_and_forgets_it(lab: Lab) -> None:
    lab.topics.get_or_make(b"c")
    assert not lab.topics.delete(b"c") and lab.topics.known() == [b"a", b"b"]


def test_a_topic_that_nobody_has_opened_is_deleted_too(lab: Lab) -> None:
    lab.topics = lab.opened(MemoryFiles(lab.disk.contents()))
    assert lab.topics.delete(b"a") and shown(lab.topics) == {b"b": [b"of b"]}


def test_who_waits_for_a_topic_is_told_when_it_goes(lab: Lab) -> None:
    told: list[str] = []
    lab.topics.get_or_make(b"a").waiters[lambda: told.append("a")] = None
    lab.topics.get_or_make(b"b").waiters[lambda: told.append("b")] = None
    lab.topics.delete(b"a")
    assert told == ["a"]
    lab.topics.rename(b"b", b"c")
    assert told == ["a", "b"]


def test_room_is_given_back_by_a_sweep(lab: Lab) -> None:
    lab.topics.delete(b"a")
    assert len(lab.leftovers()) == 1
    lab.topics.sweep()
    assert not lab.leftovers() and not [path for path in lab.disk.contents() if "gone" in path]
    lab.topics.sweep()


def test_what_a_crash_left_is_swept_by_the_next(lab: Lab) -> None:
    lab.topics.delete(b"a")
    lab.disk = MemoryFiles(lab.disk.contents())
    lab.topics = lab.opened(lab.disk)
    lab.topics.close()
    assert not lab.leftovers()


def test_a_sweep_that_fails_is_tried_again(lab: Lab) -> None:
    lab.topics.delete(b"a")
    lab.topics.delete(b"b")
    lab.files.faults.append(Fault("remove_folder"))
    with pytest.raises(DiskError):
        lab.topics.sweep()
    assert len(lab.leftovers()) == 2
    lab.topics.sweep()
    assert not lab.leftovers()


def test_any_number_of_topics_may_go_at_the_same_time_of_the_clock(lab: Lab) -> None:
    for number in range(1500):
        lab.disk.make_folder(f"{FOLDER}/.gone-{lab.clock.now_ns() + number}")
    assert lab.topics.delete(b"a")
    assert same(lab) == {b"b": [b"of b"]}


def test_a_topic_that_could_not_be_deleted_is_there_still(lab: Lab) -> None:
    lab.files.faults.append(Fault("rename_folder"))
    with pytest.raises(DiskError, match="delete the folder"):
        lab.topics.delete(b"a")
    assert same(lab) == {b"a": [b"of a"], b"b": [b"of b"]}
    lab.add(b"a", b"more")
    assert same(lab)[b"a"] == [b"of a", b"more"]


def test_all_go_at_once_and_those_after_one_that_fails_stay(lab: Lab) -> None:
    lab.files.faults.append(Fault("rename_folder", nth=2))
    with pytest.raises(DiskError):
        lab.topics.delete_all()
    assert len(same(lab)) == 1
    lab.topics.delete_all()
    assert same(lab) == {}


# -- renaming --------------------------------------------------------------------------------------------------------


def test_a_renamed_topic_goes_on_under_its_new_name(lab: Lab) -> None:
    topic = lab.topics.get_or_make(b"a")
    topic.groups.settle(topic.groups.create(b"g", ids.FIRST))
    lab.topics.rename(b"a", b"c")
    assert same(lab) == {b"b": [b"of b"], b"c": [b"of a"]}
    lab.add(b"c", b"more")
    assert same(lab)[b"c"] == [b"of a", b"more"]
    renamed = lab.topics.get(b"c")
    assert renamed is not None and renamed.groups.has(b"g")


def test_a_topic_that_had_the_name_is_deleted(lab: Lab) -> None:
    lab.topics.rename(b"a", b"b")
    assert same(lab) == {b"b": [b"of a"]} and len(lab.leftovers()) == 1


def test_the_old_name_is_free(lab: Lab) -> None:
    lab.topics.rename(b"a", b"c")
    lab.add(b"a", b"new")
    lab.topics.rename(b"c", b"a")
    assert same(lab) == {b"a": [b"of a"], b"b": [b"of b"]}


def test_its_own_name_changes_nothing(lab: Lab) -> None:
    topic = lab.topics.get(b"a")
    lab.topics.rename(b"a", b"a")
    assert lab.topics.get(b"a") is topic and same(lab)[b"a"] == [b"of a"]


def test_a_name_that_was_only_asked_for_is_free(lab: Lab) -> None:
    lab.topics.get_or_make(b"c")
    lab.topics.rename(b"a", b"c")
    assert same(lab) == {b"b": [b"of b"], b"c": [b"of a"]}


def test_what_was_refused_takes_nobodys_place(lab: Lab) -> None:
    topic = lab.topics.get_or_make(b"c")
    topic.add([b"f", b"refused"])
    lab.files.fail("append", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        lab.topics.rename(b"c", b"b")
    assert same(lab) == {b"a": [b"of a"], b"b": [b"of b"]}


def test_groups_that_were_refused_keep_a_topic_where_it_is(lab: Lab) -> None:
    lab.topics.get_or_make(b"a").groups.create(b"g", ids.FIRST)
    lab.files.fail("append", error=errno.ENOSPC, only="/a/groups/")
    with pytest.raises(DiskFull):
        lab.topics.rename(b"a", b"b")
    assert same(lab) == {b"a": [b"of a"], b"b": [b"of b"]}


def test_a_rename_that_fails_leaves_the_topic_under_its_old_name(lab: Lab) -> None:
    lab.files.faults.append(Fault("rename_folder"))
    with pytest.raises(DiskError):
        lab.topics.rename(b"a", b"c")
    assert same(lab) == {b"a": [b"of a"], b"b": [b"of b"]}


def test_a_rename_that_was_done_and_could_not_be_synced_hides_nothing(lab: Lab) -> None:
    lab.sync_all()
    lab.disk.do_sync_folder = failing_once(lab.disk)  # type: ignore[method-assign]
    with pytest.raises(DiskError):
        lab.topics.rename(b"a", b"c")
    assert same(lab) == {b"b": [b"of b"], b"c": [b"of a"]}


def test_a_topic_that_was_deleted_and_could_not_be_synced_is_swept(lab: Lab) -> None:
    lab.sync_all()
    lab.disk.do_sync_folder = failing_once(lab.disk)  # type: ignore[method-assign]
    with pytest.raises(DiskError):
        lab.topics.delete(b"a")
    assert same(lab) == {b"b": [b"of b"]}
    lab.topics.close()
    assert not lab.leftovers()


def failing_once(disk: MemoryFiles) -> object:
    """The folder of all topics cannot be synced."""

    def fail(folder: str) -> None:
        if folder == FOLDER:
            del disk.do_sync_folder  # type: ignore[method-assign]
            raise OSError(errno.EIO, "gone wrong", folder)

    return fail


# -- damage, and the end ---------------------------------------------------------------------------------------------


def test_a_topic_that_cannot_be_read_says_so_and_the_others_go_on(lab: Lab) -> None:
    (path,) = [path for path in lab.disk.contents() if path.startswith(f"{FOLDER}/a/") and path.endswith(".dat")]
    lab.disk.names[path].data[:4] = b"????"
    found = lab.killed()
    with pytest.raises(WrongFormat):
        found.get(b"a")
    topic = found.get(b"b")
    assert topic is not None and values(topic) == [b"of b"]


def test_closing_tells_the_first_error_after_all_were_closed(lab: Lab) -> None:
    for name in (b"a", b"b"):
        lab.topics.get_or_make(name).add([b"f", b"pending"])
    lab.files.fail("append", error=errno.ENOSPC, only="/a/")
    with pytest.raises(StorageError):
        lab.topics.close()
    assert shown(lab.opened(lab.files)) == {b"a": [b"of a"], b"b": [b"of b", b"pending"]}


def test_a_damaged_topic_is_listed_and_can_be_deleted(lab: Lab) -> None:
    lab.topics.close()
    contents = lab.disk.contents()
    path = next(path for path in contents if "/b/" in path and path.endswith(".dat"))
    contents[path] = b"lmxx" + contents[path][4:]
    topics = lab.opened(MemoryFiles(contents))
    assert topics.names() == [b"a", b"b"]
    with pytest.raises(StorageError):
        topics.get(b"b")
    assert topics.delete(b"b") and topics.names() == [b"a"]


def test_names_are_listed_without_opening_topics(lab: Lab) -> None:
    lab.topics.close()
    topics = lab.opened(lab.disk)
    assert topics.names() == [b"a", b"b"] and not list(topics.opened())
