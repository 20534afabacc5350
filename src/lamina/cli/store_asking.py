"""Asking a running store for a compaction: through its folder ``ctrl/``, and waiting for the answer.

The question has an id, which comes back in the answer. Only one question fits: who finds another one there waits.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from typing import Any, Final

from lamina.engines.store.compactions import Progress
from lamina.engines.store.trigger import CTRL, RESULT, RUNNING, START, get, put
from lamina.errors import StorageError, from_os
from lamina.log.files import Files, join
from lamina.log.naming import PWAL

_LOOK_S: Final = 0.1  # an answer stays for half a second at least


def holder_of(files: Files, folder: str) -> str | None:
    """The process that has the store open, if one does."""
    return files.lock_holder(join(folder, PWAL.lock_name))


def ask(files: Files, folder: str, progress: Progress) -> dict[str, Any]:
    """Ask the process that has the store open, and wait. Returns what is in ``ctrl/compaction_result``.

    Raises: StorageError if that process is gone before it has answered; DiskError.
    """
    ctrl = join(folder, CTRL)
    id = secrets.token_hex(8)
    try:
        _place(files, folder, ctrl, {"id": id, "by": "lamina store compact"})
        while True:
            is_held = holder_of(files, folder) is not None  # asked first: it may answer and go
            answer = get(files, ctrl, RESULT)
            if answer is not None and _id_of(answer.get("asked")) == id:
                return answer
            if not is_held:
                raise _is_gone(folder)
            running = get(files, ctrl, RUNNING)
            if running:
                with suppress(TypeError, ValueError):
                    progress(int(running.get("done", 0)), int(running.get("total", 0)))
            time.sleep(_LOOK_S)
    finally:
        _withdraw(files, ctrl, id)


def _place(files: Files, folder: str, ctrl: str, question: dict[str, Any]) -> None:
    """Put the question there in one step, when there is no other."""
    draft = f"{START}.{question['id']}"
    put(files, ctrl, draft, question)
    try:
        while True:
            try:
                files.link(join(ctrl, draft), join(ctrl, START))
                return
            except FileExistsError:
                if holder_of(files, folder) is None:
                    raise _is_gone(folder) from None
                time.sleep(_LOOK_S)
            except OSError as error:
                raise from_os(error, "ask for a compaction in", ctrl) from error
    finally:
        with suppress(OSError):
            files.remove(join(ctrl, draft))


def _withdraw(files: Files, ctrl: str, id: str) -> None:
    """Nobody waits for the answer any more."""
    with suppress(OSError, StorageError):
        if _id_of(get(files, ctrl, START)) == id:
            files.remove(join(ctrl, START))


def _id_of(question: object) -> object:
    return question.get("id") if isinstance(question, dict) else None


def _is_gone(folder: str) -> StorageError:
    return StorageError(f"{folder}: the process that had it open is gone", hint="run it again")
