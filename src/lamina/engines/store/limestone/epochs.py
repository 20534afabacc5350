"""Up to which epoch data is durable: the largest epoch in the epoch file.

The file is durable marks of 9 bytes. A last one that is cut short was never promised to anybody and is ignored. When
there is none in ``epoch``, the files that a backup set aside count: ``epoch.<ms>.<epoch>``.
"""

from __future__ import annotations

import re
from typing import Final

from lamina.engines.store.limestone.entries import DURABLE, EntryReader, Why
from lamina.engines.store.limestone.source import Source, damaged

EPOCH_FILE: Final = "epoch"
_ROTATED: Final = re.compile(r"epoch\.\d+\.\d+")


def read_durable(source: Source, repairs: list[str]) -> int:
    """The durable epoch, 0 if none was ever recorded. Raises: Corruption if anything but durable marks is there."""
    if EPOCH_FILE in source:
        found = _largest(source, EPOCH_FILE, repairs)
        if found is not None:
            return found
    rotated = sorted(filter(_ROTATED.fullmatch, source.names))
    epochs = [_largest(source, name, repairs) or 0 for name in rotated]
    return max(epochs, default=0)


def is_lost(source: Source) -> bool:
    """There is no epoch file at all, which limestone makes when it makes the folder."""
    return EPOCH_FILE not in source and not any(map(_ROTATED.fullmatch, source.names))


def _largest(source: Source, name: str, repairs: list[str]) -> int | None:
    """None if the file has no whole mark."""
    largest: int | None = None
    file = source.open(name)
    try:
        reader = EntryReader(file)
        for entry in reader:
            if entry.kind != DURABLE:
                raise damaged(name, entry.offset, f"byte {entry.kind:#04x} where a durable mark must be")
            largest = entry.epoch if largest is None else max(largest, entry.epoch)
        if reader.why is not Why.END:
            if reader.kind != DURABLE:
                raise damaged(name, reader.stop, f"byte {reader.kind:#04x} where a durable mark must be")
            repairs.append(f"{name}, byte {reader.stop}: a durable mark that is cut short was ignored")
    finally:
        file.close()
    return largest
