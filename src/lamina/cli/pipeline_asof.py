"""``lamina pipeline asof``: any engine as it was at a time, as a table or as a restored folder."""

from __future__ import annotations

import click

from lamina.cli.pipeline import of_pipeline
from lamina.cli.recorded import recorded
from lamina.cli.render import err, out, print_json
from lamina.units import show_bytes, show_time


@click.command(short_help="Go back to a time: as Parquet, or as a data folder.")
@of_pipeline
@click.option("--time", "moment", required=True, metavar="TIME", help="2026-11-16T12:00:00Z, -1h, or nanoseconds.")
@click.option("--view", help="Which state: job_state, topic_state, queue_state, store_state and so on.")
@click.option("--to", metavar="OUT", help="Where the table goes: a new file OUT.parquet, or a new folder.")
@click.option("--restore", metavar="DIR", help="Make a new data folder, all of it as it was.")
def asof(
    data: str,
    engine: str,
    master: str | None,
    conf: dict[str, str],
    moment: str,
    view: str | None,
    to: str | None,
    restore: str | None,
    as_json: bool,
) -> int:
    """Go back to a time: the state of an engine as Parquet, or a data folder that opens as it was.

    It works beside a server. Nothing is there under its name before it is whole: run it again if it was killed.
    """
    from lamina.pipeline.jobs.asof import as_of

    with recorded("going back", data) as run:
        report = run.done(
            as_of(
                data,
                moment,
                view=view,
                to=to,
                restore=restore,
                engine=engine,
                master=master,
                conf=conf,
                progress=run.progress,
            )
        )
    for note in report.notes:
        err.print(f"note: {note}", markup=False)
    if as_json:
        print_json(report.as_dict())
        return 0
    made = f"{report.rows:,} rows of {report.view}" if report.view else f"{len(report.logs):,} logs"
    out.print(
        f"{report.to}: {made} as of {show_time(report.time_ns)}, {report.files:,} files, {show_bytes(report.bytes)} "
        f"({report.engine}, {report.seconds:.1f} s)",
        markup=False,
    )
    return 0
