"""What every job of ``lamina pipeline`` takes on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from lamina.cli.render import as_json
from lamina.errors import BadOption
from lamina.pipeline.running import ENGINES

Command = TypeVar("Command", bound=Callable[..., Any])


def of_pipeline(command: Command) -> Command:
    """What every job takes: ``data``, ``engine``, ``master``, ``conf`` (a dict) and ``as_json``."""
    options = (
        click.option("--data", required=True, metavar="DIR", help="A data folder, or one log of it."),
        click.option("--engine", type=click.Choice(ENGINES), default="auto", show_default=True, help="Where it runs."),
        click.option("--master", metavar="URL", help="Of a Spark cluster: spark://host:7077; local[2] and so on, too."),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", callback=_conf, help="A setting of Spark."),
        as_json,
    )
    for option in reversed(options):
        command = option(command)
    return command


def _conf(context: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, is_pair, value = pair.partition("=")
        if not is_pair or not name:
            raise BadOption(f"--conf {pair!r} is no setting", hint="write --conf spark.executor.memory=2g")
        found[name] = value
    return found
