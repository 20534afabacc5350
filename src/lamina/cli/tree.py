"""The tree of commands. Each is imported when it is used: ``lamina jobs ls`` loads nothing of a server or of Spark."""

from __future__ import annotations

import importlib
from typing import Final

import click

from lamina._version import VERSION

COMMANDS: Final = {
    "backup": "lamina.cli.backup:backup",
    "bench": "lamina.cli.bench:bench",
    "completion": "lamina.cli.completion:completion",
    "config": "lamina.cli.config:config",
    "demo": "lamina.cli.demo:demo",
    "doctor": "lamina.cli.doctor:doctor",
    "health": "lamina.cli.health:health",
    "jobs": "lamina.cli.jobs:jobs",
    "log": "lamina.cli.log:log",
    "pipeline": "lamina.cli.pipeline_group:pipeline",
    "queues": "lamina.cli.queues:queues",
    "restore": "lamina.cli.restore:restore",
    "serve": "lamina.cli.serve:serve",
    "store": "lamina.cli.store:store",
    "top": "lamina.cli.top:top",
    "topics": "lamina.cli.topics:topics",
    "user": "lamina.cli.user:user",
    "worker": "lamina.cli.worker:worker",
    "workq-server": "lamina.cli.serve:workq_server",
}
"""Where each is."""


class Tree(click.Group):
    """A group whose commands are found by ``COMMANDS``."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return None if name not in COMMANDS else load(name)


def load(name: str) -> click.Command:
    """The command of that name."""
    module, _, attribute = COMMANDS[name].partition(":")
    found = getattr(importlib.import_module(module), attribute)
    assert isinstance(found, click.Command)
    return found


@click.command(cls=Tree, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="lamina")
def lamina() -> None:
    """Jobs, queues, topics and state on one append-only log that survives any crash.

    Exit codes: 0 fine, 1 error, 2 wrong usage, 3 no job came or no such key, 4 the command of a job failed, 5 damage
    was repaired, 6 damage is left.
    """
