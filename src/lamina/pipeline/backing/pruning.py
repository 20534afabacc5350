"""Fewer generations: the newest stay, and of what the others had alone nothing does.

Manifests go first, oldest first, and for good; then contents that no manifest has. A run that is killed in between
leaves contents that nobody needs, which the next backup or pruning removes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from lamina.errors import BadOption
from lamina.log import rewrite
from lamina.pipeline.backing.manifest import SUFFIX
from lamina.pipeline.backing.place import Backup


@dataclass(frozen=True, slots=True)
class Pruned:
    """What went, or would."""

    removed: list[str]
    """Generations, oldest first."""
    kept: list[str]
    contents: int
    bytes: int
    is_dry_run: bool

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def prune(backup: Backup, keep: int, *, is_dry_run: bool = False) -> Pruned:
    """Leave the ``keep`` newest generations.

    Durability: when it returns, the others are gone for good.
    Raises: BadOption; LogLocked; Corruption, WrongFormat if one that stays cannot be read: then nothing goes;
        DiskError.
    """
    backup.check()
    if keep < 1:
        raise BadOption("at least one generation has to stay", hint="remove the folder itself to be rid of all")
    if is_dry_run:
        return _prune(backup, keep, is_dry_run=True)
    with backup.changing():
        return _prune(backup, keep, is_dry_run=False)


def _prune(backup: Backup, keep: int, *, is_dry_run: bool) -> Pruned:
    names = backup.names()
    going, staying = names[:-keep], names[-keep:]
    needed = backup.needed(frozenset(going))  # raises before anything goes
    if is_dry_run:
        contents, size = backup.contents.would_sweep(needed)
    else:
        if going:
            rewrite.remove(backup.files, backup.manifests, going)
        contents, size = backup.contents.sweep(needed)
    removed, kept = ([name.removesuffix(SUFFIX) for name in some] for some in (going, staying))
    return Pruned(removed, kept, contents, size, is_dry_run)
