"""Where the queues of a command are: in a data folder, to look at beside a server or to change while there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from lamina.cli.render import err, progress_bar
from lamina.errors import BadOption, LogLocked, from_os

if TYPE_CHECKING:
    from lamina.engines.queues.engine import QueueEngine
    from lamina.engines.queues.looking import Looked

_STOP = "a server has it open: stop it first (ls, info, browse and purge --dry-run work beside it)"

_Function = TypeVar("_Function", bound=Callable[..., object])


def of_folder(command: _Function) -> _Function:
    """The option of commands that need a folder."""
    return click.option(
        "--data",
        metavar="DIR",
        default="lamina-data",
        show_default=True,
        envvar="LAMINA_DATA",
        type=click.Path(),
        help="The data folder.",
    )(command)


def beside_a_server(command: _Function) -> _Function:
    """The options of commands that only look."""
    force = click.option("--force", is_flag=True, help="Show what can be read where files are damaged.")
    return of_folder(force(command))


def folder_of(data: str) -> str:
    """The folder of the queues. Looking in the wrong place must not make one there. Raises: BadOption, DiskError."""
    path = Path(data)
    try:
        names = {each.name for each in path.iterdir()}
    except FileNotFoundError as error:
        problem = from_os(error, "open the data folder", data)
        hint = "give --data DIR, or set LAMINA_DATA"
        raise type(problem)(problem.message, hint=hint, **problem.facts) from error
    except OSError as error:
        raise from_os(error, "open the data folder", data) from error
    if "queues" in names:
        return str(path / "queues")
    if any(name.startswith("smp-server-store-") for name in names):
        hint = f"give the folder above it: {path.absolute().parent}"
        raise BadOption(f"{data} is a folder of queues, not a data folder", hint=hint)
    raise BadOption(f"{data} holds no queues", hint="they would be in its folder queues/, made by lamina serve")


def looked_at(data: str, *, force: bool = False) -> Looked:
    """What is there now; nothing is changed, and no lock is taken. Raises: BadOption, Corruption, DiskError."""
    from lamina.engines.queues.looking import look
    from lamina.log.files.real import RealFiles

    folder = folder_of(data)
    with progress_bar("reading queues") as progress:
        looked = look(RealFiles(), folder, force=force, progress=progress)
    tell(looked.warnings)
    looked.warnings.clear()
    return looked


@contextmanager
def opened(data: str, *, quota: int | None = None) -> Iterator[QueueEngine]:
    """The queues, to change them. Raises: LogLocked while a server has them; BadOption, Corruption, DiskError."""
    from lamina.engines.queues.options import QueueOptions
    from lamina.engines.queues.tending import open_to_tend

    folder = folder_of(data)
    with for_itself(), progress_bar("reading queues") as progress:
        engine = open_to_tend(folder, quota=quota or QueueOptions().quota, progress=progress)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def for_itself(hint: str = _STOP) -> Iterator[None]:
    """Say what to do when the folder is not free."""
    try:
        yield
    except LogLocked as error:
        raise LogLocked(error.message, hint=hint, **error.facts) from error


def tell(warnings: list[str]) -> None:
    for warning in warnings:
        err.print(f"warning: {warning}", markup=False)
