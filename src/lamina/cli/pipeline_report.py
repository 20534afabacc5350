"""``lamina pipeline report``: a page of HTML with plots about a data folder."""

from __future__ import annotations

import click

from lamina.cli.pipeline import of_pipeline
from lamina.cli.recorded import recorded
from lamina.cli.render import err, out, print_json
from lamina.units import show_bytes


@click.command(short_help="Write a page with plots of what there was.")
@of_pipeline
@click.option("--to", default="report.html", show_default=True, metavar="FILE", help="Where the page goes.")
@click.option("--since", metavar="TIME", help="Only what was written from then on: 2026-11-15, or -1h.")
@click.option("--until", metavar="TIME", help="Only what was written before then.")
@click.option("--bucket", metavar="DURATION", help="The step of the plots: 10s, 5m, 1h; else what fits the time.")
def report(
    data: str,
    engine: str,
    master: str | None,
    conf: dict[str, str],
    to: str,
    since: str | None,
    until: str | None,
    bucket: str | None,
    as_json: bool,
) -> int:
    """Write a page with plots: throughput, latency, failures, retries, depth and age of queues, and the disk.

    One file that any browser opens, without a network. It works beside a server.
    """
    from lamina.pipeline.jobs.report import report

    with recorded("reading", data) as run:
        summary = run.done(
            report(
                data,
                to,
                engine=engine,
                master=master,
                conf=conf,
                since=since,
                until=until,
                bucket=bucket,
                progress=run.progress,
            )
        )
    if summary.damage:
        err.print(f"{summary.damage:,} places cannot be read: the page names them", markup=False)
    if as_json:
        print_json(summary.as_dict())
        return 0
    out.print(
        f"{summary.path}: {', '.join(summary.sections)} of {summary.records:,} records in {summary.logs:,} logs "
        f"({show_bytes(summary.bytes)}, {summary.engine}, {summary.seconds:.1f} s)",
        markup=False,
    )
    return 0
