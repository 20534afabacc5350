"""One broken topic is contained: the others go on, and it can be deleted."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from contextlib import suppress

import pytest

from closing_lab import ERRORS, KINDS, Striking, assert_let_go
from lamina.engines.topics import checkpoint, ids
from lamina.engines.topics.topics import Topics
from lamina.errors import DiskError, LaminaError, LogLocked, StorageError
from lamina.log.files.memory import MemoryFiles
from resp_lab import FOLDER, Lab, in_loop

TOPICS = KINDS["topics"]
EVERY_ERROR = pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
_MOST = 100


def opened(files: Striking) -> Topics:
    topics: Topics = TOPICS.open(files)  # type: ignore[arg-type]
    return topics


def used() -> tuple[Striking, Topics]:
    """Topics a, b and c, each with an entry that is there, one under way, and a group."""
    files = Striking()
    topics = opened(files)
    TOPICS.use(topics)
    return files, topics


def shown(topics: Topics, name: bytes) -> list[bytes]:
    topic = topics.get(name)
    assert topic is not None
    return [fields[1] for _, fields in topic.read(ids.FIRST)[0]]


@EVERY_ERROR
def test_when_one_topic_cannot_be_closed_the_others_are_closed_in_order(
    error: Callable[[], BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    for nth in range(1, _MOST):
        files, topics = used()
        caplog.clear()
        files.arm(nth, error, only="topics/b")
        try:
            topics.close()
        except (LaminaError, KeyboardInterrupt) as problem:
            assert isinstance(problem, KeyboardInterrupt) or "topics/b" in str(problem)
        struck = files.struck
        files.disarm()
        assert_let_go(files)
        again = opened(files)
        for name in (b"a", b"c"):
            topic = again.get_or_make(name)
            assert topic.checkpointed and topic.replayed == 0
            assert topic.log.report.was_clean and topic.groups.log.report.was_clean  # type: ignore[union-attr]
            assert shown(again, name) == [b"kept", b"under way"]
        assert shown(again, b"b")[:1] == [b"kept"]
        again.close()
        if not struck:
            break
    assert nth > 5 and not struck


@EVERY_ERROR
@pytest.mark.parametrize("command", ["delete", "rename over it", "delete all"])
def test_a_topic_that_cannot_be_closed_is_deleted_all_the_same(
    error: Callable[[], BaseException], command: str
) -> None:
    acts: dict[str, tuple[Callable[[Topics], object], list[bytes]]] = {
        "delete": (lambda topics: topics.delete(b"b"), [b"a", b"c"]),
        "rename over it": (lambda topics: topics.rename(b"a", b"b"), [b"b", b"c"]),
        "delete all": (lambda topics: topics.delete_all(), []),
    }
    act, left = acts[command]
    for nth in range(1, _MOST):
        files, topics = used()
        files.arm(nth, error, only="topics/b/")  # in it; to rename the folder itself is another thing
        try:
            act(topics)
        except KeyboardInterrupt:
            if command != "rename over it" or topics.get(b"a") is not None:
                act(topics)
        struck = files.struck
        files.disarm()
        assert topics.names() == left
        assert all(shown(topics, name)[0] == b"kept" for name in topics.names())
        topics.close()
        assert_let_go(files)
        if not struck:
            break
    assert nth > 5 and not struck


@EVERY_ERROR
def test_a_topic_that_cannot_be_closed_is_renamed_or_stays_as_it_was(error: Callable[[], BaseException]) -> None:
    for nth in range(1, _MOST):
        files, topics = used()
        files.arm(nth, error, only="topics/b/")
        with suppress(LaminaError, RuntimeError, MemoryError, KeyboardInterrupt):
            topics.rename(b"b", b"new")
        struck = files.struck
        files.disarm()
        with suppress(LaminaError):
            topics.close()
        assert_let_go(files)
        again = opened(files)
        assert again.names() in ([b"a", b"b", b"c"], [b"a", b"c", b"new"])
        assert all(shown(again, name)[0] == b"kept" for name in again.names())
        again.close()
        if not struck:
            break
    assert nth > 5 and not struck


def unreadable(operation: str, path: str) -> None:
    """What is in topic b cannot be read."""
    if f"{FOLDER}/b" in path:
        raise OSError(errno.EIO, "Input/output error", path)


def mistaken(operation: str, path: str) -> None:
    """As if the code that opens topics had a mistake that only b shows."""
    if f"{FOLDER}/b/" in path and operation != "rename_folder":
        raise RuntimeError("a mistake of ours")


async def left_alone(lab: Lab) -> None:
    """Topics a, b and c, of which none is open."""
    caller = lab.caller()
    for name in "abc":
        await caller.ask(f"XADD {name} 1-1 f v", f"XGROUP CREATE {name} g 0")
    lab.topics.close()
    lab.topics = lab.house.topics = lab.opened(lab.files)


BREAKS = pytest.mark.parametrize("breaks", [unreadable, mistaken])


@BREAKS
@in_loop
async def test_a_topic_that_cannot_be_opened_says_which_it_is_and_the_others_go_on(
    breaks: Callable[[str, str], None],
) -> None:
    lab = Lab()
    await left_alone(lab)
    lab.files.before = breaks
    caller = lab.caller()
    for command in ("XADD b * f v", "XLEN b", "XRANGE b - +", "XINFO STREAM b", "XREADGROUP GROUP g me STREAMS b >"):
        told = await caller.ask_one(command)
        assert told.startswith(b"MISCONF ") and b"topics/b" in told and b";" in told, command
    assert await caller.ask_one("KEYS *") == [b"a", b"b", b"c"]
    assert await caller.ask_one("DBSIZE") == 3
    assert (await caller.ask_one("SCAN 0"))[1].sort() is None
    assert await caller.ask_one("XLEN a") == 1
    assert list(lab.topics.broken()) == [b"b"] and "topics/b" in lab.topics.broken()[b"b"]
    lab.topics.close()
    assert lab.disk.locks == set() and lab.disk.handles == set()


@in_loop
async def test_a_topic_that_cannot_be_opened_can_be_deleted() -> None:
    lab = Lab()
    await left_alone(lab)
    lab.files.before = mistaken
    caller = lab.caller()
    assert await caller.ask_one("DEL b") == 1
    assert await caller.ask_one("KEYS *") == [b"a", b"c"]
    assert lab.topics.broken() == {}
    lab.files.before = lambda operation, path: None
    assert await caller.ask("XADD b 1-1 f v", "XLEN b") == [b"1-1", 1]


@in_loop
async def test_a_topic_is_not_broken_any_more_once_it_opens() -> None:
    lab = Lab()
    await left_alone(lab)
    lab.files.before = unreadable
    caller = lab.caller()
    await caller.ask_one("XLEN b")
    assert list(lab.topics.broken()) == [b"b"]
    lab.files.before = lambda operation, path: None
    assert await caller.ask_one("XLEN b") == 1
    assert lab.topics.broken() == {}


@in_loop
async def test_a_topic_whose_log_failed_is_broken() -> None:
    lab = Lab()
    caller = lab.caller()
    await caller.ask("XADD a 1-1 f v", "XADD b 1-1 f v")
    lab.files.fail("sync", only=f"{FOLDER}/b/")
    with pytest.raises(StorageError):
        lab.topic("b").sync(lab.topic("b").newest_position())
    assert list(lab.topics.broken()) == [b"b"] and "reopen" in lab.topics.broken()[b"b"]


def test_one_that_cannot_be_deleted_does_not_keep_the_others() -> None:
    files, topics = used()
    meets = files.meets

    def refuse(operation: str, path: str) -> None:
        if operation == "rename_folder" and path == "topics/b":
            raise OSError(errno.EIO, "Input/output error", path)
        meets(operation, path)

    files.meets = refuse  # type: ignore[method-assign]
    with pytest.raises(DiskError, match="topics/b"):
        topics.delete_all()
    assert topics.names() == [b"b"]


def test_a_topic_that_somebody_else_writes_to_is_not_deleted_and_is_named() -> None:
    files, topics = used()
    topics.close()
    topics = opened(files)
    held = files.disk.lock("topics/b/lamina.lock")
    assert not isinstance(held, str)
    with pytest.raises(LogLocked):
        topics.delete(b"b")
    assert topics.names() == [b"a", b"b", b"c"]
    held.release()
    assert topics.delete(b"b")


def test_a_checkpoint_that_cannot_be_made_is_told_with_the_topic_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake of ours in what is written at the end."""

    def save(files: object, folder: str, *more: object) -> None:
        if folder == "topics/b":
            raise OverflowError("int too large to convert")
        original(files, folder, *more)  # type: ignore[arg-type]

    original = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", save)
    files, topics = used()
    topics.close()
    assert_let_go(files)
    (told,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "topics/b: no checkpoint" in told.getMessage() and "int too large" in told.getMessage()
    again = opened(Striking(MemoryFiles(files.disk.contents())))
    assert shown(again, b"b") == shown(again, b"a") == [b"kept", b"under way"]
    assert again.get_or_make(b"a").checkpointed and not again.get_or_make(b"b").checkpointed
