"""What ``lamina doctor`` finds: one thing each, how bad it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final

OK: Final = "ok"
NOTE: Final = "note"
WARNING: Final = "warning"
PROBLEM: Final = "problem"
LEVELS: Final = (OK, NOTE, WARNING, PROBLEM)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: str
    """ok; note: good to know; warning: should be changed; problem: is broken, or will be."""
    about: str
    text: str
    do: str = ""
    """What to do; empty: nothing."""

    def as_dict(self) -> dict[str, object]:
        """As plain values."""
        return asdict(self)


def worst(findings: Iterable[Finding]) -> str:
    """The worst level of them."""
    return max((finding.level for finding in findings), key=LEVELS.index, default=OK)
