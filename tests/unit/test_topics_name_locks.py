"""Opening, deleting and renaming a topic may take long: who wants that name waits, and nobody else does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lamina.engines.topics import ids
from lamina.engines.topics.name_locks import NameLocks
from lamina.engines.topics.topics import LOCK, Topics
from lamina.errors import LogClosed, LogLocked
from lamina.log import OS, LogOptions
from lamina.log.files import Files
from lamina.log.files.real import RealFiles
from lamina.log.naming import TIMED
from lamina.server.measures.topics_seen import TopicsLook
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles
from threads_lab import PATIENCE_S, held_at, in_thread

FOLDER = "topics"


class Lab:
    """Topics a to d, which are closed."""

    def __init__(self, files: Files | None = None, folder: str = FOLDER, *, threaded: bool = False) -> None:
        self.disk, self.clock, self.folder, self.threaded = MemoryFiles(), ManualClock(), folder, threaded
        self.files = FaultyFiles(self.disk if files is None else files)
        self.topics = self.open()
        for name in (b"a", b"b", b"c", b"d"):
            self.add(name)
        self.topics.close()
        self.topics = self.open()

    def open(self) -> Topics:
        options = LogOptions(sync=OS)
        return Topics.open(self.folder, files=self.files, clock=self.clock, options=options, threaded=self.threaded)

    def add(self, name: bytes) -> None:
        topic = self.topics.get_or_make(name)
        topic.settle(topic.add([b"f", b"of " + name])[1])
        if not topic.groups.has(b"g"):
            topic.groups.settle(topic.groups.create(b"g", ids.FIRST))

    def values(self, name: bytes) -> list[bytes] | None:
        topic = self.topics.get(name)
        return None if topic is None else [fields[1] for _, fields in topic.read(ids.FIRST)[0]]

    def use_others(self) -> None:
        """All that can be done with topics, but to a and c."""
        topics = self.topics
        assert topics.lock.acquire(blocking=False), "somebody holds the lock of all topics"
        topics.lock.release()
        assert self.values(b"b") == [b"of b"] and topics.exists(b"b") and not topics.exists(b"e")
        self.add(b"b")
        self.add(b"e")
        topics.rename(b"e", b"f")
        topics.rename(b"f", b"d")
        assert topics.delete(b"d") and not topics.delete(b"e")
        assert {b"b"} <= set(topics.names()) <= {b"a", b"b", b"c"} and topics.existing() == len(topics.names())
        topics.sweep()
        self.add(b"d")


def added(topics: Topics, name: bytes) -> bool:
    return bool(topics.get_or_make(name).add([b"f", b"v"]))


WORK: dict[str, tuple[Callable[[Topics], Any], str, str]] = {
    "opening": (lambda topics: topics.get(b"a"), "open", "/a/"),
    "opening its groups": (lambda topics: topics.get(b"a"), "list", "/a/groups"),
    "deleting": (lambda topics: topics.delete(b"a"), "rename_folder", "/a"),
    "deleting an open one": (lambda topics: topics.get(b"a") and topics.delete(b"a"), "rename_folder", "/a"),
    "closing to delete": (
        lambda topics: (topics.get_or_make(b"a").add([b"f", b"v"]), topics.delete(b"a")),
        "append",
        "/a/",
    ),
    "renaming": (lambda topics: topics.rename(b"a", b"c"), "rename_folder", "/a"),
    "deleting what has the new name": (lambda topics: topics.rename(b"a", b"c"), "rename_folder", "/c"),
}


@pytest.mark.parametrize("work", WORK)
def test_whatever_is_done_to_one_topic_the_others_go_on(work: str) -> None:
    act, operation, path = WORK[work]
    lab = Lab()
    with held_at(lab.files, operation, path) as (reached, goes_on), in_thread(lambda: act(lab.topics)) as did:
        assert reached.wait(PATIENCE_S)
        lab.use_others()
        goes_on.set()
    assert not isinstance(did[0], Exception)
    assert lab.values(b"c") == ([b"of a"] if "c" in path or work == "renaming" else [b"of c"])
    assert lab.values(b"b") == [b"of b"] * 2


def test_a_name_that_nobody_looked_into_keeps_nobody_else_waiting() -> None:
    lab = Lab()
    lab.add(b"new")
    lab.files = FaultyFiles(MemoryFiles(lab.disk.contents()))
    lab.topics = lab.open()
    with held_at(lab.files, "sync", "/new/") as (reached, goes_on), in_thread(lambda: lab.topics.exists(b"new")) as did:
        assert reached.wait(PATIENCE_S)
        assert lab.values(b"b") == [b"of b"] and lab.topics.exists(b"a")
        goes_on.set()
    assert did == [True]


# -- who wants the same name -----------------------------------------------------------------------------------------


def test_who_asks_for_a_topic_that_is_being_opened_gets_the_same() -> None:
    lab = Lab()

    def ask() -> object:
        return lab.topics.get(b"a")

    with held_at(lab.files, "open", "/a/") as (reached, goes_on), in_thread(ask) as first:
        assert reached.wait(PATIENCE_S)
        with in_thread(ask) as second, in_thread(lambda: lab.topics.get_or_make(b"a")) as third:
            wait_until(lambda: len(users(lab.topics, b"a")) == 3)
            assert not second and not third
            goes_on.set()
    assert first == second == third and first[0] is not None


def users(topics: Topics, name: bytes) -> range:
    known = topics._name_locks._locks.get(name)
    return range(known.users if known is not None else 0)


def wait_until(is_so: Callable[[], bool]) -> None:
    end = threading.Event()
    for _ in range(int(PATIENCE_S * 1000)):
        if is_so():
            return
        end.wait(0.001)
    raise AssertionError("it never came about")


def test_who_asks_for_a_topic_that_is_being_deleted_gets_none_and_makes_none() -> None:
    lab = Lab()
    with held_at(lab.files, "rename_folder", "/a") as (reached, goes_on), in_thread(lambda: lab.topics.delete(b"a")):
        assert reached.wait(PATIENCE_S)
        with in_thread(lambda: lab.topics.get(b"a")) as found, in_thread(lambda: lab.topics.delete(b"a")) as deleted:
            wait_until(lambda: len(users(lab.topics, b"a")) == 3)
            goes_on.set()
    assert found == [None] and deleted == [False]
    assert "a" not in lab.disk.list(FOLDER) and lab.topics.names() == [b"b", b"c", b"d"]


def test_who_asks_for_the_new_name_gets_the_topic_that_was_renamed() -> None:
    lab = Lab()
    renames = in_thread(lambda: lab.topics.rename(b"a", b"c"))
    with held_at(lab.files, "rename_folder", "/a") as (reached, goes_on), renames:
        assert reached.wait(PATIENCE_S)
        with in_thread(lambda: lab.values(b"c")) as new, in_thread(lambda: lab.values(b"a")) as old:
            wait_until(lambda: len(users(lab.topics, b"a")) == len(users(lab.topics, b"c")) == 2)
            goes_on.set()
    assert new == [[b"of a"]] and old == [None]


def test_of_topics_that_are_renamed_to_each_others_names_at_the_same_time_one_is_left() -> None:
    lab = Lab()

    def back_and_forth(old: bytes, new: bytes) -> int:
        return sum(lab.topics.rename(old, new) for _ in range(50))

    with in_thread(lambda: back_and_forth(b"a", b"b")) as there, in_thread(lambda: back_and_forth(b"b", b"a")) as back:
        pass
    assert abs(there[0] - back[0]) <= 1 and there[0] + back[0] >= 1
    assert lab.topics.names() in ([b"a", b"c", b"d"], [b"b", b"c", b"d"])
    assert not lab.topics._name_locks.used()


def test_a_topic_that_is_renamed_away_meanwhile_takes_nobodys_place() -> None:
    """Two clients rename the same topic: the second one must not delete what has its new name."""
    lab = Lab()
    first = in_thread(lambda: lab.topics.rename(b"a", b"e"))
    with held_at(lab.files, "rename_folder", "/a") as (reached, goes_on), first as did:
        assert reached.wait(PATIENCE_S)
        with in_thread(lambda: lab.topics.rename(b"a", b"b")) as second:
            wait_until(lambda: len(users(lab.topics, b"a")) == 2)
            goes_on.set()
    assert did == [True] and second == [False]
    assert lab.values(b"b") == [b"of b"] and lab.values(b"e") == [b"of a"]


def test_a_name_that_is_taken_meanwhile_is_not_free() -> None:
    lab = Lab()
    with (
        held_at(lab.files, "rename_folder", "/a") as (reached, goes_on),
        in_thread(lambda: lab.topics.rename(b"a", b"e")),
    ):
        assert reached.wait(PATIENCE_S)
        with in_thread(lambda: lab.topics.rename(b"b", b"e", only_if_free=True)) as second:
            wait_until(lambda: len(users(lab.topics, b"e")) == 2)
            goes_on.set()
    assert second == [False] and lab.values(b"b") == [b"of b"] and lab.values(b"e") == [b"of a"]
    assert lab.topics.rename(b"b", b"f", only_if_free=True) and not lab.topics.rename(b"no", b"f")


def test_whoever_looks_while_a_topic_replaces_another_sees_one_under_the_name() -> None:
    lab = Lab()
    renames = in_thread(lambda: lab.topics.rename(b"a", b"c"))
    with held_at(lab.files, "rename_folder", "/a") as (reached, goes_on), renames:
        assert reached.wait(PATIENCE_S)
        assert lab.topics.names() == [b"a", b"b", b"c", b"d"] and lab.topics.existing() == 4
        goes_on.set()
    assert lab.topics.names() == [b"b", b"c", b"d"]


def test_a_topic_that_another_process_writes_to_is_not_deleted_under_it() -> None:
    lab = Lab()
    held = lab.disk.lock(f"{FOLDER}/a/{TIMED.lock_name}")  # taken before the server began
    assert not isinstance(held, str)
    with pytest.raises(LogLocked):
        lab.topics.delete(b"a")
    assert lab.topics.names() == [b"a", b"b", b"c", b"d"]
    held.release()
    assert lab.topics.delete(b"a") and lab.topics.names() == [b"b", b"c", b"d"]


# -- the end ---------------------------------------------------------------------------------------------------------


def test_who_closes_waits_for_what_is_just_being_opened_and_closes_it_too() -> None:
    lab = Lab()
    with (
        held_at(lab.files, "open", "/a/") as (reached, goes_on),
        in_thread(lambda: lab.topics.get_or_make(b"a")) as did,
    ):
        assert reached.wait(PATIENCE_S)
        with in_thread(lab.topics.close) as closed:
            wait_until(lambda: len(users(lab.topics, b"a")) == 2)
            assert not closed and lab.files.lock_holder(f"{FOLDER}/{LOCK}") is not None
            goes_on.set()
    assert closed == [None] and isinstance(did[0].log.failure, LogClosed)
    assert not list(lab.topics.opened())
    for act in (lambda: lab.topics.get_or_make(b"b"), lambda: lab.topics.delete(b"b")):
        with pytest.raises(LogClosed):
            act()
    lab.topics = lab.open()
    assert lab.topics.names() == [b"a", b"b", b"c", b"d"] and lab.values(b"a") == [b"of a"]


def many(lab: Lab, count: int) -> list[bytes]:
    names = [b"t%02d" % number for number in range(count)]
    for name in names:
        lab.add(name)
        lab.topics.get_or_make(name).add([b"f", b"not written yet"])
    return names


@pytest.mark.parametrize("act", ["close", "delete_all"])
def test_many_topics_wait_for_the_disk_at_the_same_time(act: str) -> None:
    """Some of them do: the first two that come to sync wait for one another, and each is of another topic."""
    lab = Lab(threaded=True)
    names, together = many(lab, 20), threading.Barrier(2)
    came: dict[str, None] = {}

    def meet(operation: str, path: str) -> None:
        topic = path.partition("/")[2].partition("/")[0]
        if operation == "sync" and topic.startswith("t") and topic not in came and len(came) < 2:
            came[topic] = None
            together.wait(PATIENCE_S)

    lab.files.before = meet
    getattr(lab.topics, act)()
    assert len(came) == 2 and not together.broken
    lab.files.before = lambda operation, path: None
    if act == "close":
        lab.topics = lab.open()
        assert [lab.values(name) for name in names] == [[b"of " + name, b"not written yet"] for name in names]
    else:
        assert lab.topics.names() == [] and lab.topics.existing() == 0
    lab.topics.close()


def test_all_topics_of_a_real_folder_are_closed_in_order(tmp_path: Path) -> None:
    lab = Lab(RealFiles(), str(tmp_path / "topics"), threaded=True)
    names = many(lab, 40)
    lab.topics.close()
    lab.topics = lab.open()
    for name in names:
        assert lab.values(name) == [b"of " + name, b"not written yet"]
        topic = lab.topics.get(name)
        assert topic is not None and topic.log.report.was_clean and topic.replayed <= 2  # type: ignore[union-attr]
    lab.topics.close()


def test_what_happened_to_a_topic_is_counted_all_the_time_it_is_closed() -> None:
    lab = Lab()
    lab.add(b"a")
    look = TopicsLook()
    before = look.look(lab.topics).counted
    with held_at(lab.files, "append", "/a/") as (reached, goes_on), in_thread(lambda: lab.topics.delete(b"a")):
        assert reached.wait(PATIENCE_S)
        assert look.look(lab.topics).counted == before
        goes_on.set()
    assert look.look(lab.topics).counted == before and before.added == 1


# -- the locks themselves ----------------------------------------------------------------------------------------------


def test_a_lock_is_there_while_somebody_uses_it() -> None:
    locks = NameLocks()
    with locks.of(b"a", b"b"):
        with locks.of(b"a"), locks.of(b"b", b"b"):
            assert locks.used() == {b"a", b"b"}
        assert locks.used() == {b"a", b"b"}
    assert locks.used() == set()


def test_who_is_broken_off_while_waiting_leaves_no_lock_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(BaseException):
        pass

    class OnALoop:
        """Does not wait."""

        def __enter__(self) -> None:
            raise Broken

        def __exit__(self, *problem: object) -> None:
            raise AssertionError

    locks = NameLocks()
    with locks.of(b"b"):
        locks._locks[b"b"].lock, real = OnALoop(), locks._locks[b"b"].lock  # type: ignore[assignment]
        with pytest.raises(Broken), locks.of(b"a", b"b", b"c"):
            pass
        assert locks.used() == {b"b"}
        locks._locks[b"b"].lock = real
    assert locks.used() == set()
