"""The command line. One file per family of verbs; this one holds them together and turns errors into exit codes."""

from __future__ import annotations

import os
import sys
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from lamina.errors import BadEntry, BadJob, BadOption, BadTopic, Corruption, GroupExists, LaminaError, NoGroup, from_os

if TYPE_CHECKING:
    import click

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
        error = _with_suggestion(error)
        if _wants_json():
            from lamina.cli.render import print_json

            print_json({"error": BadOption(error.format_message(), hint="see --help of the command").as_dict()})
        error.show()
        return error.exit_code
    except LaminaError as error:
        return show_error(error)
    except PermissionError as error:  # a mistake of who calls, wherever it was met
        return show_error(from_os(error, "use it", str(error.filename or "a file")))
    except (BrokenPipeError, SystemExit):
        # Whoever read our output has had enough (click makes SystemExit of it): no error, and nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED


def _with_suggestion(error: click.ClickException) -> click.ClickException:
    """Where a command is not known, name the one that is most like it."""
    import difflib

    import click

    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None or not isinstance(context.command, click.Group) or "No such command" not in error.message:
        return error
    if "Did you mean" in error.format_message():  # newer versions of click say so themselves, of some groups
        return error
    wrong = error.message.partition("'")[2].partition("'")[0]
    found = difflib.get_close_matches(wrong, context.command.list_commands(context), n=1, cutoff=0.5)
    if not found:
        return error
    return click.UsageError(f"{error.message.rstrip('.')}; did you mean {found[0]!r}?", context)


def _wants_json() -> bool:
    return "--json" in takewhile(lambda word: word != "--", sys.argv)  # behind it are the words of another command


def show_error(error: LaminaError) -> int:
    """Say what went wrong. Returns the exit code."""
    from lamina.cli.render import err, print_json

    if _wants_json():
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
