"""``lamina restore``: a new data folder from a backup or from a data folder, as it is or as it was at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from lamina.cli.render import as_json, err, out, print_json, print_table, progress_bar
from lamina.errors import TooOld
from lamina.units import show_bytes, show_time

if TYPE_CHECKING:
    from lamina.pipeline.backing.restoring import RestoreReport

_PARTS: Final = ("jobs", "topics", "queues", "store", "logs")


@click.command()
@click.argument("source", metavar="DATA", type=click.Path(exists=True, file_okay=False))
@click.option("--to", required=True, metavar="NEW", help="The folder that is made; it is new, or empty.")
@click.option("--as-of", metavar="TIME", help="2026-11-16T12:00:00Z, -1h, or nanoseconds; else the newest state.")
@click.option("--generation", metavar="TIME", help="Of a backup: this one, as it is; else the newest.")
@click.option("--without", multiple=True, type=click.Choice(_PARTS), help="Leave a part of the data folder out.")
@click.option("--dry-run", is_flag=True, help="Say what would be made, and how far back each log reaches.")
@click.option(
    "--with-damage", is_flag=True, help="Also files that were damaged when they were backed up, as they were."
)
@as_json
def restore(
    source: str,
    to: str,
    as_of: str | None,
    generation: str | None,
    without: tuple[str, ...],
    dry_run: bool,
    with_damage: bool,
    as_json: bool,
) -> int:
    """Make NEW the data folder that DATA was, which is a data folder or a backup. DATA is only read.

    A generation that is damaged is refused, and the newest that is whole is named. It works beside a server. Nothing is
    there under the name NEW before it is whole: run it again if it was killed.
    """
    from lamina.pipeline.backing.restoring import restore as make

    try:
        with progress_bar("restoring") as progress:
            report = make(
                source,
                to,
                as_of=as_of,
                generation=generation,
                without=without,
                is_dry_run=dry_run,
                with_damage=with_damage,
                progress=progress,
            )
    except TooOld as error:
        _show_reach(error.facts.get("reach"), as_json)
        raise
    for note in report.notes:
        err.print(f"note: {note}", markup=False)
    if as_json:
        print_json(report.as_dict())
    else:
        _show(report)
    return 0


def _show(report: RestoreReport) -> None:
    if report.is_dry_run:
        print_table(_COLUMNS, [_row(each.as_dict()) for each in report.reach])
    of = f"generation {report.generation} of {report.source}" if report.generation else report.source
    out.print(
        f"{report.to}: {'would be ' if report.is_dry_run else ''}{of} as of {show_time(report.moment_ns)}, "
        f"{len(report.logs):,} logs, {report.files:,} files, {show_bytes(report.bytes)} ({report.seconds:.1f} s)",
        markup=False,
    )


_COLUMNS: Final = ["log", "reaches back to", "newest record", "note"]


def _row(reach: dict[str, Any]) -> Sequence[object]:
    earliest, newest = reach["earliest_ns"], reach["newest_ns"]
    shown = "now only" if earliest is None else show_time(earliest)
    return reach["log"], shown, show_time(newest) if newest else "", reach["note"]


def _show_reach(reach: object, as_json: bool) -> None:
    """On the way to the error, which says the rest."""
    if isinstance(reach, list) and not as_json:
        for row in map(_row, reach):
            err.print("  ".join(str(cell) for cell in row if cell), markup=False)
