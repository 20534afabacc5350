"""Power cuts and kills while positions are saved and tidied: the old one or the new one, whole, and none that is later
than what was saved."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from lamina.log import consumers
from lamina.log.files.real import RealFiles
from lamina.testing import MemoryFiles, PowerLoss
from lamina.testing.powerloss import Model
from queues_store_lab import FOLDER as QUEUES
from queues_store_lab import StoreLab, ack, create, message

FOLDER, NAME = "log", "export"
NOW = 1_700_000_000_000_000_000
HOUR = 3600 * 10**9
ROUNDS = 4 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))


def begun(model: str) -> PowerLoss:
    """A disk with a log folder that has been there for long."""
    return PowerLoss({f"{FOLDER}/000000001.log": b"lmlg\0\0\0\1"}, model=cast("Model", model))


@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_a_power_cut_leaves_the_position_that_was_promised_or_the_one_being_saved(model: str) -> None:
    disk = begun(model)
    for position in (5, 7, 3, 9):
        consumers.save(disk, FOLDER, NAME, position, NOW + HOUR, now_ns=NOW)
        disk.note(position)
    following = {0: {None, 5}, 5: {5, 7}, 7: {7, 3}, 3: {3, 9}, 9: {9}}
    seen = set()
    for state in disk.states():
        promised = cast("int", state.notes[-1]) if state.notes else 0
        found = consumers.held_after(state.files, FOLDER, NOW)
        assert found in following[promised], state.label
        assert all(one.damage is None for one in consumers.find(state.files, FOLDER)), state.label
        consumers.tidy(state.files, FOLDER, NOW)
        assert consumers.held_after(state.files, FOLDER, NOW) == found, state.label
        seen.add(found)
    assert seen == {None, 3, 5, 7, 9}


@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_a_power_cut_while_expired_and_unreadable_ones_are_tidied_frees_nothing_that_is_held(model: str) -> None:
    disk = begun(model)
    consumers.save(disk, FOLDER, "over", 1, NOW + 1, now_ns=NOW)
    consumers.save(disk, FOLDER, "back", 4, NOW + 1, now_ns=NOW)
    consumers.save(disk, FOLDER, "living", 6, NOW + HOUR, now_ns=NOW)
    start = disk.points
    rename = disk.rename

    def meanwhile(old: str, new: str) -> None:
        if "~aside-" in new and old.endswith("back"):
            disk.rename = rename  # type: ignore[method-assign]
            consumers.save(disk, FOLDER, "back", 5, NOW + HOUR, now_ns=NOW + 1)
            disk.note("came back")
        rename(old, new)

    disk.rename = meanwhile  # type: ignore[method-assign]
    consumers.tidy(disk, FOLDER, NOW + 1)
    disk.note("tidied")
    count = 0
    for state in disk.states():
        if state.point < start:
            continue
        count += 1
        held = {one.name: one.position for one in consumers.holding(state.files, FOLDER, NOW + 1)}
        assert held["living"] == 6, state.label
        assert "over" not in held, state.label
        if "came back" in state.notes:
            assert held["back"] == 5, state.label
        consumers.tidy(state.files, FOLDER, NOW + 1)
        again = {one.name: one.position for one in consumers.holding(state.files, FOLDER, NOW + 1)}
        assert again == held, state.label
        assert all("~aside" not in name for name in state.files.list(f"{FOLDER}/consumers")), state.label
    assert count > 10


@pytest.mark.parametrize("model", ["strict", "journalled"])
def test_a_power_cut_while_a_dump_keeps_logs_for_a_consumer_gives_the_same_queues(model: str) -> None:
    disk = PowerLoss(model=cast("Model", model))
    lab = StoreLab(disk)
    now = lab.clock.now_ns()
    moments = [lab.seen()]
    consumers.save(disk, QUEUES, NAME, 0, now + HOUR, now_ns=now)
    positions = []
    for number in range(3):
        for record in (ack("a", f"m{number - 1}") if number else create("a"), message("a", f"m{number}")):
            lab.do(record)
            moments.append(lab.seen())
            disk.note(len(moments) - 1)
        positions.append(lab.engine.log.written)
        if number == 2:
            consumers.save(disk, QUEUES, NAME, positions[0], now + HOUR, now_ns=now)
        lab.dumper.dump()
    assert {"smp-server-store-1.log", "smp-server-store-2.log"} <= set(lab.names())
    assert "smp-server-store-0.log" not in lab.names()
    for state in disk.states(per_point=40):
        if not state.files.names:
            continue
        promised = cast("int", state.notes[-1]) if state.notes else 0
        found = StoreLab(MemoryFiles(state.files.contents()))
        assert found.seen() in moments[promised : promised + 2], state.label


SAVER = """
import sys
from lamina.log import consumers
from lamina.log.files.real import RealFiles
folder, position = sys.argv[1], int(sys.argv[2])
while True:
    position += 1
    consumers.save(RealFiles(), folder, "export", position, 1 << 62)
    sys.stdout.write(f"{position}\\n")
    sys.stdout.flush()
"""


def test_a_killed_saver_leaves_what_it_was_told_is_saved_or_the_next(tmp_path: Path) -> None:
    rng, files, folder = random.Random(7), RealFiles(), str(tmp_path)
    position = 0
    for _ in range(ROUNDS):
        command = [sys.executable, "-c", SAVER, folder, str(position)]
        told = position
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as saver:
            assert saver.stdout is not None
            goal = position + rng.randint(1, 40)
            for line in saver.stdout:
                told = int(line)
                if told >= goal:
                    saver.send_signal(signal.SIGKILL)
                    break
            told = max([told, *(int(line) for line in saver.stdout if line.endswith("\n"))])
        (one,) = consumers.find(files, folder)
        assert one.damage is None and one.position in (told, told + 1)
        position = one.position
        consumers.tidy(files, folder, NOW)
        assert consumers.held_after(files, folder, NOW) == position
