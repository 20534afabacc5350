"""How things are shown: tables and progress for people on a terminal, JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from lamina.log.survey import Progress

_WIDE = 200  # a table that is piped is not folded to 80 columns
_WIDEST = 1000
_LATER_S = 0.5  # what is done by then needs no bar

out = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, soft_wrap=True)
err = Console(stderr=True, width=None if sys.stderr.isatty() else _WIDE, highlight=False, soft_wrap=True)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def print_json(value: object) -> None:
    click.echo(json.dumps(value, separators=(",", ":")))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = "") -> None:
    """Columns whose name ends in a blank are numbers, set to the right.

    Half a name is of no use: nothing is cut off, rather the terminal folds the line.
    """
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name.strip(), justify="right" if name.endswith(" ") else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_plain(cell) for cell in row))
    before = out.width
    out.width = _WIDEST
    try:
        out.print(table, soft_wrap=False)
    finally:
        out.width = before


def counted(number: int, one: str, many: str = "") -> str:
    """1 file, 2 files."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _plain(cell: object) -> str:
    # Names and payloads come from the disk: no markup, no control characters.
    text = f"{cell:,}" if isinstance(cell, int) else str(cell)
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text).replace("[", "\\[")


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """A bar on standard error while bytes go by, if it takes a while; nothing unless that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    size = DownloadColumn(binary_units=True)
    bar = Bar(
        TextColumn(what), BarColumn(), size, TransferSpeedColumn(), TimeRemainingColumn(), console=err, transient=True
    )
    task = bar.add_task(what, total=None)
    start = time.monotonic()

    def progress(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if not bar.live.is_started and time.monotonic() - start > _LATER_S:
            bar.start()

    try:
        yield progress
    finally:
        bar.stop()
