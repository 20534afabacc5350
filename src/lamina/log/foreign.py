"""Folders of other programs, known by the names of their files.

Some of those names are close to ours, and what stands in the files is not: opened all the same, it would be taken for
damage, or a new log would be begun beside it. So such a folder is refused before anything in it is opened or made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from lamina.errors import WrongFormat
from lamina.log.files import join

_SMP: Final = "a file of an SMP server, whose text format lamina does not read"
_SMP_HINT: Final = "name a folder of lamina's own, and keep this one for the SMP server; nothing was changed"
_LIMESTONE: Final = "the manifest of limestone"
_LIMESTONE_HINT: Final = "take it over: lamina store import {folder} --to DIR; nothing was changed"

_OTHERS: Final = (
    (re.compile(r"smp-server-(?:store|messages)\.log(?:\..+)?"), _SMP, _SMP_HINT),
    (re.compile(r"limestone-manifest\.json(?:\.back)?"), _LIMESTONE, _LIMESTONE_HINT),
)
_SMP_LINE: Final = re.compile(rb"(?:v[0-9] |[A-Z][A-Z_]{1,6}[A-Z_ ])")


def refuse(folder: str, names: Iterable[str]) -> None:
    """Raises: WrongFormat if one of the names in the folder is that of another program's file."""
    for name in sorted(names):
        for pattern, what, hint in _OTHERS:
            if pattern.fullmatch(name):
                reason = f"expected a folder of lamina, found {what}"
                raise WrongFormat(join(folder, name), reason, hint=hint.format(folder=folder))


def refuse_smp_text(name: str, header: bytes) -> None:
    """Raises: WrongFormat if a file that has a name of ours begins with a line as an SMP server writes it."""
    if _SMP_LINE.match(header):
        raise WrongFormat(name, f"expected a queue store of lamina, found {_SMP}", hint=_SMP_HINT)
