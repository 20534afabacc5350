"""How things are shown: tables and progress for people on a terminal, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from lamina.log.survey import Progress

_WIDE = 200  # a table that is piped is not folded to 80 columns

out = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, soft_wrap=True)
err = Console(stderr=True, width=None if sys.stderr.isatty() else _WIDE, highlight=False, soft_wrap=True)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def print_json(value: object) -> None:
    click.echo(json.dumps(value, separators=(",", ":")))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = "") -> None:
    """Columns whose name ends in a blank are numbers, set to the right."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name.strip(), justify="right" if name.endswith(" ") else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_plain(cell) for cell in row))
    out.print(table, soft_wrap=False)


def _plain(cell: object) -> str:
    # Names and payloads come from the disk: no markup, no control characters.
    text = f"{cell:,}" if isinstance(cell, int) else str(cell)
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text).replace("[", "\\[")


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """A bar on standard error while bytes go by; nothing unless that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=err, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
