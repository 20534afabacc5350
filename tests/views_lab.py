"""Views of the pipeline on any disk, without Spark: for tests that compare them with what an engine says."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from lamina.log.files import Files
from lamina.pipeline import storage, tables


def rows(disk: Files, path: str, view: str | None = None, **options: str) -> list[dict[str, Any]]:
    """All rows of a view; ``disk`` in place of this machine's. Raises: as ``scan``."""

    def on_disk(path: str) -> tuple[Files, str]:
        return disk, path

    with patch.object(storage, "open_storage", on_disk):
        return tables.scan(path, view, **options).read_all().to_pylist()  # type: ignore[no-any-return]


def micros(time: Any) -> int | None:
    """A time of a row as microseconds since 1970."""
    return None if time is None else round(time.timestamp() * 10**6)
