"""What a compaction is told, and what it says at the end: also as plain values, for another process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lamina.engines.store import catalog as catalogs
from lamina.engines.store.catalog import Catalog, Part
from lamina.engines.store.codec import MOST
from lamina.engines.store.storages import Storages
from lamina.log import kernel
from lamina.units import MIB

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all, about."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Merge rotated files into the parts of a catalog."""

    folder: str
    inputs: tuple[str, ...]
    """Names of rotated files, oldest first. None of them is in the parts, and all that is older than ``until`` is in
    them or in the parts."""
    after: int
    """Sessions up to this epoch are in the parts."""
    until: int
    """And those up to this one shall be."""
    voids: tuple[tuple[int, int], ...] = ()
    """Epochs that never became durable: first and last of each stretch."""
    catalog: Catalog
    generation: int
    """Of the new parts; above that of the catalog."""
    memory_bytes: int = 192 * MIB
    """For entries that are being sorted; more of them are spilled to working files."""
    part_bytes: int = 64 * MIB

    def __post_init__(self) -> None:
        if self.generation <= self.catalog.generation:
            raise ValueError(f"generation {self.generation} is not above that of the catalog")

    def identity(self) -> int:
        """The same for two tasks whose result is the same."""
        voids = [(first, last) for first, last in self.voids if first <= self.until and last > self.after]
        facts = (self.inputs, self.after, self.until, voids, self.generation)
        base = replace(self.catalog, merged=(), time_ns=0)
        return kernel.crc32c(repr(facts).encode() + catalogs.encode(base))

    def as_dict(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "inputs": self.inputs,
            "after": self.after,
            "until": self.until,
            "voids": self.voids,
            "catalog": catalogs.encode(self.catalog).decode(),
            "generation": self.generation,
            "memory_bytes": self.memory_bytes,
            "part_bytes": self.part_bytes,
        }

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Task:
        voids = tuple((first, last) for first, last in facts["voids"])
        catalog = catalogs.decode(facts["catalog"].encode())
        return cls(**{**facts, "inputs": tuple(facts["inputs"]), "voids": voids, "catalog": catalog})


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a compaction made. Nothing of it counts before a catalog names it."""

    parts: tuple[Part, ...]
    """All of the new generation in order, those of former generations that were kept included."""
    storages: Storages
    """What has to be remembered of whole storages."""
    entries_read: int = 0
    """Entries of the inputs that counted; 0 if all had been done before."""
    entries_live: int = 0
    """Entries in the parts, removes that had to be kept included."""
    bytes_before: int = 0
    """Inputs and former parts."""
    bytes_after: int = 0
    parts_kept: int = 0
    parts_written: int = 0

    def as_dict(self) -> dict[str, Any]:
        made = Catalog(generation=MOST, parts=self.parts, storages=self.storages)
        return {
            "catalog": catalogs.encode(made).decode(),
            "entries_read": self.entries_read,
            "entries_live": self.entries_live,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "parts_kept": self.parts_kept,
            "parts_written": self.parts_written,
        }

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Outcome:
        numbers = dict(facts)
        made = catalogs.decode(numbers.pop("catalog").encode())
        return cls(parts=made.parts, storages=made.storages, **numbers)
