"""Classes of Spark as the JVM keeps them, in a file that the next start maps instead of reading 250 archives.

Java 17 to 24: an archive of classes that is dumped when a JVM ends. Java 25 and later: a cache of linked classes with
their profiles. Either halves the time until a session answers. The file is made once per version of Java and Spark,
by a process of its own with the lowest priority, begun when the program that had to do without it ends: no user waits
for it. It is only ever a gain: a JVM that does not like the file goes on without, and if it cannot be made, none is.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from lamina.errors import LaminaError
from lamina.pipeline.starting import cache
from lamina.pipeline.starting.java import CACHES_COMPILED, Java, find
from lamina.units import GIB

SETTING: Final = "spark.lamina.classCache"
"""``false``: neither use nor make one."""
QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""A JVM says on stdout what it thinks of such a file; stdout belongs to the program."""
DAY: Final = 86400
KEPT_UNUSED_S: Final = 30 * DAY
RETRIED_AFTER_S: Final = 7 * DAY
ROOM: Final = 2 * GIB
"""It has 200 MB, and the making as much again."""
PATIENCE_S: Final = 300


@dataclass(frozen=True)
class ClassCache:
    """The file for one Java and one Spark."""

    path: str
    is_compiled: bool

    def is_there(self) -> bool:
        return os.path.exists(self.path)

    def is_to_be_made(self) -> bool:
        """Not there, not tried in vain lately, and with room for it."""
        if self.is_there():
            return False
        with suppress(OSError):
            if time.time() - os.stat(self.path + ".failed").st_mtime < RETRIED_AFTER_S:
                return False
        try:
            return shutil.disk_usage(os.path.dirname(self.path)).free > ROOM
        except OSError:
            return False

    def options(self) -> str:
        """For the JVM, to start with it; empty if it is not there."""
        if not self.is_there():
            return ""
        with suppress(OSError):
            os.utime(self.path)  # in use: it is not swept
        return f"-XX:{'AOTCache' if self.is_compiled else 'SharedArchiveFile'}={self.path}"

    def making(self, unfinished: str) -> str:
        """For the JVM, to leave one behind when it ends."""
        return f"-XX:{'AOTCacheOutput' if self.is_compiled else 'ArchiveClassesAtExit'}={unfinished}"


def of(java: Java) -> ClassCache | None:
    """That of ``java`` and the Spark that is installed; None if there is no place for it."""
    import pyspark

    above = cache.folder()
    # A path with a space would have to be quoted for Spark, which splits options; who has one does without.
    if above is None or any(mark.isspace() or mark in "\"'\\" for mark in above):
        return None
    is_compiled = java.major >= CACHES_COMPILED
    key = cache.digest(java.path, java.version, pyspark.__version__, os.path.dirname(os.path.abspath(pyspark.__file__)))
    name = f"classes-{java.major}-{pyspark.__version__}-{key}.{'aot' if is_compiled else 'jsa'}"
    return ClassCache(os.path.join(above, name), is_compiled)


_is_promised = False


def make_later() -> None:
    """Begin to make it when this program ends."""
    global _is_promised
    if not _is_promised:
        _is_promised = True
        atexit.register(_begin)


def _begin() -> None:
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    # Nobody waits for it; a session of its own, so that it outlives the terminal.
    with suppress(OSError, NotImplementedError):
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "lamina.pipeline.starting.class_cache"],
            os.environ,
            file_actions=nowhere,
            setsid=True,
        )


def make() -> bool:
    """Make the file for the Java that a session would take now. False: there is one, or another process is at it.

    Raises: MissingExtra; LaminaError if Spark did not leave one.
    """
    made = of(find())
    if made is None or not made.is_to_be_made():
        return False
    with open(made.path + ".lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        if not made.is_to_be_made():
            return False
        sweep(os.path.dirname(made.path))
        unfinished = f"{made.path}.{os.getpid()}"
        try:
            ended_with = _rehearse(made.making(unfinished))
            if not os.path.exists(unfinished):
                raise LaminaError(f"Java left no class cache; it ended with {ended_with}")
            os.replace(unfinished, made.path)
        except Exception as error:
            with open(made.path + ".failed", "w", encoding="utf-8") as file:
                file.write(f"{error}\n")
            raise
        finally:
            for left in (unfinished, unfinished + ".config"):
                with suppress(OSError):
                    os.remove(left)
    return True


def sweep(folder: str) -> None:
    """Remove files of versions that were not used for a month, and what was left unfinished by a kill."""
    with suppress(OSError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if not name.startswith("classes-") or name.endswith(".lock"):
                continue
            is_whole = name.endswith((".jsa", ".aot", ".failed"))
            with suppress(OSError):
                if time.time() - os.stat(path).st_mtime > (KEPT_UNUSED_S if is_whole else DAY):
                    os.remove(path)


# -- the rehearsal ---------------------------------------------------------------------------------------------------


def _rehearse(option: str) -> int:
    """Run a session that does a little of everything the pipeline does, and wait for the end of its JVM."""
    from lamina.pipeline.starting.session import session

    def tenths(rows: Iterable[int]) -> Iterator[Any]:
        return (row // 10 for row in rows)

    conf = {SETTING: "false", "spark.driver.extraJavaOptions": option, "spark.sql.shuffle.partitions": "2"}
    spark = session("lamina-class-cache", master="local[2]", conf=conf)
    with tempfile.TemporaryDirectory(prefix="lamina-") as folder:
        spark.dataSource.register(_tiny_source())
        table = spark.read.format("lamina_rehearsal").load()
        table.groupBy("key").agg({"number": "max", "time": "min"}).orderBy("key").collect()
        table.selectExpr("date_trunc('hour', time) as hour", "number").write.partitionBy("hour").parquet(f"{folder}/a")
        spark.read.parquet(f"{folder}/a").where("number > 5").count()
        spark.sparkContext.parallelize(range(100), 4).mapPartitions(tenths).collect()
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # which it takes as the end of this process
    return int(gateway.proc.wait(timeout=PATIENCE_S))


def _tiny_source() -> Any:
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class Reader(DataSourceReader):
        def read(self, partition: Any) -> Iterator[Any]:
            import pyarrow

            numbers = pyarrow.array(range(1000), pyarrow.int64())
            times = pyarrow.array(range(0, 10**9, 10**6), pyarrow.int64()).cast(pyarrow.timestamp("us", "UTC"))
            keys = pyarrow.array([b"%d" % (number % 10) for number in range(1000)], pyarrow.binary())
            yield pyarrow.RecordBatch.from_arrays([numbers, times, keys], names=["number", "time", "key"])

    class Tiny(DataSource):
        @classmethod
        def name(cls) -> str:
            return "lamina_rehearsal"

        def schema(self) -> str:
            return "number long, time timestamp, key binary"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    return Tiny


if __name__ == "__main__":
    os.nice(19)
    signal.alarm(3 * PATIENCE_S)  # whatever happens, it does not stay
    os.chdir("/")
    make()
