"""A process that writes to a store, killed over and over under load, against an oracle outside of it.

The oracle knows only what the process said (store_writer.py). Rotations, compactions and clean-ups go on meanwhile, and
some processes are killed before they have opened the store. ``LAMINA_CAMPAIGN=10`` kills ten times as often.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import lamina
from crash import store_writer
from crash.store_writer import AT_ONCE, OPTIONS, STORAGE, THREADS, state
from lamina.engines.store.verifying import verify
from lamina.log.files.real import RealFiles

CYCLES = 6 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))


class Oracle:
    """What was promised, over many lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.promised = [0] * THREADS
        self.said = 0
        self.last_epoch = 0

    def live(self, seed: str, seconds: float, *, in_vain: bool = False) -> None:
        """Let a process write for a while, and kill it. ``in_vain``: while it opens."""
        command = [sys.executable, store_writer.__file__, str(self.folder), seed]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stderr is not None
            if in_vain:
                time.sleep(seconds)
            else:
                assert process.stdout.readline() == b"open\n", process.stderr.read().decode()
                time.sleep(seconds)
            process.kill()
            lines, problem = process.communicate()
        assert problem == b"", problem.decode()
        for line in lines.split(b"\n")[:-1]:
            if line != b"open":
                thread, number = map(int, line.split())
                assert number > self.promised[thread]
                self.promised[thread] = number
                self.said += 1

    def check(self) -> None:
        """Everything that was promised is there, each session whole, and nothing else."""
        with lamina.open(self.folder, store=OPTIONS) as data:
            store = data.store
            for thread in range(THREADS):
                found = {each.key: each.value for each in store.scan(STORAGE + thread)}
                number = int(found.get(b"number", b"0"))
                promised = self.promised[thread]
                assert promised <= number <= promised + AT_ONCE, f"thread {thread}: {number}, promised {promised}"
                assert found == state(thread, number), f"thread {thread}: not what it was after session {number}"
                for key, value in found.items():
                    assert store.get(STORAGE + thread, key) == value
                self.promised[thread] = number  # it was read, so it stays
            assert store.last_epoch >= self.last_epoch
            self.last_epoch = store.last_epoch


@pytest.mark.slow
def test_a_killed_process_has_kept_every_promise(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    oracle = Oracle(folder)
    rng = random.Random("store")
    for cycle in range(CYCLES):
        if rng.random() < 0.3:
            oracle.live(f"in vain {cycle}", rng.uniform(0.05, 0.4), in_vain=True)
        oracle.live(f"cycle {cycle}", rng.choice([0.1, 0.5, 1.5]) * rng.random() + 0.05)
        if rng.random() < 0.7:  # else the next process recovers
            oracle.check()
    oracle.check()
    assert oracle.said > CYCLES * 5, "hardly anything was done"
    report = verify(RealFiles(), str(folder / "store"))
    assert report.is_sound, report.damage
    assert report.catalog is not None and report.catalog.generation > 0, "nothing was ever compacted"
