"""``lamina pipeline``: the jobs over the whole log, one file each (pipeline_*.py)."""

from __future__ import annotations

import click

from lamina.cli.pipeline_asof import asof
from lamina.cli.pipeline_audit import audit
from lamina.cli.pipeline_clean import clean
from lamina.cli.pipeline_compact import compact
from lamina.cli.pipeline_dump import dump
from lamina.cli.pipeline_export import export
from lamina.cli.pipeline_report import report


@click.group()
def pipeline() -> None:
    """Jobs over the whole log, in this process or on Spark, with the same result.

    Each commits in one step or not at all, and is safe to interrupt and to run again. Exit 0: committed.
    """


for _command in (asof, audit, clean, compact, dump, export, report):
    pipeline.add_command(_command)
