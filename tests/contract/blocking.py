"""An object of coroutines as one of plain methods, so that one text of a test serves both.

Every call, and every step of an ``async with`` or ``async for``, runs on a loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Iterator
from typing import Any

LIMIT_S = 60.0  # a call that takes longer hangs


class LoopThread:
    """A loop that runs until ``stop``."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="loop of a test", daemon=True)
        self._thread.start()

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """What it returns, or raises."""

        async def wait_for_it() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(wait_for_it(), self.loop).result(LIMIT_S)

    def call(self, function: Any, *arguments: Any, **named: Any) -> Any:
        """Call on the loop, and wait for the outcome if it is to be awaited."""

        async def call_it() -> Any:
            value = function(*arguments, **named)
            return await value if inspect.isawaitable(value) else value

        return asyncio.run_coroutine_threadsafe(call_it(), self.loop).result(LIMIT_S)

    def stop(self) -> None:
        self.run(self.loop.shutdown_asyncgens())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(LIMIT_S)
        self.loop.close()


class Blocking:
    """Stands for ``target``: its coroutines are waited for, what it gives is wrapped in the same way."""

    _target: Any
    _thread: LoopThread

    def __init__(self, target: Any, thread: LoopThread) -> None:
        object.__setattr__(self, "_target", target)
        object.__setattr__(self, "_thread", thread)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return wrap(value, self._thread)

        def call(*arguments: Any, **named: Any) -> Any:
            return wrap(self._thread.call(value, *arguments, **named), self._thread)

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._target, name, value)

    def __enter__(self) -> Any:
        return wrap(self._thread.call(self._target.__aenter__), self._thread)

    def __exit__(self, *problem: Any) -> Any:
        return self._thread.call(self._target.__aexit__, *problem)

    def __iter__(self) -> Iterator[Any]:
        return BlockingIterator(self._thread.call(self._target.__aiter__), self._thread)

    def __len__(self) -> int:
        return len(self._target)

    def __getitem__(self, name: Any) -> Any:
        return self._target[name]

    def __repr__(self) -> str:
        return f"Blocking({self._target!r})"


class BlockingIterator:
    """``for`` over an async iterator."""

    def __init__(self, target: Any, thread: LoopThread) -> None:
        self._target, self._thread = target, thread

    def __iter__(self) -> Iterator[Any]:
        self._thread.call(self._target.__aiter__)  # as ``async for`` does
        return self

    def __next__(self) -> Any:
        try:
            return wrap(self._thread.call(self._target.__anext__), self._thread)
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        close = getattr(self._target, "aclose", None) or getattr(self._target, "close", None)
        if close is not None:
            self._thread.call(close)

    def __getattr__(self, name: str) -> Any:
        return getattr(Blocking(self._target, self._thread), name)

    def __enter__(self) -> Any:
        return Blocking(self._target, self._thread).__enter__()

    def __exit__(self, *problem: Any) -> Any:
        return Blocking(self._target, self._thread).__exit__(*problem)


def wrap(value: Any, thread: LoopThread) -> Any:
    """``value`` itself if nothing about it is to be awaited."""
    if isinstance(value, list):
        return [wrap(each, thread) for each in value]
    if hasattr(value, "__anext__"):
        return BlockingIterator(value, thread)
    return Blocking(value, thread) if _is_for_coroutines(type(value)) else value


def _is_for_coroutines(kind: type) -> bool:
    if hasattr(kind, "__aenter__") or hasattr(kind, "__aiter__"):
        return True
    if not kind.__module__.startswith("lamina."):
        return False
    return any(
        inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        for function in (inspect.unwrap(each) for each in vars(kind).values() if callable(each))
    )
