"""How the commands run what takes a while: with a bar for who waits, and a record beside the data for who looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from lamina.cli.render import progress_bar

if TYPE_CHECKING:
    from lamina.pipeline.recording import Recording


@contextmanager
def recorded(step: str, data: str, kind: str = "") -> Iterator[Recording]:
    """While a job runs: give it ``progress``, and what it gives to ``done``. ``kind``: else the name of the command."""
    from lamina.pipeline.recording import Recording

    context = click.get_current_context()
    kind = kind or context.info_name or "run"
    with (
        progress_bar(step) as show,
        Recording(data, kind, step=step, arguments=context.params, show=show) as run,
    ):
        yield run
