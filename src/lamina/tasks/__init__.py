"""Functions as jobs: ``@lm.task()`` puts a call into a queue, ``lamina worker`` makes it."""

from __future__ import annotations

from lamina.tasks.book import TaskBook, make_task
from lamina.tasks.task import AsyncTask, Task, TaskOptions
from lamina.tasks.tickets import AsyncHandle, Handle

__all__ = ["AsyncHandle", "AsyncTask", "Handle", "Task", "TaskBook", "TaskOptions", "make_task"]
