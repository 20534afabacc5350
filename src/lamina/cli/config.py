"""``lamina config``: which settings hold and where each is from, what is wrong with them, and a file to begin with."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lamina.cli.render import as_json, err, out, print_json, print_table
from lamina.errors import BadOption, LaminaError

if TYPE_CHECKING:
    from lamina.config import Config

_EXIT_USAGE: Final = 2

_config_file = click.option(
    "--config", "config_file", metavar="FILE", type=click.Path(), help="The lamina.toml to read."
)
_data = click.option("--data", metavar="DIR", type=click.Path(), help="The data folder, which may have a lamina.toml.")


@click.group()
def config() -> None:
    """The settings of lamina serve: show, check, example."""


@config.command(short_help="Every setting, its value, and where that is from.")
@_config_file
@_data
@as_json
def show(config_file: str | None, data: str | None, as_json: bool) -> None:
    """Every setting with its value and where that is from: the default, a file, or the environment.

    Secrets are only said to be set or not.
    """
    from lamina.config import SETTINGS
    from lamina.config.showing import as_dict, shown_value

    found = _load(config_file, data)
    if as_json:
        print_json(as_dict(found))
        return
    out.print(f"file: {found.file or 'none'}", markup=False)
    rows = [
        (setting.shown_key, shown_value(found, setting), found.origins[key], "yes" if setting.is_live else "")
        for key, setting in SETTINGS.items()
    ]
    print_table(["setting", "value", "origin", "reload"], rows)
    _tell(found.problems, found.warnings)


@config.command(short_help="Say everything that is wrong with the settings.")
@_config_file
@_data
@as_json
def check(config_file: str | None, data: str | None, as_json: bool) -> int:
    """Say everything that is wrong with the settings, and what is only unwise. Exit code 2 if anything is wrong."""
    found = _load(config_file, data)
    problems, warnings = list(found.problems), list(found.warnings)
    if not problems:
        problems += _refused_at_start(found)
    warnings += _unwise(found)
    if as_json:
        print_json({"file": found.file, "problems": problems, "warnings": warnings})
    else:
        _tell(problems, warnings)
        if not problems:
            out.print(f"{found.file or 'no lamina.toml, the defaults hold'}: fine", markup=False)
    return _EXIT_USAGE if problems else 0


@config.command(short_help="Print a lamina.toml with every setting, behind #.")
def example() -> None:
    """Print a lamina.toml that has every setting with its default, behind #."""
    from lamina.config.showing import example as text

    click.echo(text(), nl=False)


def _load(config_file: str | None, data: str | None) -> Config:
    from lamina.config import Given, load

    return load(config_file, flags=[Given("data", data, "--data")] if data else [])


def _tell(problems: list[str], warnings: list[str]) -> None:
    for problem in problems:
        err.print("[bold red]wrong[/]: ", end="")
        err.print(problem, markup=False)
    for warning in warnings:
        err.print(f"warning: {warning}", markup=False)


def _refused_at_start(found: Config) -> Iterator[str]:
    """What a server would find before it opens a file of the data folder."""
    from lamina.cli.serve_settings import to_settings
    from lamina.log import mark
    from lamina.log.files.real import RealFiles
    from lamina.server.security.exposure import check_exposure
    from lamina.server.security.gate import Gate
    from lamina.server.security.tls import server_context

    settings = to_settings(found)
    gate = tls = None
    try:
        mark.check(RealFiles(), found.text("data"))
        gate = Gate(settings.data, password=settings.password)
    except LaminaError as problem:
        yield str(problem)
    if settings.tls is not None:
        try:
            tls = server_context(settings.tls.cert, settings.tls.key, settings.tls.client_ca)
        except BadOption as problem:
            yield str(problem)
            return
    for name in ("workq", "resp", "http"):
        at = found.address(name)
        if at is None:
            continue
        try:
            check_exposure([(name, str(at))], gate, tls, settings.insecure)
        except BadOption as problem:
            yield str(problem)


def _unwise(found: Config) -> Iterator[str]:
    from lamina.server.security.exposure import is_public

    for name in ("workq", "resp", "http"):
        at = found.address(name)
        if at is not None and is_public(str(at)) and found.is_on("server.insecure"):
            what = "without TLS" if found.maybe("server.tls_cert") is None else "with [server] insecure"
            yield f"{name} on {at} is open to other machines {what}"
    for key in ("server.password", "queues.password"):
        if found.file is not None and found.origins[key] == found.file:
            mode = stat.S_IMODE(Path(found.file).stat().st_mode)
            if mode & 0o077:
                yield f"{found.file} has a password and others may read it (mode {mode:04o}): chmod 600 {found.file}"
    for section in ("jobs", "topics", "queues"):
        if found.text(f"{section}.sync") == "os":
            yield f'[{section}] sync = "os": a power cut can take what was answered'
