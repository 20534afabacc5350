"""What a case is, how two things are measured against each other, and what a case may use."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

GIB = 1 << 30
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Skipped(Exception):
    """A case cannot run here; the text is one plain line that says why."""


@dataclass(frozen=True)
class Result:
    """Two figures of the same unit, and whatever else is worth knowing."""

    ours: float
    base: float
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One figure of ours against one of the raw machine (or against a bar), measured in the same run."""

    name: str
    unit: str
    what: str
    """What is measured, and what is not included."""
    run: Callable[[Context], Result]
    bar: float | None = None
    """The least ratio that is good enough."""
    less_is_better: bool = False

    def row(self, result: Result) -> dict[str, Any]:
        """The case as it goes into the JSON. A higher ratio is always better."""
        above, below = (result.base, result.ours) if self.less_is_better else (result.ours, result.base)
        ratio = above / below if below else float(above > 0)
        row = {"case": self.name, "unit": self.unit, "ours": result.ours, "base": result.base, "ratio": ratio}
        return {**row, "bar": self.bar, **result.extra, "what": self.what}


class Context:
    """What a case may use: a folder of its own, how large to be, and where to say how far it is."""

    def __init__(self, folder: str, scale: float) -> None:
        self.folder = folder
        self.scale = scale
        self.kept: dict[str, str] = {}
        """Folders that several cases share, by name."""

    def scaled(self, count: int, least: int = 1) -> int:
        return max(int(count * self.scale), least)

    def fresh(self, name: str) -> str:
        """The path of a folder that is not there (any more)."""
        path = os.path.join(self.folder, name)
        shutil.rmtree(path, ignore_errors=True)
        return path

    def need_room(self, size: int) -> None:
        """Raises: Skipped if the disk has not three times ``size`` to spare."""
        free = shutil.disk_usage(self.folder).free
        if free < 3 * size:
            raise Skipped(f"needs {3 * size / GIB:.1f} GiB of free disk, there are {free / GIB:.1f}")

    def say(self, text: str) -> None:
        """Progress, for a person who watches."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{text}")
            sys.stderr.flush()


def interleave(
    ours: Callable[[], float],
    base: Callable[[], float],
    rounds: int,
    choose: Callable[[Sequence[float]], float] = max,
) -> tuple[float, float]:
    """Measure both in turn, several times, and choose one figure of each.

    The machine is shared: what disturbs a run disturbs both alike. For rates the best (``max``) is what the code can
    do; where the disk is waited for it is the median, because one lucky sync is no figure.
    """
    figures: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            figures[side].append((ours, base)[side]())
    return choose(figures[0]), choose(figures[1])


def start_child(*words: str) -> subprocess.Popen[str]:
    """Start child.py in a fresh process."""
    return subprocess.Popen([sys.executable, "-m", "bench.child", *words], cwd=_ROOT, stdout=subprocess.PIPE, text=True)


def ask_child(*words: str) -> dict[str, float]:
    """Run child.py to its end and return what it found."""
    child = start_child(*words)
    answer, _ = child.communicate()
    if child.returncode != 0:
        raise RuntimeError(f"the process for {words[0]!r} ended with {child.returncode}")
    found: dict[str, float] = json.loads(answer)
    return found
