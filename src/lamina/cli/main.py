"""The command line. One file per family of verbs; this one holds them together and turns errors into exit codes."""

from __future__ import annotations

import os
import sys
from itertools import takewhile
from typing import Final

from lamina.errors import BadEntry, BadJob, BadOption, BadTopic, Corruption, GroupExists, LaminaError, NoGroup

EXIT_ERROR: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOTHING: Final = 3
EXIT_FAILED: Final = 4
EXIT_REPAIRED: Final = 5
EXIT_DAMAGE: Final = 6
EXIT_INTERRUPTED: Final = 130


def main() -> None:
    """Entry point of the ``lamina`` command."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError:
        sys.stderr.write('The lamina command needs two more packages: pip install "lamina[cli]"\n')
        sys.exit(EXIT_ERROR)
    sys.exit(_run())


def _run() -> int:
    import click

    from lamina.cli.tree import lamina

    try:
        result = lamina.main(standalone_mode=False, prog_name="lamina")
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except LaminaError as error:
        return show_error(error)
    except (BrokenPipeError, SystemExit):
        # Whoever read our output has had enough (click makes SystemExit of it): no error, and nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED


def show_error(error: LaminaError) -> int:
    """Say what went wrong. Returns the exit code."""
    from lamina.cli.render import err, print_json

    if "--json" in takewhile(lambda word: word != "--", sys.argv):  # behind it are the words of another command
        print_json({"error": error.as_dict()})
    err.print(f"[bold red]error[/] {error.code}: ", end="")
    err.print(error.message, markup=False)
    if error.hint:
        err.print(f"  {error.hint}", markup=False)
    if isinstance(error, Corruption):
        return EXIT_DAMAGE
    is_usage = isinstance(error, BadOption | BadJob | BadTopic | BadEntry) and not isinstance(
        error, NoGroup | GroupExists
    )
    return EXIT_USAGE if is_usage else EXIT_ERROR


if __name__ == "__main__":
    main()
