"""What one has of a call that was put into a queue: its id, and in time its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from lamina.engines.jobs.api import Seconds, to_ms
from lamina.engines.jobs.views import JobResult
from lamina.errors import TaskFailed, TaskUnfinished

if TYPE_CHECKING:
    from lamina.tasks.packing import Form

R = TypeVar("R")


class GivesJobsAsync(Protocol):
    """The part of ``jobs.aio`` that tasks need, inside a process or behind a server."""

    async def add(self, name: str, payload: bytes, **options: object) -> str: ...

    async def add_many(self, name: str, payloads: Iterable[bytes], **options: object) -> list[str]: ...

    async def result(self, id: str, wait: Seconds = 0) -> JobResult | None: ...


class GivesJobs(Protocol):
    """The part of ``jobs`` that tasks need."""

    def add(self, name: str, payload: bytes, **options: object) -> str: ...

    def add_many(self, name: str, payloads: Iterable[bytes], **options: object) -> list[str]: ...

    def result(self, id: str, wait: Seconds = 0) -> JobResult | None: ...

    @property
    def aio(self) -> GivesJobsAsync: ...


class _Ticket(Generic[R]):
    def __init__(self, jobs: Callable[[], GivesJobs], form: Form, id: str) -> None:
        self.id = id
        """Of the job."""
        self._jobs, self._form = jobs, form

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self._form.name}>"

    def _value(self, found: JobResult | None, wait: Seconds) -> R:
        if found is None:
            raise TaskUnfinished(self._form.name, self.id, to_ms("wait", wait) / 1000)
        if not found.is_success:
            raise TaskFailed(self._form.name, self.id, found.result.decode(errors="backslashreplace"))
        value: R = self._form.unpack_result(found.result)
        return value


class Handle(_Ticket[R]):
    """Of a call that was put into a queue."""

    def result(self, wait: Seconds = 0) -> R:
        """What the function returned. Raises: TaskFailed; TaskUnfinished after ``wait``; JobNotFound: expired."""
        return self._value(self._jobs().result(self.id, wait), wait)


class AsyncHandle(_Ticket[R]):
    """The same for coroutines."""

    async def result(self, wait: Seconds = 0) -> R:
        """As ``Handle.result``."""
        return self._value(await self._jobs().aio.result(self.id, wait), wait)
