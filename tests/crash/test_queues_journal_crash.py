"""Power cuts and kills while queues are sent to, received from, cleaned, moved and deleted (case J 76).

What happens to a queue is a row of events: a message came, the head went. Whatever disk a cut leaves shows the queue as
it was behind some of them: not fewer than were promised, not more than were begun. Where changes are answered before
they are synced, a cut may also take messages that came since the last sync; never older ones. A kill takes nothing that
was answered, and under no policy does it make us tell of losses.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest

from journal_lab import LOSS, ROOT, counted_random, mid, number_of
from lamina.engines.queues.journal import moving, paths, state_log
from lamina.engines.queues.journal.folder import QueueFolder
from lamina.engines.queues.journal.home import Home, JournalOptions
from lamina.engines.queues.journal.opening import Opening
from lamina.engines.queues.journal.problem import Problem
from lamina.engines.queues.journal.store import JournalStore
from lamina.engines.queues.message import Message, Queue
from lamina.errors import BadOption, Corruption, StorageError
from lamina.log import ALWAYS, OS, Sync, interval
from lamina.log.files import join, write_all
from lamina.log.files.memory import MemoryFiles
from lamina.testing import ManualClock, PowerLoss, PowerLossState

CAMPAIGN = int(os.environ.get("LAMINA_CAMPAIGN", "0"))
DISKS = int(os.environ.get("LAMINA_DISKS", "800" if CAMPAIGN else "350")) * max(CAMPAIGN, 1)
POLICIES: dict[str, Sync] = {"always": ALWAYS, "interval": interval(1000), "os": OS}
STEPS = 24
RIDS = (bytes(24), b"\xff" * 24)
OPTIONS = JournalOptions(quota=3, max_file_messages=4, open_lines=1, compact_lines=7, sync_threads=1)


@dataclass(frozen=True)
class History:
    """Of one queue: messages that came (their numbers) and heads that went (0)."""

    events: tuple[int, ...] = ()
    written: int = 0
    """So many events a killed server finds again."""
    synced: int = 0
    """And so many are there after a power cut."""
    is_going: bool = False
    """It is being deleted."""

    def waiting(self, count: int) -> list[int]:
        found: list[int] = []
        for event in self.events[:count]:
            if event:
                found.append(event)
            else:
                del found[0]
        return found


@dataclass(frozen=True)
class Moment:
    """What there is, and what was promised of it."""

    queues: dict[bytes, History] = field(default_factory=dict)


class Disk(PowerLoss):
    """A folder is moved with all that is in it, also with names whose removal was not synced.

    PowerLoss knows names by their paths and would leave such a name where the folder was.
    """

    def rename_folder(self, old: str, new: str) -> None:
        self.sync_folder(old)
        super().rename_folder(old, new)


class Story:
    """Random commands."""

    def __init__(self, policy: str, seed: int) -> None:
        self.rng, self.clock = random.Random(seed), ManualClock()
        self.policy = POLICIES[policy]
        self.disk = Disk(model="journalled" if seed % 4 == 3 else "strict")
        self.options = replace(OPTIONS, path_parts=self.rng.choice([4, 5]))
        self.random = counted_random()
        self.problems: list[Problem] = []
        self.histories = {rid: History() for rid in RIDS}
        self.sent = 0
        self.begin()
        self.start()
        for _ in range(STEPS):
            self.clock.advance(self.rng.choice([0, 0.001, 0.5]))
            self.step()
            self.begin()
        self.store.close()
        self.promise(is_synced=self.is_always())
        for each in self.touched:
            self.promise(is_synced=True, only=each)
        self.begin()
        errors = [str(problem) for problem in self.problems if problem.is_error]
        assert not errors, f"a disk that is sound gave cause to {errors}"

    def start(self) -> None:
        self.store = self.opened(self.disk, self.problems)
        self.queues = {rid: Queue(rid, None, bytes(24), None) for rid in RIDS}
        self.touched: set[bytes] = set()
        """Changed since the start: only what this server wrote is its to sync, and what that rests on."""

    def opened(self, files: MemoryFiles, problems: list[Problem]) -> JournalStore:
        return JournalStore(
            ROOT, files, self.clock, self.random, sync=self.policy, options=self.options, tell=problems.append
        )

    def begin(self) -> None:
        self.disk.note(Moment(dict(self.histories)))

    def promise(self, *, is_synced: bool, only: bytes | None = None) -> None:
        for rid, history in self.histories.items():
            if only in (None, rid):
                count = len(history.events)
                self.histories[rid] = replace(history, written=count, synced=count if is_synced else history.synced)

    def is_always(self) -> bool:
        return self.policy is ALWAYS

    # -- telling -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        act = self.rng.random()
        rid = self.rng.choice(RIDS) if self.rng.random() < 0.3 else RIDS[0]
        if act < 0.80:
            self.change(rid)
        elif act < 0.86:
            has_gone = self.store.clean(self.queues[rid])
            self.promise(is_synced=self.is_always())
            if has_gone:
                self.promise(is_synced=True, only=rid)
        elif act < 0.90:
            self.store.sync()
            self.promise(is_synced=self.is_always())
            for each in self.touched:
                self.promise(is_synced=True, only=each)
        elif act < 0.95:
            self.store.push()
            self.promise(is_synced=self.is_always())
            if self.rng.random() < 0.5:  # killed, and started with another depth
                self.options = replace(self.options, path_parts=5)
            with suppress(StorageError):
                self.start()
            if self.rng.random() < 0.3:
                self.store.move_all()
        else:
            self.delete(rid)

    def change(self, rid: bytes) -> None:
        """Some messages come, some heads go, then all is promised."""
        queue = self.queues[rid]
        position = 0
        for _ in range(self.rng.choice([1, 1, 1, 3, 6])):
            size = self.store.size(queue)
            may_put = size < 5
            if may_put and (size == 0 or self.rng.random() < 0.55):
                self.sent += 1
                body = None if self.rng.random() < 0.1 else bytes(self.rng.choice([3, 40, 300]))
                position = self.store.put(queue, Message(mid(self.sent), 1, b"", body))
                self.note(rid, self.sent)
            else:
                head = self.store.head(queue)
                assert head is not None
                assert number_of(head) == self.waiting(rid)[0], f"{number_of(head)} is not {self.histories[rid]}"
                position = self.store.drop_head(queue)
                self.note(rid, 0)
        self.begin()  # from here on they may be there
        if self.rng.random() < 0.8:
            self.store.settle(position)
            self.promise(is_synced=self.is_always())

    def note(self, rid: bytes, event: int) -> None:
        history = self.histories[rid]
        self.touched.add(rid)
        self.histories[rid] = replace(history, events=(*history.events, event))

    def waiting(self, rid: bytes) -> list[int]:
        history = self.histories[rid]
        return history.waiting(len(history.events))

    def delete(self, rid: bytes) -> None:
        self.histories[rid] = replace(self.histories[rid], is_going=True)
        self.begin()
        self.store.delete(self.queues[rid])
        self.histories[rid] = History()
        self.queues[rid] = Queue(rid, None, bytes(24), None)

    # -- checking ----------------------------------------------------------------------------------------------------

    def check(self, share: float) -> Iterator[object]:
        for state in self.disk.states(per_point=12, seed=self.rng.randrange(1 << 30)):
            if self.rng.random() < share:
                if self.rng.random() < 0.05:
                    self.check_two_cuts(state)
                self.check_disk(state)
                yield tuple(sorted(state.files.contents().items()))

    def check_two_cuts(self, state: PowerLossState) -> None:
        """The power goes again while the queues are opened: healing must not lose what the first cut left."""
        disk = Disk(state.files.contents())
        with suppress(BadOption):  # of folders that were just being moved
            store = self.opened(disk, [])
            for rid in RIDS:
                store.messages(Queue(rid, None, bytes(24), None))
        for second in disk.states(per_point=2, seed=self.rng.randrange(1 << 30)):
            label = f"{state.label}, then {second.label}"
            again = PowerLossState(second.files, state.point, state.notes, state.is_kill and second.is_kill, label)
            self.check_disk(again)

    def check_disk(self, state: PowerLossState) -> None:
        moment = next((note for note in reversed(state.notes) if isinstance(note, Moment)), Moment())
        problems: list[Problem] = []
        before = self.options
        for parts in (5, 4):  # whichever is under way
            self.options = replace(before, path_parts=parts)
            try:
                store = self.opened(state.files, problems)
                break
            except Exception as error:
                if "on their way" not in str(error):
                    raise
        self.options = before
        assert not [name for name in state.files.list(ROOT) if name.startswith(".gone")]
        for rid, history in moment.queues.items():
            queue = Queue(rid, None, bytes(24), None)
            shown = [number_of(message) for message in store.messages(queue)]
            found = self.drained(store, queue)
            assert found == shown, f"{state.label}: shown {shown}, received {found}; {history}"
            assert is_possible(history, found, state.is_kill or self.is_always(), state.is_kill), (
                f"{state.label}: found {found}; {history}; told {[str(problem) for problem in problems]}"
            )
            assert store.size(queue) == 0, f"{state.label}: {store.size(queue)}, {history}, {problems}"
            store.settle(store.put(queue, Message(mid(10_000), 1, b"", b"later")))
        if state.is_kill or self.is_always():
            lost = [str(problem) for problem in problems if problem.lost or problem.is_error]
            assert not lost, f"{state.label}: {lost}"
        store.close()
        problems.clear()
        again = JournalStore(
            ROOT,
            state.files,
            self.clock,
            self.random,
            sync=ALWAYS,
            options=replace(self.options, path_parts=store.layout.parts),
            tell=problems.append,
        )
        for rid in moment.queues:
            found = self.drained(again, Queue(rid, None, bytes(24), None))
            assert found == [10_000], f"{state.label}: {found}, told {[str(problem) for problem in problems]}"
        assert not problems, f"{state.label}: {[str(problem) for problem in problems]}"

    def drained(self, store: JournalStore, queue: Queue) -> list[int]:
        found = []
        while (message := store.head(queue)) is not None:
            found.append(number_of(message))
            store.settle(store.drop_head(queue))
        return found


def is_possible(history: History, found: list[int], is_exact: bool, is_kill: bool) -> bool:
    """The queue may look like this behind some number of its events."""
    if history.is_going and not found:
        return True
    if not is_exact:
        found = [number for number in found if number != LOSS]  # what a power cut took is told, too
    promised = history.written if is_kill else history.synced
    if not promised:
        # No line was ever promised: what the message file has may be all that is known, received or not.
        came = iter(event for event in history.events if event)
        return all(number in came for number in found)
    safe = set(history.events[: history.synced])
    for count in range(promised, len(history.events) + 1):
        waiting = history.waiting(count)
        if found == waiting:
            return True
        # Messages that were written, and not yet promised, may count before what was received with them does.
        later = iter(number for number in history.events[count:] if number)
        if found[: len(waiting)] == waiting and all(number in later for number in found[len(waiting) :]):
            return True
        if not is_exact:
            at_most = iter([*waiting, *(number for number in history.events[count:] if number)])
            if all(number in at_most for number in found) and not (safe & set(waiting)) - set(found):
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_j76_kill_at_every_step_of_rotation(policy: str) -> None:
    distinct: set[object] = set()
    seed = 0
    while len(distinct) < DISKS:
        distinct.update(hash(each) for each in Story(policy, seed).check(0.08))
        seed += 1


# -- mistakes that must be noticed -----------------------------------------------------------------------------------


def _state_before_message(monkeypatch: pytest.MonkeyPatch) -> None:
    messages, lines = QueueFolder.write_messages, QueueFolder.write_lines
    log, files, log_done = QueueFolder.sync_log, QueueFolder.sync_messages, QueueFolder.log_is_synced

    def lines_first(self: QueueFolder) -> None:
        self.home.files.make_folder(self.path)
        self.has_folder = True
        lines(self)

    def all_done(self: QueueFolder) -> None:
        log_done(self)
        self.unsynced_files = {}

    monkeypatch.setattr(QueueFolder, "write_messages", lines_first)
    monkeypatch.setattr(QueueFolder, "sync_messages", log)
    monkeypatch.setattr(QueueFolder, "write_lines", messages)
    monkeypatch.setattr(QueueFolder, "sync_log", files)
    monkeypatch.setattr(QueueFolder, "log_is_synced", all_done)


def _messages_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueFolder, "sync_messages", lambda self: None)


def _lines_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueFolder, "sync_log", lambda self: None)


def _old_file_removed_before_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = QueueFolder._switch

    def hasty(self: QueueFolder) -> None:
        old = self.state.read_file
        switch(self)
        if old in self._files and old not in self.growths:
            self.home.files.remove(self.file_path(old))
            self._files.discard(old)
            self.unsynced_files.pop(old, None)

    monkeypatch.setattr(QueueFolder, "_switch", hasty)


def _compacted_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_place(self: state_log.StateLog, lines: list[bytes]) -> None:
        file = self._opened()
        file.truncate(0)
        write_all(file, lines)
        file.sync()
        self.size, self.lines = sum(map(len, lines)), len(lines)

    monkeypatch.setattr(state_log.StateLog, "compact", in_place)


def _compacted_without_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(files: MemoryFiles, folder: str, name: str, content: bytes) -> None:
        with suppress(FileNotFoundError):
            files.remove(join(folder, name + ".new"))
        file = files.create(join(folder, name + ".new"))
        write_all(file, [content])
        files.rename(join(folder, name + ".new"), join(folder, name))
        files.sync_folder(folder)

    monkeypatch.setattr(paths, "replace_file", hasty)


def _folders_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PowerLoss, "do_sync_folder", lambda self, folder: None)


def _folder_removed_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_place(home: Home, rid: bytes, layout: paths.Layout) -> None:
        with suppress(FileNotFoundError):
            home.files.remove_folder(layout.folder(home.root, rid))

    monkeypatch.setattr(moving, "remove_queue", in_place)


def _cleaned_before_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = QueueFolder.begin_cleaning

    def hasty(self: QueueFolder) -> int:
        freed = begin(self)
        for id in [id for id in self.obsolete if id in self._files]:
            self.home.files.remove(self.file_path(id))
            self._files.discard(id)
        return freed

    monkeypatch.setattr(QueueFolder, "begin_cleaning", hasty)


def _what_was_found_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueFolder, "_take_found", lambda self: None)


def _uncommitted_tail_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Opening, "_cut_uncommitted", lambda self, state: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "policy"),
    [
        (_state_before_message, "always"),
        (_messages_not_synced, "always"),
        (_lines_not_synced, "always"),
        (_old_file_removed_before_the_line, "always"),
        (_compacted_in_place, "always"),
        (_compacted_without_a_sync, "always"),
        (_folders_not_synced, "always"),
        (_folder_removed_where_it_is, "always"),
        (_cleaned_before_the_line, "always"),
        (_what_was_found_not_synced, "interval"),
        (_uncommitted_tail_left, "always"),
    ],
)
def test_a_mistake_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    # That it takes two servers, the first of them killed, some stories do not show.
    seeds, share = (range(20, 60), 0.3) if mistake is _what_was_found_not_synced else (range(12), 0.1)
    with pytest.raises((AssertionError, Corruption)):  # one of the checks, or a layout that cannot even be read
        for seed in seeds:
            for _ in Story(policy, seed).check(share):
                pass
