"""What every command that takes something away has: ``--dry-run``, ``--yes``, and the question it asks without it."""

from __future__ import annotations

import sys

import click

from lamina.cli.render import err
from lamina.errors import BadOption

dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
yes = click.option("--yes", is_flag=True, help="Do not ask. Needed where nobody can be asked, as in a script.")


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal, unless ``yes``.

    Raises: BadOption where nobody can be asked; click.Abort if the answer is no. Nothing was changed then.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadOption(
            f"this asks first, and nobody is here to answer: {question}",
            hint="--yes does it without asking; --dry-run, where there is one, says what would be done",
            option="yes",
        )
    if not click.confirm(question, err=True):
        err.print("nothing was changed")
        raise click.Abort
