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

SECTIONS: Final[dict[str, dict[str, str]]] = {
    "A server": {
        "serve": "Serve the jobs, topics, queues and store of a data folder.",
        "config": "The settings of a server: show, check, example.",
        "user": "Who may use a server, and for what.",
        "top": "Watch a running server.",
        "health": "Say whether a server is ready.",
        "worker": "Make the calls that tasks were put for.",
        "workq-server": "Serve jobs alone, with the flags of workq-server.",
    },
    "What is in it": {
        "jobs": "Look at, add, do, change and redrive jobs.",
        "topics": "Look at, publish to and look after topics.",
        "queues": "Look at queues, and look after them.",
        "store": "Look at a store, read, write and compact it.",
        "log": "Look at, check and mend a folder of log files.",
    },
    "The whole folder": {
        "backup": "Back up a data folder, also beside a server.",
        "restore": "Make a data folder of a backup, or of an earlier time.",
        "doctor": "Say what is wrong with this machine or a data folder.",
        "pipeline": "Export, report, audit, compact: in this process or on Spark.",
    },
    "To begin with": {
        "demo": "See lamina at work, killed in the middle of it.",
        "bench": "Measure what this disk and this machine give.",
        "completion": "Let your shell complete commands and options.",
    },
}
"""How ``lamina --help`` shows them."""


class Tree(click.Group):
    """A group whose commands are found by ``COMMANDS``."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return None if name not in COMMANDS else load(name)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()), col_spacing=4)


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

    Start with "lamina serve", or "lamina demo". "lamina COMMAND --help" says more, docs/reference/cli.md all.

    Exit codes: 0 fine, 1 error, 2 wrong usage, 3 no job came or no such key, 4 the command of a job failed, 5 damage
    was repaired, 6 damage is left.
    """
