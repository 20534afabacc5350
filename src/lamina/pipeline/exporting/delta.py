"""An export as a Delta table, through ``deltalake``. The table's own log says which batches it has.

    1 the manifest says which batch is pending, and what counts once the table has it
    2 the rows are appended, with the number of the batch in the same commit of the table     <- commit point
    3 the manifest says that it counts

After a crash the table is asked for the number: what is pending counts, or is dropped, accordingly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from types import ModuleType
from typing import Any, Final

import pyarrow as pa

from lamina.errors import DiskError, MissingExtra
from lamina.pipeline.exporting.manifest import Day, Manifest
from lamina.pipeline.exporting.parts import Part, read_part

DATE: Final = "date"


def needed() -> ModuleType:
    """Raises: MissingExtra."""
    try:
        import deltalake  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise MissingExtra(
            "a Delta table needs the package deltalake", hint="pip install deltalake, or export as parquet"
        ) from error
    found: ModuleType = deltalake
    return found


def settle(path: str, manifest: Manifest) -> Manifest:
    """What counts after a crash. Raises: MissingExtra, DiskError."""
    pending = manifest.pending
    if pending is None:
        return manifest
    if _batch_of(path, manifest.view) != pending["batch"]:
        return replace(manifest, pending=None)
    days = {name: Day(**day) for name, day in pending["days"].items()}
    return replace(manifest, **{**pending, "days": days}, pending=None)


def is_there(path: str) -> bool:
    """Raises: MissingExtra."""
    return bool(needed().DeltaTable.is_deltatable(path))


def append(
    path: str,
    view: str,
    parts: Sequence[Part],
    schema: pa.Schema,
    *,
    batch: int,
    is_replaced: bool,
    merge_below: int,
) -> None:
    """Add the rows of staged parts, once: nothing is done if the table has the batch.

    Raises: MissingExtra, DiskError.
    """
    deltalake = needed()
    if _batch_of(path, view) == batch:
        return
    dated = pa.schema([*schema, pa.field(DATE, pa.date32())])
    transaction = deltalake.Transaction(_application(view), batch)
    try:
        deltalake.write_deltalake(
            path,
            pa.RecordBatchReader.from_batches(dated, _dated(parts, schema, dated)),
            partition_by=[DATE],
            mode="overwrite" if is_replaced else "append",
            schema_mode="overwrite" if is_replaced else None,
            commit_properties=deltalake.CommitProperties(app_transactions=[transaction]),
        )
        days = sorted({part.day for part in parts})
        if merge_below > 0 and days:
            deltalake.DeltaTable(path).optimize.compact([(DATE, "in", days)], target_size=merge_below)
    except deltalake.exceptions.DeltaError as error:
        raise DiskError(f"{path}: the Delta table was not written: {error}", hint="run it again", path=path) from error


def _dated(parts: Sequence[Part], schema: pa.Schema, dated: pa.Schema) -> Iterator[pa.RecordBatch]:
    for part in parts:
        day = pa.scalar(date.fromisoformat(part.day), pa.date32())
        for batch in read_part(part.path, schema):
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.repeat(day, batch.num_rows)], schema=dated)


def _batch_of(path: str, view: str) -> int:
    """Number of the last batch that the table has."""
    deltalake: Any = needed()
    if not deltalake.DeltaTable.is_deltatable(path):
        return 0
    return int(deltalake.DeltaTable(path).transaction_version(_application(view)) or 0)


def _application(view: str) -> str:
    return f"lamina-export-{view}"
