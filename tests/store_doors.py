"""The store behind a RESP door on the loop of a test: clients on lines, a disk in memory that refuses when told to."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from integration.resp_wire import Error
from lamina.clock import SystemClock
from lamina.engines.store.api import Store
from lamina.engines.store.options import StoreOptions
from lamina.server.resp.store_house import let_in
from lamina.testing import MemoryFiles
from resp_lab import Caller, Lab

FOLDER = "store"
PATIENCE_S = 30.0


class StoreDoors(Lab):
    """A house that serves the store. Make it on the loop."""

    def __init__(self, runner: asyncio.Runner, **options: Any) -> None:
        super().__init__()
        self.runner = runner
        self.options_of_store = StoreOptions(**options)
        self.opened_stores: list[Store] = []
        self.served = let_in(self.house, self.open_store)

    def open_store(self) -> Store:
        store = Store.open(FOLDER, options=self.options_of_store, files=self.files, clock=SystemClock())
        self.opened_stores.append(store)
        return store

    @property
    def store(self) -> Store:
        return self.opened_stores[0]

    def close(self) -> None:
        for store in self.opened_stores:
            store.close()

    def syncing(self) -> AbstractContextManager[None]:
        """Whoever syncs a file of a channel is not done for as long."""
        return self._held("sync", f"{FOLDER}/pwal")

    def creating(self) -> AbstractContextManager[None]:
        """The same for whoever makes the file of the first channel."""
        return self._held("create", f"{FOLDER}/pwal_0000")

    @contextmanager
    def _held(self, what: str, only: str) -> Iterator[None]:
        may_end = threading.Event()

        def hold(operation: str, path: str) -> None:
            if operation == what and path.startswith(only):
                assert may_end.wait(PATIENCE_S)

        self.files.before = hold
        try:
            yield
        finally:
            self.files.before = lambda operation, path: None
            may_end.set()

    async def until(self, happened: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not happened():
                await asyncio.sleep(0.001)
                await self.settle()

    async def answers(self, caller: Caller, *commands: str | list[bytes], count: int = 0) -> list[Any]:
        """The answers to commands that are sent at once; ``count`` of them if there are none."""
        caller.send(*commands)
        found: list[Any] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < (count or len(commands)):
                await asyncio.sleep(0.001)
                await self.settle()
                found += caller.got()
        return found

    async def answer(self, caller: Caller, command: str | list[bytes]) -> Any:
        (found,) = await self.answers(caller, command)
        return found

    def left(self) -> dict[bytes, bytes]:
        """What a killed server finds again in storage 1."""
        with Store.open(FOLDER, files=MemoryFiles(self.disk.contents())) as store:
            return {found.key: found.value for found in store.scan(1)}


def on_its_loop(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    """For a test whose first argument is such a lab."""

    @functools.wraps(test)
    def run(lab: StoreDoors, **more: object) -> None:
        lab.runner.run(test(lab, **more))

    return run


def says(answer: object, beginning: str) -> bool:
    return isinstance(answer, Error) and answer.startswith(beginning.encode())
