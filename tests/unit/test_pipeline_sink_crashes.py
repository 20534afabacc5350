"""A publication that breaks off is completed by the next attempt: nothing is missing, nothing there twice."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed")
pa = pytest.importorskip("pyarrow", reason="Arrow is not installed")


import sink_lab as lab  # noqa: E402
from lamina.engines.topics import ids  # noqa: E402
from lamina.engines.topics.topics import Topics  # noqa: E402
from lamina.errors import (  # noqa: E402
    DiskFull,
    LaminaError,
    StorageError,
)
from lamina.pipeline.sinking import publishing, sink_folder  # noqa: E402
from lamina.pipeline.sinking.publications import Standing  # noqa: E402
from lamina.pipeline.sinking.publishing import Publisher  # noqa: E402
from lamina.pipeline.sinking.sink_parts import PartWriter, staged_name  # noqa: E402
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles, PowerLoss  # noqa: E402

# -- all of them -------------------------------------------------------------------------------------------------------

SMALL = [[("t", "same"), ("u", "2"), ("t", "same"), ("t", "same")], [("u", "5"), ("t", "same")]]


def publisher(files: MemoryFiles, clock: ManualClock, in_doubt: str = "fail") -> Publisher:
    return Publisher(files, "data", lambda: sink_folder.opened(files, "data", clock), in_doubt, clock)


def commit(files: MemoryFiles, clock: ManualClock, token: str, in_doubt: str = "fail") -> None:
    """Stage and publish the small batch."""
    publishing_ = publisher(files, clock, in_doubt)
    name = staged_name("q", clock.now_ns() // 1_000_000, token)
    parts = []
    for task, entries in enumerate(SMALL):
        out = PartWriter(files, publishing_.staged_folder(name), task)
        for topic, value in entries:
            out.add((topic.encode(), ids.FIRST, [b"value", value.encode()]))
        part = out.finish()
        assert part is not None
        parts.append(part)
    publishing_.commit("q", 0, name, parts, "q")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MOST_ENTRIES", 3)


def as_published(files: MemoryFiles) -> dict[str, list[str]]:
    return {topic: lab.values("data", topic, files) for topic in ("t", "u")}


WHOLE = {"t": ["same"] * 4, "u": ["2", "5"]}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_whatever_a_power_cut_leaves_the_next_attempt_completes(model: str) -> None:
    disk, clock = PowerLoss(model=model), ManualClock()  # type: ignore[arg-type]
    commit(disk, clock, "first")
    disk.note("done")
    assert as_published(MemoryFiles(disk.contents())) == WHOLE
    states = 0
    for state in disk.states():
        commit(state.files, clock, "second")
        assert as_published(state.files) == WHOLE, state.label
        assert not [path for path in state.files.contents() if "_tmp" in path], state.label
        states += 1
    assert states > 200


@pytest.mark.usefixtures("small_chunks")
def test_attempts_break_off_one_behind_the_other() -> None:
    disk, clock = PowerLoss(), ManualClock()
    commit(disk, clock, "first")
    thirds = 0
    for state in list(disk.states())[::2]:
        standing = publisher(state.files, clock).publications.read("q") if state.is_kill else Standing()
        if standing.pending is None or standing.pending.chunk is None:
            continue
        second = PowerLoss(state.files.contents())
        commit(second, clock, "second")
        for again in second.states():
            if again.is_kill:
                commit(again.files, clock, "third")
                assert as_published(again.files) == WHOLE, f"{state.label}; {again.label}"
                thirds += 1
    assert thirds > 100


def test_what_counts_is_kept_however_old_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    files, clock = MemoryFiles(), ManualClock()

    def refuse(*arguments: object) -> None:
        raise DiskFull("no room")

    with monkeypatch.context() as patched, pytest.raises(DiskFull):
        patched.setattr(sink_folder.FolderOutlet, "add", refuse)
        commit(files, clock, "first")
    clock.advance(30 * 86400)
    old = staged_name("gone", 1, "x")
    files.write(f"data/_tmp/{old}/part", b"")
    publisher(files, clock).commit("another", 0, staged_name("another", 2, "y"), [], "another")
    assert not [path for path in files.contents() if old in path]
    commit(files, clock, "second")
    assert as_published(files) == WHOLE


def ids_in(files: MemoryFiles, name: bytes) -> list[int]:
    topics = Topics.open("data/topics", files=files, threaded=False)
    topic = topics.get(name)
    found = [] if topic is None else [int(id) for id, _ in topic.read(ids.FIRST)[0]]
    topics.close()
    return found


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("passed_s", [-10.0, 0.0, 5.0])
@pytest.mark.parametrize("theirs", [1, 2, 5])
def test_entries_of_others_behind_a_crash_are_not_taken_for_ours(passed_s: float, theirs: int) -> None:
    """They publish the very same, and their clock may stand still or be set back."""
    disk, clock = PowerLoss(), ManualClock()
    commit(disk, clock, "first")
    seen = set()
    for state in disk.states():
        if not state.is_kill:
            continue
        later = ManualClock(clock.now_ns() + round(passed_s * 1e9))
        topics, added = Topics.open("data/topics", files=state.files, clock=later, threaded=False), set[int]()
        for _ in range(theirs):
            topic = topics.get_or_make(b"t")
            id, position = topic.add([b"value", b"same"])
            topic.settle(position)
            added.add(id)
        topics.close()
        commit(state.files, later, "second")
        found = as_published(state.files)
        assert sorted(found["t"]) == sorted(WHOLE["t"] + ["same"] * theirs), state.label
        assert found["u"] == WHOLE["u"]
        seen.add(tuple(at for at, id in enumerate(ids_in(state.files, b"t")) if id in added))
    assert len(seen) > 2, "they came at several places between ours"


@pytest.mark.usefixtures("small_chunks")
def test_entries_that_went_meanwhile_are_in_doubt() -> None:
    disk, clock = PowerLoss(), ManualClock()
    commit(disk, clock, "first")
    doubts = 0
    for state in disk.states():
        pending = publisher(state.files, clock).publications.read("q").pending if state.is_kill else None
        if pending is None or pending.chunk is None or not lab.values("data", "t", state.files):
            continue
        before = lab.values("data", "t", state.files)
        topics = Topics.open("data/topics", files=state.files, clock=clock, threaded=False)
        topic = topics.get_or_make(b"t")
        topic.settle(topic.trim_length(0)[1])
        topics.close()
        contents = state.files.contents()
        try:
            commit(state.files, clock, "second")
        except StorageError as error:
            assert "perhaps published" in error.message
            doubts += 1
        for choice in ("skip", "publish"):
            again = MemoryFiles(contents)
            commit(again, clock, "second", choice)
            assert as_published(again)["u"] == WHOLE["u"]
            rest = as_published(again)["t"]
            assert len(before) + len(rest) <= 4 if choice == "skip" else len(before) + len(rest) >= 4
    assert doubts


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("operation", ["append", "sync", "rename", "create", "sync_folder"])
def test_a_disk_that_fails_is_an_error_and_the_next_attempt_completes(operation: str) -> None:
    nth = struck = 0
    while True:
        nth += 1
        disk, clock = MemoryFiles(), ManualClock()
        files = FaultyFiles(disk)
        fault = files.fail(operation, nth=nth)
        try:
            commit(files, clock, "first")  # type: ignore[arg-type]
        except LaminaError:
            struck += 1
        disk.drop_locks()
        commit(disk, clock, "second")
        assert as_published(disk) == WHOLE, (operation, nth)
        if not fault.struck:
            break
    assert struck
