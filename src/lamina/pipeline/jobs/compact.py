"""``compact``: the store's rotated files and parts become new parts, with the work on many machines if it is much.

    1 open the store, which takes its lock      2 rotate, which freezes the inputs
    3 write the new parts: in another process, or in the tasks of a session (compaction/), with the same bytes
    4 save the catalog that names them

Commit: step 4, in engines/store/compactions.py, as for every compaction. The catalog cannot have moved since step 2:
whoever changes it holds the lock of the store, and that is this process. Killed before, the store is what it was, and
who opens it removes parts that no catalog names; killed after, it is the new generation. The next job sweeps ``_tmp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from lamina.engines.store.api import Store
from lamina.engines.store.compaction_worker import compact_elsewhere
from lamina.engines.store.compactions import CompactionReport
from lamina.engines.store.options import StoreOptions
from lamina.pipeline import places
from lamina.pipeline.choosing import runner
from lamina.pipeline.compaction.distributed import JOB, compact_with
from lamina.pipeline.jobs.place import folder_of, for_itself
from lamina.pipeline.running import Progress
from lamina.pipeline.staging import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCKED: Final = 'ask the process that has it: "lamina store compact"; or stop it first'


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What was done, and where."""

    compaction: CompactionReport
    engine: str

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self.compaction), "engine": self.engine}


def compact(
    data: str,
    *,
    engine: str = "auto",
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: Progress = lambda done, total: None,
) -> CompactReport:
    """Compact the store of a folder that no server has open. What the new parts replace stays until clean-up.

    Durability: when it returns, the new catalog counts for good.
    Raises: LogLocked while a server runs; BadOption, MissingExtra; Corruption, WrongFormat, DiskFull, DiskError: then
        the store is as it was.
    """
    files, folder = folder_of(data, places.STORE)
    with for_itself(_LOCKED):
        store = Store.open(folder, files=files, options=StoreOptions(compact_dead_ratio=0))
    with store:
        sweep(files, folder, JOB)  # also if there is nothing to do
        size = store.engine.logged_bytes() + sum(part.bytes for part in store.engine.catalog.parts)
        with runner(engine, size=size, spark=spark, master=master, conf=conf) as where:
            how = compact_elsewhere if where.name == "local" else compact_with(where)
            report = store.compact(progress, compact=how)
        return CompactReport(report, where.name)
