"""``lamina pipeline audit``: proves over the whole history that what must be so is so."""

from __future__ import annotations

import click

from lamina.cli.main import EXIT_DAMAGE
from lamina.cli.pipeline import of_pipeline
from lamina.cli.recorded import recorded
from lamina.cli.render import out, print_json, print_table
from lamina.units import show_bytes, show_time


@click.command(short_help="Prove that the history holds together.")
@of_pipeline
@click.option("--export", metavar="DIR", help="Compare it with the log, too: what lamina pipeline export has filled.")
def audit(data: str, engine: str, master: str | None, conf: dict[str, str], export: str | None, as_json: bool) -> int:
    """Prove that every completed job was added, every acknowledged message was sent, no id is there twice, and so on.

    Changes no log, and works beside a server. Exit 0: nothing is violated; 6: something is.
    """
    from lamina.pipeline.jobs.audit import audit

    with recorded("auditing", data) as run:
        report = run.done(audit(data, engine=engine, master=master, conf=conf, export=export, progress=run.progress))
    if as_json:
        print_json(report.as_dict())
        return 0 if report.is_sound else EXIT_DAMAGE
    rows = [(check.name, check.rows, check.count, check.what) for check in report.checks]
    print_table(("check", "records ", "violations ", "what is proved"), rows)
    for check in report.checks:
        for one in check.violations:
            when = "" if one.time_ns is None else f", {show_time(one.time_ns)}"
            out.print(f"{check.name}: {one.log}, {one.file}, byte {one.position}{when}: {one.reason}", markup=False)
        if check.count > len(check.violations):
            out.print(f"{check.name}: {check.count - len(check.violations):,} more", markup=False)
        for note in check.notes:
            out.print(f"{check.name}, no violation: {note}", markup=False)
    out.print(
        f"{report.violations:,} violations in {report.logs:,} logs, {show_bytes(report.bytes)} "
        f"({report.engine}, {report.seconds:.1f} s)",
        markup=False,
    )
    return 0 if report.is_sound else EXIT_DAMAGE
