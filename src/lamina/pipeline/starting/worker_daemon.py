"""The process that Spark forks its Python workers from, without a traceback that means nothing.

Spark hangs up on a worker that plans a read as soon as it has the answer; the worker is often still flushing, and its
daemon prints a BrokenPipeError on the user's terminal, after a command that went well. Run as ``python -m`` in the
place of ``pyspark.daemon`` (interpreter.py), with the same arguments.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any


class QuietTraceback:
    """The module ``traceback``, with nothing to say of a pipe that the other end has closed."""

    def print_exc(self, *arguments: Any, **options: Any) -> None:
        if not isinstance(sys.exception(), BrokenPipeError):
            traceback.print_exc(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)


if __name__ == "__main__":
    from pyspark import daemon

    setattr(daemon, "traceback", QuietTraceback())  # noqa: B010 a module that mypy knows the type of
    daemon.manager()
