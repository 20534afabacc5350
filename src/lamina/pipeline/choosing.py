"""Which engine a job runs on: the one that was asked for, or the one that fits the size of the work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lamina.errors import BadOption
from lamina.pipeline.running import ENGINES, LocalRunner, Runner, SparkRunner
from lamina.units import GIB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORTH_SPARK: Final = 4 * GIB
"""Below so many bytes of input one process is done before Spark has begun."""


@contextmanager
def runner(
    engine: str = "auto",
    *,
    size: int = 0,
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> Iterator[Runner]:
    """A runner for ``size`` bytes of work. A session that is made here is stopped at the end; one that is given is not.

    ``auto``: Spark if a session or a master is given, or if there is much to do; else this process.
    Raises: BadOption; MissingExtra if Spark is needed and not installed.
    """
    if engine not in ENGINES:
        raise BadOption(f"there is no engine {engine!r}", hint=f"one of {', '.join(ENGINES)}")
    if engine == "local" and (spark is not None or master is not None):
        raise BadOption("a session or a master is for the engine spark, not for local", hint="leave one of them out")
    is_asked = engine == "spark" or spark is not None or master is not None
    if not is_asked and size < WORTH_SPARK:
        yield LocalRunner()
    elif spark is not None:
        yield SparkRunner(spark)
    else:
        from lamina.pipeline.starting.session import running, session

        was_running = running() is not None
        made = session(master=master, conf=dict(conf or {}))
        try:
            yield SparkRunner(made)
        finally:
            if not was_running:
                made.stop()
