"""Nothing is lost in silence: one file of a data folder is damaged, and whoever checks folders says so.

If a start refuses, or any content differs, then ``lamina doctor --deep``, ``lamina log verify`` (of a store, ``lamina
store verify``) and ``lamina backup`` have said so, with the file, and the byte where there is one. What a trial is and
how to run one alone: trials_lab.py. ``LAMINA_CAMPAIGN=10`` makes twenty times as many.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import trials_lab as lab
from crash.trials_known import KNOWN_SILENT
from trials_folder import PARTS, STORES, Refused, built, content
from trials_lab import Case, Harm, Word

CAMPAIGN = int(os.environ.get("LAMINA_CAMPAIGN", "0"))
EACH = 500 if CAMPAIGN else 50
TRIALS = {"closed": 1000 * max(2 * CAMPAIGN, 1), "killed": 500 * max(2 * CAMPAIGN, 1)}
COUNTS = os.environ.get("LAMINA_TRIALS")
"""A file to which each trial adds a line with its class and its verdict."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of warnings about damage are what is wanted here, and cost more than the trials."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("end", "first"), [(end, first) for end, count in TRIALS.items() for first in range(0, count, EACH)]
)
def test_damage_that_matters_is_said_by_all_who_check(end: str, first: int) -> None:
    counts: Counter[tuple[str, str, str]] = Counter()
    bad: list[str] = []
    for number in range(first, first + EACH):
        case = lab.case(number, end)
        outcome = lab.trial(case)
        counts[case.kind, case.damage, outcome.verdict] += 1
        if outcome.verdict in lab.BAD and not lab.is_known(KNOWN_SILENT[end], outcome):
            bad.append(lab.described(case, outcome))
    sys.stdout.write(lab.table(counts))
    if COUNTS is not None:
        lab.keep(COUNTS, end, counts)
    assert not bad, f"{len(bad)} of {EACH}:\n" + "\n".join(bad[:20])


@pytest.mark.parametrize("end", lab.ENDS)
@pytest.mark.parametrize("store", STORES)
def test_nobody_says_anything_about_a_folder_that_is_whole(store: str, end: str) -> None:
    house = built(store)
    for part in (*PARTS, "folder"):
        whole = lab.parts(lab.image(house, end), part)
        paths = {path.rpartition("/")[0]: path for path in whole if lab.part_of(path) == part}  # one of each folder
        with lab.folder_with(whole) as root:
            for path in paths.values():
                said = {name: word.text for name, word in lab.look(root, path).items() if word.is_damage}
                assert not said, f"{path}: {said}"
                restored = lab.restored(root)
                assert not lab.lost_in_backup(restored, lab.expected_of(house, end, part), house, part)
                shutil.rmtree(Path(root, "backup"))
                shutil.rmtree(Path(root, "restored"))
        found = content(whole, part, store, house.now_ns)
        assert not [each for each in found.values() if isinstance(each, Refused)]


@pytest.mark.parametrize("store", STORES)
def test_the_trials_have_a_folder_with_files_of_every_kind(store: str) -> None:
    kinds = {*lab.kinds_of(store, 0, "closed")} | {*lab.kinds_of(store, 0, "killed")}
    logs = {f"{of}: {which}" for of in ("jobs", "topics", "groups", "logs") for which in ("newest file", "sealed file")}
    stored = {"channel", "rotated channel", "epochs", "rotated epochs", "part", "catalog", "former catalog", "consumer"}
    wanted = logs | {f"store: {kind}" for kind in stored} | {"topics: only file", "jobs: checkpoint", "jobs: consumer"}
    wanted |= {"queues: dump", "queues: sealed file", "queues: newest file", "server's logs: sealed file"}
    wanted |= (
        {"queues: messages", "queues: state", "queues: former state"} if store == "journal" else {"queues: former log"}
    )
    assert not wanted - kinds
    assert sum(map(len, built(store).closed.values())) < 2_000_000


def test_a_folder_for_trials_is_the_same_each_time_it_is_made() -> None:
    assert built.__wrapped__("memory") == built("memory")


def test_every_damage_is_done_to_every_kind_of_file_that_holds_data() -> None:
    done = {(kind, damage) for _, kind, damage in lab.classes_of("closed")}
    for kind in {kind for kind, _ in done}:
        wanted = {lab.FLIP, lab.EMPTY, lab.REMOVE}
        wanted |= set() if kind.endswith(("reserve", "only file")) else {lab.WITHIN}
        assert wanted <= {damage for each, damage in done if each == kind}, kind
    assert ("jobs: newest file", lab.OLDER) in done


# -- the trials themselves ---------------------------------------------------------------------------------------------

FLIPPED = Case("closed", "memory", "logs: sealed file", lab.FLIP, 1)


def lying(root: str, path: str) -> dict[str, Word]:
    """As if nobody had seen anything."""
    return {name: Word(False, "") for name in ("doctor", "verify", "backup")}


def vague(root: str, path: str) -> dict[str, Word]:
    return {name: Word(True, "something is wrong") for name in ("doctor", "verify", "backup")}


def failing(root: str, path: str) -> dict[str, Word]:
    raise IndexError(path)


def endless(root: str, path: str) -> dict[str, Word]:
    time.sleep(60)
    return {}


@pytest.mark.parametrize(
    ("look", "verdict"),
    [(lying, lab.SILENT), (vague, lab.VAGUE), (failing, lab.TRACEBACK), (endless, lab.HANG), (lab.look, lab.SAID)],
)
def test_a_trial_notices_what_a_checker_does(look: object, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "look", look)
    monkeypatch.setattr(lab, "MOST_S", 2)
    outcome = lab.trial(FLIPPED)
    assert outcome.verdict == verdict, lab.described(FLIPPED, outcome)


def test_a_trial_notices_content_that_differs_where_every_file_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("closed", "memory", "folder: reserve", lab.REMOVE, 0)
    assert lab.trial(case).verdict == lab.SAME
    whole = lab.expected_of(built("memory"), "closed", "folder")
    monkeypatch.setattr(lab, "expected_of", lambda *of: {**whole, "users": {}})
    assert lab.trial(case).verdict == lab.SILENT


@pytest.mark.parametrize("kind", ["jobs: sealed file", "store: rotated channel"])
def test_the_commands_say_the_same_as_what_the_trials_call(kind: str) -> None:
    case = Case("closed", "memory", kind, lab.FLIP, 1)
    done = lab.harm(case)
    assert isinstance(done, Harm)
    part = lab.part_of(done.path)
    with lab.folder_with(lab.parts(built("memory").closed, part)) as root:
        lab.write(root, done)
        said = lab.look(root, done.path)
        data, name = Path(root, "data"), done.path.rpartition("/")[2]
        commands = {
            "doctor": ["doctor", "--data", str(data), "--deep"],
            "verify": ["store" if part == "store" else "log", "verify", str(data / part)],
        }
        for tool, words in commands.items():
            result = subprocess.run(
                [sys.executable, "-m", "lamina", *words], capture_output=True, text=True, check=False
            )
            assert (result.returncode == 6) == said[tool].is_damage, result.stderr
            assert "Traceback" not in result.stderr
            assert not said[tool].is_damage or name in result.stdout
