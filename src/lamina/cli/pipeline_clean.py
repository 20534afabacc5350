"""``lamina pipeline clean``: the jobs log without the records of jobs that are gone."""

from __future__ import annotations

import click

from lamina.cli.pipeline import of_pipeline
from lamina.cli.recorded import recorded
from lamina.cli.render import out, print_json
from lamina.units import parse_time, show_bytes


@click.command(short_help="Jobs: take out the records of those that are over.")
@of_pipeline
@click.option("--now", "moment", metavar="TIME", help="Let go what has expired by then, for runs that can be repeated.")
@click.option("--dry-run", is_flag=True, help="Say what would go, also beside a server; TIME may be yet to come.")
def clean(
    data: str, engine: str, master: str | None, conf: dict[str, str], moment: str | None, dry_run: bool, as_json: bool
) -> int:
    """Take out of the jobs log what is over: all records of jobs that ended or expired.

    The folder must not be served: a server does the same by itself, some of it at a time.
    """
    from lamina.pipeline.jobs.clean import clean

    now = None if moment is None else parse_time(moment)
    with recorded("cleaning", data) as run:
        report = run.done(
            clean(data, engine=engine, master=master, conf=conf, progress=run.progress, now=now, dry_run=dry_run)
        )
    if as_json:
        print_json(report.as_dict())
        return 0
    went = "would go" if report.is_dry_run else "went"
    out.print(
        f"{report.dropped:,} records {went}, {report.kept:,} stay: of {report.visited:,} segments {report.rewritten:,} "
        f"rewritten, {report.removed:,} removed; {show_bytes(report.bytes_before)} before, "
        f"{show_bytes(report.bytes_after)} after ({report.engine}, {report.seconds:.1f} s)",
        markup=False,
    )
    if report.held:
        out.print(f"{report.held:,} segments are left alone: a consumer has yet to read them", markup=False)
    return 0
