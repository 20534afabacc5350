"""Damage trials: one file of a data folder is damaged, and whoever checks folders has to say so before it matters.

    python -m trials_lab [COUNT] [closed|killed]                  from tests/, prints what became of them, by class
    python -m trials_lab counts FILE                              what a campaign has counted
    python -m trials_lab only KIND DAMAGE [NUMBER ...] [memory|journal] [closed|killed]     those of one class

The rule: if a start refuses or any content differs, then ``lamina doctor --deep``,
``lamina log verify`` (of a store, ``lamina store verify``) and ``lamina backup`` have each said so, with the file, and
with the byte where there is one. They look at the folder first, and change nothing in it. A
backup of which nobody says anything gives the same content when it is restored, also where a start gets round the
damage by a checkpoint that is no part of a backup.

Folders of the real workq are left out: its format has nothing that could tell what is missing.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from click.testing import CliRunner

from crash.trials_known import KNOWN_SILENT
from lamina.cli import doctor_folder
from lamina.cli.backup import backup
from lamina.cli.doctor_finding import PROBLEM, WARNING
from lamina.cli.tree import lamina
from lamina.errors import BadOption, LaminaError
from lamina.log.files import join
from lamina.log.files.memory import MemoryFiles
from lamina.log.files.real import RealFiles
from lamina.log.scan import FileScan
from trials_folder import DATA, PARTS, STORES, Built, Content, Contents, Refused, built, content

SAME: Final = "same"
SAID: Final = "said"
TAIL: Final = "tail"
"""Of a folder that was not closed: the last change of one log is missing, and nothing else."""
VAGUE: Final = "vague"
"""All have said so, but one without the file, or without the byte."""
TRIMMED: Final = "trimmed"
"""The folder is as it was, and its backup is not, without a word."""
SILENT: Final = "silent"
TRACEBACK: Final = "traceback"
HANG: Final = "hang"
VERDICTS: Final = (SAME, SAID, TAIL, VAGUE, TRIMMED, SILENT, TRACEBACK, HANG)
BAD: Final = (VAGUE, TRIMMED, SILENT, TRACEBACK, HANG)

FLIP, ZERO, RECORD, WITHIN, EMPTY, REMOVE, OLDER = DAMAGES = (
    "flip",
    "zero",
    "cut at a record",
    "cut within one",
    "cut to 0",
    "remove",
    "older",
)
ENDS: Final = ("closed", "killed")
_OF_ONE: Final = 25  # trials of a class that one folder is used for
_SECTOR: Final = 512
MOST_S = 20.0
_MAGIC: Final = (b"lm", b"wq")


class Hang(BaseException):
    """It took too long."""


class Harm(NamedTuple):
    """What is done to a file."""

    seed: int
    """Of the folder."""
    kind: str
    damage: str
    path: str
    offset: int
    """Of the first byte that changes."""
    data: bytes | None
    """What is in the file now; None: it is gone."""


class Outcome(NamedTuple):
    """What became of a trial."""

    verdict: str
    harm: Harm
    differs: dict[str, str]
    """What was not as before: what became of it."""
    silent: tuple[str, ...] = ()
    """Who did not say so."""
    said: dict[str, str] = {}  # noqa: RUF012
    problem: str = ""


# -- kinds of files, and what can be done to them ----------------------------------------------------------------------


def part_of(path: str) -> str:
    part = path.split("/")[1]
    return part if part in PARTS else "folder"


@cache
def kinds_of(store: str, seed: int, end: str) -> dict[str, list[str]]:
    """All files of a data folder, by kind. A kind that nobody has heard of is one of its own."""
    contents = image(built(store, seed), end)
    logs: dict[str, list[str]] = {}
    for path in contents:
        folder, _, name = path.rpartition("/")
        if re.fullmatch(r"[^/]*\d[^/]*\.(log|dat)", name):
            logs.setdefault(folder, []).append(path)
    dumps = [int(match[1]) for path in contents if (match := re.search(r"store-(\d+)\.dump$", path))]
    found: dict[str, list[str]] = {}
    for path in sorted(contents):
        if not path.endswith("lock"):
            found.setdefault(_kind(path, logs, max(dumps, default=-1)), []).append(path)
    return found


_SHAPES: Final = (
    (r"\.index$", "index"),
    (r"/checkpoint$", "checkpoint"),
    (r"/consumers/", "consumer"),
    (r"/messages/.*/messages\..*\.log$", "messages"),
    (r"/messages/.*/queue\.log$", "state"),
    (r"/messages/.*/queue\.\d.*\.log$", "former state"),
    (r"/compaction_catalog$", "catalog"),
    (r"/compaction_catalog\.\d+$", "former catalog"),
    (r"/pwal_compacted", "part"),
    (r"/pwal_\d+\.", "rotated channel"),
    (r"/pwal_\d+$", "channel"),
    (r"/epoch\.", "rotated epochs"),
    (r"/epoch$", "epochs"),
    (r"/runs/", "run"),
)


def _kind(path: str, logs: Mapping[str, list[str]], newest_dump: int) -> str:
    of, (folder, _, name) = part_of(path), path.rpartition("/")
    if of == "topics" and "/groups/" in path:
        of = "groups"
    elif of == "logs" and "/lamina." in path:
        of = "server's logs"
    for pattern, shape in _SHAPES:
        if re.search(pattern, path):
            return f"{of}: {shape}"
    if match := re.fullmatch(r"smp-server-store-(\d+)\.(log|dump)", name):
        number, is_dump = int(match[1]), match[2] == "dump"
        if number < newest_dump or (number == newest_dump and not is_dump):  # only the past needs it
            return f"{of}: former {match[2]}"
        if is_dump:
            return f"{of}: dump"
    like = logs.get(folder, [])
    if path not in like:
        return f"{of}: {re.sub(r'[0-9]+', 'N', name)}"
    if len(like) == 1:
        return f"{of}: only file"
    return f"{of}: newest file" if path == max(like, key=lambda each: (len(each), each)) else f"{of}: sealed file"


class Case(NamedTuple):
    """What makes a trial: the same case is the same trial."""

    end: str
    """How the folder was left: one of ENDS."""
    store: str
    kind: str
    damage: str
    number: int

    def __str__(self) -> str:
        return f'"{self.kind}" "{self.damage}" {self.number} {self.store} {self.end}'


def case(number: int, end: str) -> Case:
    """The one of this number: one class after the other, so that each gets as many as any."""
    classes = classes_of(end)
    return Case(end, *classes[number % len(classes)], number // len(classes))


@cache
def classes_of(end: str) -> list[tuple[str, str, str]]:
    """Store, kind and damage of all that can be done."""
    found = []
    for store in STORES:
        for kind in kinds_of(store, 0, end):
            if store == "memory" or kind.startswith("queues"):
                found += [(store, kind, damage) for damage in DAMAGES]
    random.Random(end).shuffle(found)
    return [each for each in found if harm(Case(end, *each, 0)) is not None]


def harm(case: Case) -> Harm | None:
    """None if that cannot be done to any file of this kind."""
    rng = random.Random(str(case))
    for seed in dict.fromkeys([case.number // _OF_ONE, 0]):
        house = built(case.store, seed)
        whole = image(house, case.end)
        paths = kinds_of(case.store, seed, case.end).get(case.kind, [])
        for path in rng.sample(paths, len(paths)):
            done = _damaged(whole[path], case.damage, _older(house, path, whole[path], rng), rng)
            if done is not None:
                return Harm(seed, case.kind, case.damage, path, *done)
    return None


def _older(house: Built, path: str, data: bytes, rng: random.Random) -> bytes | None:
    """One of the earlier copies of a file, if there was another."""
    copies = [copy for older in house.older if (copy := older.get(path)) not in (None, data)]
    return rng.choice(copies) if copies else None


def image(house: Built, end: str) -> Contents:
    return house.closed if end == "closed" else house.running


def _damaged(data: bytes, damage: str, older: bytes | None, rng: random.Random) -> tuple[int, bytes | None] | None:
    """Where it begins, and what is left; None if that cannot be done to this file."""
    if damage == REMOVE:
        return 0, None
    if damage == OLDER:
        return None if older is None else (_first_difference(data, older), older)
    if not data:
        return None
    if damage == EMPTY:
        return 0, b""
    if damage == FLIP:
        at = rng.randrange(len(data))
        return at, data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if damage == ZERO:
        at = rng.randrange(len(data)) // _SECTOR * _SECTOR
        gone = min(_SECTOR, len(data) - at)
        return None if not any(data[at : at + gone]) else (at, data[:at] + bytes(gone) + data[at + gone :])
    places = [at for at in _boundaries(data) if 0 < at < len(data)]
    if damage == WITHIN:
        places = sorted({*range(1, len(data))} - {*places})
    if not places:
        return None
    at = rng.choice(places)
    return at, data[:at]


def _first_difference(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _boundaries(data: bytes) -> list[int]:
    """Where a record of the file begins, or a line."""
    if not data.startswith(_MAGIC):
        return [at + 1 for at, byte in enumerate(data) if byte == 0x0A]
    found = [8]
    file = MemoryFiles({"a/file": data}).open("a/file")
    for batch in FileScan(file):
        found += [batch.record_offset(at) for at in range(len(batch.times))]
        found.append(batch.end)
    return sorted({*found})


# -- those who check ---------------------------------------------------------------------------------------------------


class Word(NamedTuple):
    """What one of them said."""

    is_damage: bool
    text: str


def tools_for(kind: str) -> tuple[str, ...]:
    """Who has to say so. What is no log is no matter of ``log verify``; a backup leaves out what holds no records."""
    if kind.endswith(": consumer") or kind == "folder: users.json":
        return ("doctor",)
    return ("doctor", "backup") if kind.startswith("folder: ") else ("doctor", "verify", "backup")


def look(root: str, path: str) -> dict[str, Word]:
    """Ask all of them about a data folder in which this file may be damaged. Raises: what none of them should."""
    data = os.path.join(root, DATA)
    folder = os.path.join(root, re.sub(r"/(consumers|ctrl|messages)$", "", path.rpartition("/")[0]))
    list(doctor_folder.look(data))  # quickly: it need not see it, but has to get through
    words = {"doctor": _doctor(data)}
    if part_of(path) == "store":
        said = [_ask("store", "verify", folder, "--json"), _ask("log", "verify", folder, "--json")]
        words["verify"] = Word(any(word.is_damage for word in said), " ".join(w.text for w in said if w.is_damage))
    elif part_of(path) != "folder":
        words["verify"] = _ask("log", "verify", folder, "--json")
    place = os.path.join(root, "backup")
    made = _ask("backup", data, "--to", place, "--json")
    words["backup"] = made if made.is_damage else _ask("backup", "verify", place, *_OPENS, "--json")
    return words


_OPENS: Final = ("--open",) if any("--open" in each.opts for each in backup.commands["verify"].params) else ()
"""Also have it prove that what would be restored opens, as soon as it can."""


def _doctor(data: str) -> Word:
    found = [each for each in doctor_folder.look(data, deep=True) if each.level in (WARNING, PROBLEM)]
    found = [each for each in found if " ago: what is newer stays for it" not in each.text]
    return Word(bool(found), "\n".join(f"{each.about}: {each.text}" for each in found))


def _ask(*words: str) -> Word:
    result = CliRunner().invoke(lamina, [*words], standalone_mode=False)
    if isinstance(result.exception, BadOption):
        return Word(False, f"{result.exception}")  # it was not asked well: that is no word about damage
    if isinstance(result.exception, LaminaError):
        return Word(True, f"{result.output} {result.exception} {json.dumps(result.exception.as_dict(), default=str)}")
    if result.exception is not None:
        raise result.exception
    return Word(result.return_value not in (0, None), result.output)


# -- one trial ---------------------------------------------------------------------------------------------------------


def trial(case: Case) -> Outcome:
    done = harm(case)
    assert done is not None, f"{case}: there is no such file"
    try:
        with _watched():
            return _tried(case, done)
    except Hang:
        return Outcome(HANG, done, {}, problem=traceback.format_exc())
    except Exception:
        return Outcome(TRACEBACK, done, {}, problem=traceback.format_exc())


def _tried(case: Case, done: Harm) -> Outcome:
    house, end, number = built(case.store, done.seed), case.end, case.number
    part, is_served = part_of(done.path), end == "killed" and number % 3 == 2
    whole = parts(image(house, end), part)
    if number % 2:  # what a checkpoint says hides what the log has lost
        whole = {path: data for path, data in whole.items() if not path.endswith("/checkpoint") or path == done.path}
    harmed = {path: data for path, data in whole.items() if path != done.path}
    if done.data is not None:
        harmed[done.path] = done.data
    with folder_with(whole) as root:
        write(root, done)
        locks = _locked(root, whole) if is_served else []
        words = look(root, done.path)
        for lock in locks:
            lock()
        back = restored(root) if number % 2 == 0 and not words["backup"].is_damage else None
        left = {path: Path(root, path).read_bytes() for path in harmed}
        assert left == harmed, "those who check changed something"
    folders = sorted({path.rpartition("/")[0] for path in whole})
    found = content(harmed, part, house.store, house.now_ns, folders)
    expected = expected_of(house, end, part)
    differs = {what: _shown(found.get(what)) for what in {**found, **expected} if expected.get(what) != found.get(what)}
    if done.kind.endswith(": consumer") and done.damage in ("older", "remove"):
        # Who reads from outside says again where it is. What it misses meanwhile it is told of as a gap.
        differs = {what: became for what, became in differs.items() if not what.startswith("consumers of")}
    if isinstance(found.get(part), Refused):  # then all that is in it is gone, too
        differs = {what: became for what, became in differs.items() if what in found}
    if not differs and back is not None and (lost := lost_in_backup(back, expected, house, part)):
        return Outcome(TRIMMED, done, lost, ("backup",), {name: w.text for name, w in words.items() if w.is_damage})
    if not differs:
        return Outcome(SAME, done, {}, said={name: word.text for name, word in words.items() if word.is_damage})
    if end == "killed" and _is_tail(house, done, part, found, differs):
        return Outcome(TAIL, done, differs)
    silent = tuple(name for name in tools_for(done.kind) if not words[name].is_damage)
    said = {name: word.text for name, word in words.items() if word.is_damage}
    if silent:
        return Outcome(SILENT, done, differs, silent, said)
    vague = tuple(name for name in tools_for(done.kind) if not _is_exact(words[name].text, done))
    return Outcome(VAGUE if vague else SAID, done, differs, vague, said)


def restored(root: str) -> Contents | str:
    """The data folder that the backup gives, or why it does not."""
    to = os.path.join(root, "restored")
    word = _ask("restore", os.path.join(root, "backup"), "--to", to, "--json")
    if word.is_damage:
        return word.text
    return {
        join(DATA, os.path.relpath(os.path.join(above, name), to)): Path(above, name).read_bytes()
        for above, _, names in os.walk(to)
        for name in names
    }


def lost_in_backup(given: Contents | str, expected: Content, house: Built, part: str) -> dict[str, str]:
    """What is not in it of what has to be. Positions of consumers and users are no matter of a backup."""
    if isinstance(given, str):
        return {"backup": f"cannot be restored: {given[:160]}"}
    found = content(given, part, house.store, house.now_ns)
    wanted = {
        what: value for what, value in expected.items() if what != "users" and not what.startswith("consumers of")
    }
    return {what: _shown(found.get(what)) for what in wanted if wanted[what] != found.get(what)}


def parts(contents: Contents, part: str) -> Contents:
    """The files of one part of a data folder, and those of the folder itself."""
    wanted = {"jobs", "folder"} if part == "folder" else {part, "folder"}
    return {path: data for path, data in contents.items() if part_of(path) in wanted}


def expected_of(house: Built, end: str, part: str) -> Content:
    """What is in the folder as it was. ``end``: also "before", the last change but one."""
    return _expected(house.store, house.seed, end, part)


@cache
def _expected(store: str, seed: int, end: str, part: str) -> Content:
    house = built(store, seed)
    return content(parts(image(house, end) if end in ENDS else house.before, part), part, store, house.now_ns)


def _is_tail(house: Built, done: Harm, part: str, found: Content, differs: dict[str, str]) -> bool:
    """Only the last change of one log is missing, and nothing says that it was synced."""
    grows = ("newest file", "only file", ": channel", ": epochs", ": messages", ": state")
    before = expected_of(house, "before", part)
    if not done.kind.endswith(grows):
        return False
    if done.path.split("/")[2] in _SYNCED_LATER:  # no more is promised of these
        return all(_begins(expected_of(house, "killed", part).get(what), found.get(what)) for what in differs)
    return all(found.get(what) == before.get(what) for what in differs)


_SYNCED_LATER: Final = ("lamina.history", "lamina.counters")


def _begins(whole: object, with_what: object) -> bool:
    return isinstance(whole, list) and isinstance(with_what, list) and whole[: len(with_what)] == with_what


def _is_exact(text: str, done: Harm) -> bool:
    """It names the file, and the byte where one byte or sector is bad; of a manifest, a file that it is wrong about."""
    if done.kind.endswith(": manifest"):
        return re.search(r"\.(log|dat|dump)\b", text) is not None
    if done.path.rpartition("/")[2] not in text:
        return False
    is_log = done.data is not None and done.damage in (FLIP, ZERO) and done.path.endswith((".log", ".dat", ".dump"))
    return not is_log or re.search(r'byte \d|"offset": ?\d|record \d|line \d', text) is not None


def _shown(value: object) -> str:
    if isinstance(value, Refused):
        return f"refused: {value.error}: {value.text[:160]}"
    return "gone" if value is None else "differs"


@contextmanager
def folder_with(contents: Contents) -> Iterator[str]:
    """On a disk in memory if there is one."""
    above = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    root = tempfile.mkdtemp(prefix="lamina-trial-", dir=above)
    try:
        for folder in sorted({path.rpartition("/")[0] for path in contents}):
            made = root
            for name in folder.split("/"):
                made = os.path.join(made, name)
                Path(made).mkdir(0o700, exist_ok=True)
        for path, data in contents.items():
            put(os.path.join(root, path), data)
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def put(path: str, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)


def write(root: str, done: Harm) -> None:
    path = os.path.join(root, done.path)
    if done.data is None:
        os.unlink(path)
    else:
        put(path, done.data)


def _locked(root: str, whole: Contents) -> list[Callable[[], None]]:
    """Hold the locks that a server holds which is still running. Returns how to let go of each."""
    held: list[Callable[[], None]] = []
    for path in whole:
        if path.endswith("lock"):
            lock = RealFiles().lock(os.path.join(root, path))
            assert not isinstance(lock, str)
            held.append(lock.release)
    return held


@contextmanager
def _watched() -> Iterator[None]:
    def too_long(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, MOST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- many of them ------------------------------------------------------------------------------------------------------


def is_known(known: Mapping[tuple[str, str], str], outcome: Outcome) -> bool:
    """Whether its class may be silent, for now. Nothing may ever hang, or end in a traceback."""
    done = outcome.harm
    return outcome.verdict in (SILENT, TRIMMED, VAGUE) and (done.kind, done.damage) in known


def keep(path: str, end: str, counts: Counter[tuple[str, str, str]]) -> None:
    """Add to a file what became of trials."""
    lines = "".join(
        f"{end}\t{kind}\t{damage}\t{verdict}\t{count}\n" for (kind, damage, verdict), count in counts.items()
    )
    with open(path, "a") as file:
        file.write(lines)


def kept(path: str) -> dict[str, Counter[tuple[str, str, str]]]:
    """What such a file holds, for each way in which folders were left."""
    found: dict[str, Counter[tuple[str, str, str]]] = {}
    for line in Path(path).read_text().splitlines():
        end, kind, damage, verdict, count = line.split("\t")
        found.setdefault(end, Counter())[kind, damage, verdict] += int(count)
    return found


def table(counts: Counter[tuple[str, str, str]]) -> str:
    """Kind, damage and verdict of all, counted."""
    shown = [verdict for verdict in VERDICTS if any(key[2] == verdict for key in counts)]
    lines = [f"{'kind':<28}{'damage':<18}" + "".join(f"{verdict:>10}" for verdict in shown)]
    for kind, damage in sorted({key[:2] for key in counts}):
        each = [counts[kind, damage, verdict] for verdict in shown]
        lines.append(f"{kind:<28}{damage:<18}" + "".join(f"{count or '':>10}" for count in each))
    totals = [sum(count for key, count in counts.items() if key[2] == verdict) for verdict in shown]
    lines.append(f"{'all':<46}" + "".join(f"{total:>10}" for total in totals))
    return "\n".join(lines)


def described(case: Case, outcome: Outcome) -> str:
    """Enough to go after it."""
    done = outcome.harm
    lines = [f"{outcome.verdict}: {case}", f"  {done.path}, from byte {done.offset}"]
    lines += [f"  {what}: {became}" for what, became in [*outcome.differs.items()][:4]]
    if len(outcome.differs) > 4:
        lines.append(f"  and {len(outcome.differs) - 4} more")
    if outcome.silent:
        lines.append(f"  {'not exact' if outcome.verdict == VAGUE else 'silent'}: {', '.join(outcome.silent)}")
    lines += [f"  {name} said: {' '.join(text.split())[:300]}" for name, text in outcome.said.items()]
    if outcome.problem:
        lines.append("  " + outcome.problem.strip().replace("\n", "\n  "))
    return "\n".join(lines)


def main(words: list[str]) -> None:
    logging.disable()
    end = words.pop() if words and words[-1] in ENDS else "closed"
    if words and words[0] == "counts":
        for how, found in kept(words[1]).items():
            sys.stdout.write(f"{how}: {found.total()} trials\n{table(found)}\n\n")
            bad = {key[:2] for key in found if key[2] in BAD}
            for kind, damage in sorted(KNOWN_SILENT[how].keys() - bad):
                sys.stdout.write(f"not silent any more: {kind}, {damage}: take it out of trials_known.py\n")
        return
    if words and words[0] == "only":
        store = words.pop() if words[-1] in STORES else "memory"
        _, kind, damage, *numbers = words
        cases = [Case(end, store, kind, damage, int(number)) for number in numbers or range(20)]
        for each in cases:
            sys.stdout.write(described(each, trial(each)) + "\n")
        return
    counts: Counter[tuple[str, str, str]] = Counter()
    seen: dict[tuple[str, str, str, tuple[str, ...]], str] = {}
    for number in range(int(words[0]) if words else 1000):
        each = case(number, end)
        outcome = trial(each)
        counts[each.kind, each.damage, outcome.verdict] += 1
        if outcome.verdict in BAD:
            seen.setdefault((each.kind, each.damage, outcome.verdict, outcome.silent), described(each, outcome))
    sys.stdout.write(table(counts) + "\n\n" + "\n".join(text for _, text in sorted(seen.items())) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
