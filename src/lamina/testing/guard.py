"""Watches that no event loop of a server waits for a disk, or works for long without letting others have their turn.

Installed in a process of tests, it looks at each callback of a loop that belongs to a server: a file operation on the
loop's thread is a finding, but for the round of a log's group commit (``Log.try_round``, decision 0009), and so is a
callback that takes more processor time than its budget. Commands that a test hands to a connection itself, without a
loop's callback, are watched through ``engines/loops.py``. Loops have to be asyncio's own: those of uvloop cannot be
looked into.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from lamina.engines import IS_COMPILED, loops
from lamina.log.files.memory import MemoryFile, MemoryFiles
from lamina.log.files.real import RealFile, RealFiles
from lamina.log.writer import Log

BUDGET_S: Final = 0.010 if IS_COMPILED else 0.040
"""Of processor time, for a callback. Plain Python takes several times as long as the compiled modules."""
SLOW: Final = "ms of processor time"
"""How a finding ends that tells how long a callback took."""
_OF_NOBODY: Final = frozenset(("Running.run",))
"""They work while no client is let in yet, or none is left: those may take their time."""
_MOST: Final = 20  # findings that are kept
_OF_FILES: Final = (
    *("open", "create", "list", "rename", "link", "remove", "make_folder", "make_folder_unsynced"),
    *("remove_empty_folder", "rename_folder", "remove_folder", "sync_folder", "lock", "room"),
)
_OF_FILE: Final = ("size", "read_into", "append", "truncate", "allocate", "sync")


class _Here(threading.local):
    callback: str | None = None
    """What the loop of this thread runs, if that is a server's."""
    is_committing = False
    collected_s = 0.0
    """Of the time of that, what the collector of garbage took."""


class Guard:
    """Install one in a process, once. ``take`` gives what was found since."""

    def __init__(self, tell: Callable[[str], None] | None = None, *, is_server: bool = False) -> None:
        """``tell`` is called with each finding. ``is_server``: every callback of every loop is a server's."""
        self._tell = tell
        self._is_server = is_server
        self._here = _Here()
        self._found: list[str] = []
        self._collecting_since = 0.0
        self.budget_s = BUDGET_S

    def take(self) -> list[str]:
        """What was found, and is not found again."""
        found, self._found = self._found, []
        return found

    def install(self) -> None:
        kind: Any
        for kind in (RealFiles, MemoryFiles):
            for name in _OF_FILES:
                setattr(kind, name, self._watched(name, getattr(kind, name)))
        for kind in (RealFile, MemoryFile):
            for name in _OF_FILE:
                setattr(kind, name, self._watched(name, getattr(kind, name)))
        round_ = Log.try_round

        @functools.wraps(round_)
        def try_round(log: Log, *, may_sync: bool = False) -> bool:
            with self._committing():
                return round_(log, may_sync=may_sync)

        Log.try_round = try_round  # type: ignore[method-assign,assignment]
        run_round = Log.run_round

        @functools.wraps(run_round)
        def run_alone(log: Log, **how: bool) -> float | None:
            """Without a thread that commits, whoever waits does it: that is so in tests only."""
            if log._committer is not None:
                return run_round(log, **how)
            with self._committing():
                return run_round(log, **how)

        Log.run_round = run_alone  # type: ignore[method-assign,assignment]
        run = asyncio.Handle._run

        @functools.wraps(run)
        def _run(handle: Any) -> None:
            self._run(handle, run)

        asyncio.Handle._run = _run  # type: ignore[assignment,method-assign]
        gc.callbacks.append(self._collected)

    # -- the disk ----------------------------------------------------------------------------------------------------

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def watched(self_: Any, *arguments: Any, **more: Any) -> Any:
            if self._is_on_loop():
                path = getattr(self_, "path", None) or (arguments[0] if arguments else "")
                self._note(f"{name} {path} on the thread of the loop, in {self._here.callback or 'a command'}")
            return call(self_, *arguments, **more)

        return watched

    def _is_on_loop(self) -> bool:
        here = self._here
        return (here.callback is not None or loops.is_at_once()) and not here.is_committing

    @contextmanager
    def _committing(self) -> Iterator[None]:
        was, self._here.is_committing = self._here.is_committing, True
        try:
            yield
        finally:
            self._here.is_committing = was

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _run(self, handle: Any, run: Callable[[Any], None]) -> None:
        callback = self._of_a_server(handle._callback)
        if callback is None:
            run(handle)
            return
        here = self._here
        here.callback, here.collected_s = callback, 0.0
        begun = time.thread_time()
        try:
            run(handle)
        finally:
            took = time.thread_time() - begun - here.collected_s
            here.callback = None
            if took > self.budget_s and callback not in _OF_NOBODY:
                self._note(f"{callback} took {took * 1000:.1f} {SLOW}", with_stack=False)

    def _of_a_server(self, callback: Any) -> str | None:
        """Its name, if it is a server's."""
        while isinstance(callback, functools.partial):
            callback = callback.func
        owner = getattr(callback, "__self__", None)
        if isinstance(owner, asyncio.Task):
            coroutine = owner.get_coro()
            name = getattr(coroutine, "__qualname__", "a task")
            code = getattr(coroutine, "cr_code", None)
            is_ours = "lamina/server/" in str(getattr(code, "co_filename", ""))
        else:
            name = getattr(callback, "__qualname__", None) or repr(callback)
            module = getattr(callback, "__module__", None) or getattr(type(owner), "__module__", "")
            is_ours = str(module).startswith("lamina.server")
        return str(name) if is_ours or self._is_server else None

    def _collected(self, phase: str, facts: dict[str, int]) -> None:
        if self._here.callback is not None:
            now = time.thread_time()
            if phase == "start":
                self._collecting_since = now
            else:
                self._here.collected_s += now - self._collecting_since

    # -- telling -----------------------------------------------------------------------------------------------------

    def _note(self, what: str, *, with_stack: bool = True) -> None:
        if with_stack:
            frames = [line for line in traceback.format_stack(limit=16)[:-2] if "testing/guard.py" not in line]
            what = f"{what}\n{''.join(frames)}"
        if len(self._found) < _MOST:
            self._found.append(what)
        if self._tell is not None:
            self._tell(what)
