"""Spark through PySpark: the log as a table, and its upkeep as Spark jobs.

    session, register                      a session of Spark that is set up for lamina; lamina in any other
    scan                                   a table as Arrow batches, without Spark
    compact, clean, dump                   upkeep of the store, the jobs and the queues
    as_of, export, report, audit           what the history is good for

The files that lamina writes are the table: no connector, no second copy. Nothing here is imported with ``lamina``, and
each part is loaded when it is first used; ``pip install "lamina[spark]"`` brings what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from lamina.twins import stand_in

if TYPE_CHECKING:
    from lamina.pipeline.jobs.asof import as_of as as_of
    from lamina.pipeline.jobs.audit import audit as audit
    from lamina.pipeline.jobs.clean import clean as clean
    from lamina.pipeline.jobs.compact import compact as compact
    from lamina.pipeline.jobs.dump import dump as dump
    from lamina.pipeline.jobs.export import export as export
    from lamina.pipeline.jobs.report import report as report
    from lamina.pipeline.starting.session import register as register
    from lamina.pipeline.starting.session import session as session
    from lamina.pipeline.tables import scan as scan

IS_COMPILED = stand_in(__name__, "columns")

_WHERE: Final = {
    "as_of": "jobs.asof",
    "audit": "jobs.audit",
    "clean": "jobs.clean",
    "compact": "jobs.compact",
    "dump": "jobs.dump",
    "export": "jobs.export",
    "register": "starting.session",
    "report": "jobs.report",
    "scan": "tables",
    "session": "starting.session",
}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
