"""``lamina pipeline compact``: the store's rotated files become sorted ones, on Spark if they are many."""

from __future__ import annotations

import click

from lamina.cli.asking import dry_run
from lamina.cli.pipeline import of_pipeline
from lamina.cli.recorded import recorded
from lamina.cli.render import print_json


@click.command(short_help="Store: merge rotated files into sorted ones.")
@of_pipeline
@dry_run
def compact(data: str, engine: str, master: str | None, conf: dict[str, str], dry_run: bool, as_json: bool) -> int:
    """Merge the store's rotated files into sorted ones, without what newer entries have replaced.

    The folder must not be served: a server is asked with "lamina store compact". What the new files replace stays until
    "lamina store gc".
    """
    from lamina.cli.store_show import print_compaction
    from lamina.pipeline.jobs.compact import compact

    if dry_run:
        from lamina.cli.store_keep import would_compact
        from lamina.cli.store_place import folder_of

        would_compact(folder_of(data, to_change=True), as_json)
        return 0
    with recorded("compacting", data) as run:
        report = run.done(compact(data, engine=engine, master=master, conf=conf, progress=run.progress))
    if as_json:
        print_json(report.as_dict())
    else:
        print_compaction(report.compaction)
    return 0
