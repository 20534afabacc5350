"""``lamina doctor``: look at a machine and a data folder, and say what should be changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from lamina.cli.doctor_finding import LEVELS, NOTE, OK, PROBLEM, WARNING, Finding, worst
from lamina.cli.main import EXIT_DAMAGE, EXIT_REPAIRED
from lamina.cli.render import as_json, out, print_json, progress_bar
from lamina.log.survey import Progress

if TYPE_CHECKING:
    from lamina.config import Config

_EXITS = {OK: 0, NOTE: 0, WARNING: EXIT_REPAIRED, PROBLEM: EXIT_DAMAGE}
_STYLES = {OK: "green", NOTE: "cyan", WARNING: "yellow", PROBLEM: "bold red"}


@click.command()
@click.option("--data", metavar="DIR", type=click.Path(), help="The data folder.  [default: that of the settings]")
@click.option("--config", metavar="FILE", type=click.Path(), help="The settings, as for lamina serve.")
@click.option("--deep", is_flag=True, help="Read every byte of every log, not only how each ends.")
@as_json
def doctor(data: str | None, config: str | None, deep: bool, as_json: bool) -> int:
    """Look at this machine and a data folder, and say what should be changed. It changes nothing itself.

    It works beside a running server. Exit codes: 0 nothing to do, 5 something should be changed, 6 something is broken.
    """
    from lamina.config import Given, load

    flags = [] if data is None else [Given("data", data, "--data")]
    settings = load(config, flags=flags)
    folder = settings.text("data")
    with progress_bar("reading") as progress:
        findings = list(look(folder, settings, deep=deep, progress=progress))
    level = worst(findings)
    if as_json:
        print_json({"data": folder, "worst": level, "findings": [finding.as_dict() for finding in findings]})
    else:
        _print(folder, findings)
    return _EXITS[level]


def look(folder: str, settings: Config, *, deep: bool, progress: Progress) -> Iterator[Finding]:
    """At everything, the machine first."""
    from lamina.cli import doctor_folder, doctor_machine

    yield from doctor_machine.look()
    room = settings.number("server.reserve_bytes"), settings.number("server.low_water_bytes")
    yield from doctor_machine.look_below(folder, *room)
    yield from doctor_folder.look_at_settings(settings)
    has_password = settings.maybe("server.password") is not None
    yield from doctor_folder.look(folder, deep=deep, has_password=has_password, progress=progress)


def _print(folder: str, findings: list[Finding]) -> None:
    from rich.text import Text

    out.print(f"lamina doctor: this machine, and {folder}", markup=False)
    width = max(len(finding.about) for finding in findings)
    for finding in findings:
        line = Text.assemble(
            (f"{finding.level:<8}", _STYLES[finding.level]), f"{finding.about:<{width}}  {_plain(finding.text)}"
        )
        out.print(line)
        if finding.do:
            out.print(Text(f"{'':<{8 + width}}  → {_plain(finding.do)}", style="dim" if sys.stdout.isatty() else ""))
    counts = {level: sum(finding.level == level for finding in findings) for level in LEVELS}
    shown = ", ".join(f"{counts[level]} {level}{'s' if counts[level] != 1 and level != OK else ''}" for level in LEVELS)
    out.print(shown, markup=False)


def _plain(text: str) -> str:
    # Names come from the disk: no control characters.
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
