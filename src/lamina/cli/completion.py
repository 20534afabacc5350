"""``lamina completion``: the script that lets a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_HELP = {
    "bash": 'Put this into ~/.bashrc: eval "$(lamina completion bash)"',
    "zsh": 'Put this into ~/.zshrc: eval "$(lamina completion zsh)"',
    "fish": "lamina completion fish > ~/.config/fish/completions/lamina.fish",
}


@click.command(epilog="\n\n".join(_HELP.values()))
@click.argument("shell", type=click.Choice(list(_HELP)))
def completion(shell: str) -> None:
    """Print what lets a shell complete commands and options."""
    from lamina.cli.tree import lamina

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(lamina, {}, "lamina", "_LAMINA_COMPLETE").source())
