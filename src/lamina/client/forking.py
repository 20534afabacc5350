"""After a fork: the child has copies of all connections of its parent, and whoever reads first gets the other's answer.

So the child hangs up its copies, which the parent does not notice, and connects anew. Locks that some thread of the
parent held would never be released in the child, which does not have that thread: it has new ones.
"""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """Has what parent and child must not share."""

    def forked(self) -> None:
        """In the child, before anything else."""


_all: Final[WeakSet[Forkable]] = WeakSet()


def tell_after_fork(one: Forkable) -> None:
    """Call its ``forked`` in each child of this process, for as long as somebody has it."""
    _all.add(one)


def leave_alone(*things: object) -> None:
    """In the child: what loops of the parent have is never touched, nor let go.

    The system tells both which sockets are ready by the same list; taking one off it here takes it off there.
    """
    _of_parents.append(things)


_of_parents: Final[list[object]] = []


def _in_child() -> None:
    for one in list(_all):
        one.forked()


os.register_at_fork(after_in_child=_in_child)
