"""Scenarios of seed 001: a folder is built as the scenario says, opened, drained, and compared with what it expects.

Offsets in a scenario are given as records; they are translated to bytes of our files. A line of five fields stands as
it is: that is what the seed writes.
"""

from __future__ import annotations

import re
import shutil
from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from golden.queue_words import KNOWN_IN_JOURNALS, known
from lamina.clock import ManualClock
from lamina.engines.queues import ids
from lamina.engines.queues.journal import copies, paths, records, state_line
from lamina.engines.queues.journal.home import JournalOptions
from lamina.engines.queues.journal.problem import Problem
from lamina.engines.queues.journal.state_line import StateLine
from lamina.engines.queues.journal.store import JournalStore
from lamina.engines.queues.message import Message, Queue
from lamina.log import ALWAYS
from lamina.log.files.real import RealFiles

Scenario = dict[str, Any]
SECOND = 1_000_000_000
_READ_AT = re.compile(r"read_at=(?:record:(\d+)|(\w+))")
_READ_FILE = re.compile(r"read_file=(\S+)")


def run(scenario: Scenario, folder: Path) -> None:
    """Raises: AssertionError where we do otherwise."""
    build(scenario, folder / "built")
    _check_open_and_drain(scenario, _copied(folder, "drained"))
    if "next_send" in scenario:
        house = House(scenario, _copied(folder, "sent"))
        assert house.send() == scenario["next_send"]
    if "retention_keeps" in scenario:
        _check_retention(scenario)


def _copied(folder: Path, name: str) -> Path:
    return Path(shutil.copytree(folder / "built", folder / name))


# -- building --------------------------------------------------------------------------------------------------------


