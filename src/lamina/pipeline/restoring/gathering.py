"""All logs of a time: each is copied by a task, then they are put together under the names of a data folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from lamina.errors import StorageError, from_os
from lamina.log.files import Files, join
from lamina.pipeline.restoring.copying import Copied, Copy
from lamina.pipeline.restoring.planning import LogPlan, Plan
from lamina.pipeline.restoring.target import Making

_TRIES: Final = 5
"""How often the logs are looked at anew when a dump or cleaning comes in between."""


def copy_all(
    plan: Plan,
    task: Callable[[LogPlan, int], Copy],
    run: Callable[[Sequence[Copy]], list[Copied]],
    again: Callable[[], Plan],
) -> tuple[Plan, list[Copied]]:
    """Raises: as ``copying.copy``. What is done after all is in what is returned."""
    for left in range(_TRIES - 1, -1, -1):
        try:
            return plan, run([task(log, number) for number, log in enumerate(plan.logs)])
        except StorageError as error:
            if type(error) is not StorageError or not left:
                raise
            plan = again()  # files went, or were rewritten, meanwhile: look again
    raise AssertionError


def gather(files: Files, made: Making, copied: Sequence[Copied]) -> None:
    """What the tasks made, under the names that it has in a data folder. Raises: DiskError."""
    try:
        files.make_folder(made.whole)
        # A topic comes before its groups: those go into its folder.
        for one in sorted(copied, key=lambda each: each.path):
            above = join(made.whole, one.path).rpartition("/")[0]
            files.make_folder(above)
            files.rename_folder(one.folder, join(made.whole, one.path))
    except OSError as error:
        raise from_os(error, "gather what was restored in", made.whole) from error
