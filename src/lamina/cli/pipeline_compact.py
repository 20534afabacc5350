"""``lamina pipeline compact``: the store's rotated files become sorted ones, on Spark if they are many."""

from __future__ import annotations

import click

from lamina.cli.pipeline import of_pipeline
from lamina.cli.render import print_json, progress_bar


@click.command()
@of_pipeline
def compact(data: str, engine: str, master: str | None, conf: dict[str, str], as_json: bool) -> int:
    """Merge the store's rotated files into sorted ones, without what newer entries have replaced.

    The folder must not be served: a server is asked with "lamina store compact". What the new files replace stays until
    "lamina store gc".
    """
    from lamina.cli.store_show import print_compaction
    from lamina.pipeline.jobs.compact import compact

    with progress_bar("compacting") as progress:
        report = compact(data, engine=engine, master=master, conf=conf, progress=progress)
    if as_json:
        print_json(report.as_dict())
    else:
        print_compaction(report.compaction)
    return 0