def build(scenario: Scenario, root: Path) -> None:
    root.mkdir(parents=True)
    layout, starts = scenario["layout"], {}
    for name, entry in layout.items():
        if entry["kind"] == "messages":
            data, offsets = _message_file(entry)
            starts[name] = offsets
            _write(root / name, data)
    for name, entry in layout.items():
        if entry["kind"] == "text":
            _write(root / name, _text(name, entry, starts))
        elif entry["kind"] == "empty folder marker":
            (root / name).parent.mkdir(parents=True, exist_ok=True)
    if old := scenario.get("old_path_parts"):
        chars = scenario["config"].get("part_chars", 2)
        paths.write_layout(RealFiles(), str(root), paths.Layout(old, chars))


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _message_file(entry: Scenario) -> tuple[bytes, list[int]]:
    """Its bytes, and where each record begins behind the header; last, where they end."""
    data, offsets = records.HEADER, [0]
    for number, record in enumerate(entry["records"]):
        data += records.encode(record["ts"] * SECOND + number, _message(record))
        offsets.append(len(data) - len(records.HEADER))
    torn = entry.get("torn_tail_bytes", 0)
    if torn:
        whole = records.encode(0, Message(bytes(24), 0, b"", b"cut in two" * (1 + torn // 10)))
        data += whole[:torn]
    elif entry.get("torn_tail"):
        data += entry["torn_tail"].encode()
    return data, offsets


def _message(record: Scenario) -> Message:
    id = ids.parse(record["id"].encode())
    assert id is not None
    if record.get("quota"):
        return Message(id, record["ts"], b"", None)
    return Message(id, record["ts"], record["flags"].encode(), b64decode(record["body_b64"]))


def _text(name: str, entry: Scenario, starts: dict[str, list[int]]) -> bytes:
    parent = name.rpartition("/")[0]

    def translated(line: str) -> str:
        def in_bytes(found: re.Match[str]) -> str:
            file = _READ_FILE.search(line)
            offsets = starts.get(f"{parent}/{records.name_of(file[1])}", [0]) if file else [0]
            record = int(found[1] or 0)
            return f"read_byte={offsets[record] if record < len(offsets) else 0}"

        return _READ_AT.sub(in_bytes, line)

    text = "".join(f"{translated(line)}\n" for line in entry["lines"])
    return (text + translated(entry.get("torn_tail", ""))).encode()


# -- looking ---------------------------------------------------------------------------------------------------------


class House:
    """The store of a scenario, and its one queue."""

    def __init__(self, scenario: Scenario, root: Path) -> None:
        config = scenario["config"]
        self.root = root
        self.clock = ManualClock(scenario["now"] * SECOND)
        self.problems: list[Problem] = []
        self.quota = config["max_queue_messages"]
        self.options = JournalOptions(
            quota=self.quota,
            max_file_messages=config["max_file_messages"],
            path_parts=config["path_parts"],
            part_chars=config["part_chars"],
            keep_copies=config["keep_copies"],
            keep_copy_days=config["keep_copy_days"],
            open_lines=1,
        )
        numbers = iter(range(1, 1000))
        self.store = JournalStore(
            str(root),
            RealFiles(),
            self.clock,
            lambda count: next(numbers).to_bytes(count),
            sync=ALWAYS,
            options=self.options,
            tell=self.problems.append,
        )
        rid = ids.parse(scenario["rid"].encode())
        assert rid is not None
        self.queue = Queue(rid, None, bytes(24), None)
        self.folder = root / scenario["folder"]
        self._next_id = 0

    def send(self) -> str:
        """As the engine does: rules of 2.4."""
        store, queue = self.store, self.queue
        self._next_id += 1
        id, now = self._next_id.to_bytes(24), self.clock.now_ns() // SECOND
        size = store.size(queue)
        if size and store.is_closed(queue):
            return "QUOTA"
        if size >= self.quota:
            store.settle(store.put(queue, Message(id, now, b"", None)))
            return "QUOTA"
        store.settle(store.put(queue, Message(id, now, b"F", b"sent later")))
        assert store.messages(queue)[-1].id == id
        return "OK"

    def drain(self) -> list[str]:
        got = []
        while (message := self.store.head(self.queue)) is not None:
            got.append(ids.show(message.id))
            self.store.settle(self.store.drop_head(self.queue))
        return got

    def state(self) -> StateLine:
        return self.store._queues.folder(self.queue).state

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []

    def message_files(self) -> list[str]:
        return [name for name in self.names() if name.startswith("messages.")]


def _check_open_and_drain(scenario: Scenario, root: Path) -> None:
    house = House(scenario, root)
    store, queue = house.store, house.queue
    before = _names_of(scenario)
    assert store.size(queue) == scenario["size_at_open"]
    assert store.is_closed(queue) is not scenario["can_write_at_open"]
    told = sorted(known(problem.kind, KNOWN_IN_JOURNALS) for problem in house.problems)
    assert told == sorted(known(kind, KNOWN_IN_JOURNALS) for kind in scenario["warnings"])
    if "lost_messages" in scenario:
        _check_lost(scenario["lost_messages"], house.problems)
    _check_files(scenario, house, before)
    _check_state(scenario, house)
    expected = [each["id"] for each in scenario["deliver_all"]]
    assert [ids.show(message.id) for message in store.messages(queue)] == expected
    assert house.drain() == expected
    if "files_after_drain" in scenario:
        assert [name for name in house.names() if name not in copies.copies_among(house.names())] == sorted(
            scenario["files_after_drain"]
        )
    if "next_send_after_drain" in scenario:
        assert house.send() == scenario["next_send_after_drain"]
    if "old_path_parts" in scenario:
        assert store.move_all().refused == 0
        assert paths.read_layout(RealFiles(), str(root)) == (store.layout, store.layout)
        old = root / scenario["old_folder"]
        assert not old.exists()
        assert not old.parent.exists() or any(old.parent.iterdir())
    store.close()
    _check_that_it_opens_again(scenario, root)


def _check_lost(expected: int, problems: list[Problem]) -> None:
    """Of a read file that is not there a line of five fields does not say how much it held."""
    lost = sum(problem.lost for problem in problems)
    is_known = all(problem.kind != "read_file_missing" for problem in problems)
    assert lost == expected if is_known else lost <= expected


def _names_of(scenario: Scenario) -> set[str]:
    """In the folder of the queue, wherever that was."""
    folders = (scenario["folder"], scenario.get("old_folder"))
    return {file for parent, _, file in (name.rpartition("/") for name in scenario["layout"]) if parent in folders}


def _check_files(scenario: Scenario, house: House, before: set[str]) -> None:
    names = house.names()
    removed = {name for name in before if name.startswith("messages.")} - set(names)
    assert sorted(removed) == sorted(scenario["removed_at_open"])
    if "files_after_open" in scenario:
        assert names == sorted(scenario["files_after_open"])
    if "queue_log_lines_after_open" in scenario:
        text = (house.folder / "queue.log").read_bytes()
        assert text.count(b"\n") == scenario["queue_log_lines_after_open"]
        assert text.endswith(b"\n")
        assert b"write_files" not in text
    if "copies_after_open" in scenario:
        assert len(copies.copies_among(names)) == scenario["copies_after_open"]
    if "old_folder" in scenario:
        assert not _old_path(scenario, house).exists()
        assert house.folder.is_dir()


def _old_path(scenario: Scenario, house: House) -> Path:
    """Where this queue was; another one may still be at the old depth."""
    layout = paths.Layout(scenario["old_path_parts"], scenario["config"]["part_chars"])
    return Path(layout.folder(str(house.root), house.queue.rid))


def _check_state(scenario: Scenario, house: House) -> None:
    expected = scenario["state_at_open"]
    if expected is None:
        assert house.message_files() == []
        return
    state = house.state()
    found = {name: getattr(state, name) for name in ("read_file", "read_msg", "write_file", "write_msg")}
    assert found == {name: expected[name] for name in found}
    at = re.fullmatch(r"record:(\d+)", expected.get("read_at", ""))
    if at is not None:
        file = (house.folder / records.name_of(state.read_file)).read_bytes()
        assert state.read_byte == _start_of(file, int(at[1]))


def _start_of(file: bytes, record: int) -> int:
    from lamina.log import kernel

    header = len(records.HEADER)
    found = kernel.scan(file, header, len(file))
    ends = [offset + length + 4 - header for offset, length in zip(found.offsets, found.lengths, strict=True)]
    return [0, *ends][record]


def _check_that_it_opens_again(scenario: Scenario, root: Path) -> None:
    """What was odd was healed: the second time there is nothing to tell."""
    house = House(scenario, root)
    expected = 1 if scenario.get("next_send_after_drain") == "OK" else 0
    assert house.store.size(house.queue) == expected
    assert house.problems == []
    lines: Iterable[bytes] = ()
    if (house.folder / "queue.log").exists():
        lines = (house.folder / "queue.log").read_bytes().splitlines()
    assert all(state_line.parse(line) is not None for line in lines)
    house.store.close()


def _check_retention(scenario: Scenario) -> None:
    config = scenario["config"]
    names = copies.copies_among(_names_of(scenario))
    going = copies.to_remove(names, scenario["now"] * SECOND, config["keep_copies"], config["keep_copy_days"])
    assert sorted(going) == sorted(scenario["retention_removes"])
    assert sorted(set(names) - set(going)) == sorted(scenario["retention_keeps"])
