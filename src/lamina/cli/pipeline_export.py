"""``lamina pipeline export``: a view of the log as Parquet files by day, or as a Delta table."""

from __future__ import annotations

import click

from lamina.cli.pipeline import of_pipeline
from lamina.cli.recorded import recorded
from lamina.cli.render import err, out, print_json
from lamina.units import parse_bytes, parse_duration, show_bytes


@click.command(short_help="Write what is new as Parquet by day, or to Delta.")
@of_pipeline
@click.option("--to", required=True, metavar="DIR", help="Where it goes: DIR/VIEW/date=.../part-....parquet.")
@click.option("--view", default="records", show_default=True, help="Which table of the log.")
@click.option("--columns", metavar="A,B", help="Only these columns.")
@click.option("--format", default="parquet", show_default=True, metavar="parquet|delta", help="What it is written as.")
@click.option("--incremental/--full", default=True, help="What is new (the default), or all of it anew.")
@click.option("--topic", metavar="PATTERNS", help="Only these topics, with commas between them.")
@click.option("--since", metavar="TIME", help="Of logs that were never exported: records from then on.")
@click.option("--until", metavar="TIME", help="Records before then; of a state, the moment it is of.")
@click.option("--merge-below", default="4MiB", show_default=True, metavar="SIZE", help="Add to smaller files.")
@click.option("--consumer", metavar="NAME", help="Let cleaning wait for this export, under this name.")
@click.option("--consumer-expiry", default="7d", show_default=True, metavar="TIME", help="So long after the last run.")
@click.option("--allow-gaps", is_flag=True, help="Go on though records were removed before they were exported.")
@click.option("--moved", is_flag=True, help="The data folder is the same as before under another path.")
def export(
    data: str,
    engine: str,
    master: str | None,
    conf: dict[str, str],
    to: str,
    view: str,
    columns: str | None,
    format: str,
    incremental: bool,
    topic: str | None,
    since: str | None,
    until: str | None,
    merge_below: str,
    consumer: str | None,
    consumer_expiry: str,
    allow_gaps: bool,
    moved: bool,
    as_json: bool,
) -> int:
    """Write what is new in the log as Parquet files by day, for programs that know nothing of lamina.

    Each record is exported once, also if a run was killed: run it again. It works beside a server.
    """
    from lamina.pipeline.jobs.export import export

    names = None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]
    with recorded("exporting", data) as run:
        report = run.done(
            export(
                data,
                to,
                view=view,
                columns=names,
                engine=engine,
                master=master,
                conf=conf,
                incremental=incremental,
                format=format,
                topic=topic,
                since=since,
                until=until,
                merge_below=parse_bytes(merge_below),
                consumer=consumer,
                consumer_expiry_s=parse_duration(consumer_expiry),
                allow_gaps=allow_gaps,
                moved=moved,
                progress=run.progress,
            )
        )
    for gap in report.gaps:
        err.print(f"not exported: records of {gap['log']}, {gap['why']}", markup=False)
    if as_json:
        print_json(report.as_dict())
        return 0
    out.print(
        f"{report.rows:,} rows of {report.logs:,} logs in {report.files:,} files, {show_bytes(report.bytes)}; "
        f"{report.to} has {report.total_rows:,} rows now ({report.engine}, {report.seconds:.1f} s)",
        markup=False,
    )
    return 0
