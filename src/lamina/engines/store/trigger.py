"""Compactions that nobody calls for from within: a file in ``ctrl/`` asks for one, and so may time and dead bytes.

    ctrl/start_compaction     made by whoever wants one; removed when it is seen; what it holds is given back
    ctrl/compaction_running   how far it is, while it is going on
    ctrl/compaction_result    how the last one ended

All of them are JSON, one object each. The folder is made again when it is gone, and nothing else depends on it.
"""

from __future__ import annotations

import json
import logging
import threading
from contextlib import suppress
from typing import Any, Final

from lamina.engines.store import as_of
from lamina.engines.store.compactions import CompactionReport, Compactions
from lamina.engines.store.engine import StoreEngine
from lamina.errors import LaminaError, Stopped, TooOld, from_os
from lamina.log.files import Files, join, read_at, write_all
from lamina.log.teardown import Teardown
from lamina.units import MIB

logger = logging.getLogger("lamina.store")

CTRL: Final = "ctrl"
START: Final = "start_compaction"
RUNNING: Final = "compaction_running"
RESULT: Final = "compaction_result"
_LOOK_S: Final = 0.5  # how often the folder is looked at
_TELL_S: Final = 0.2  # how often it is said how far a compaction is
_AGAIN_S: Final = 60.0  # when the last one failed
_MOST: Final = 4096  # bytes of a question that are given back
_LEAST_BYTES: Final = 16 * MIB  # below that it is not worth a compaction of its own


class Trigger:
    """The thread that compacts when it is asked to. Start it when the store is open, stop it before it is closed."""

    def __init__(self, engine: StoreEngine, compactions: Compactions) -> None:
        self._engine, self._compactions = engine, compactions
        self._folder = join(engine.folder, CTRL)
        self._is_stopped = threading.Event()
        self._told_at = 0.0
        self._problems: set[str] = set()  # of the last look
        self._has_failed = self._is_to_clean_up = False
        self._thread = threading.Thread(target=self._run, name="lamina-store-compaction", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give up what is going on, and end."""
        self._is_stopped.set()
        with Teardown(self._engine.folder) as teardown:
            teardown.step(self._compactions.stop)
            teardown.step(self._thread.join)

    def _run(self) -> None:
        while not self._is_stopped.wait(_LOOK_S):
            try:
                self.look()
            except Exception:
                logger.exception("the compaction's thread met a mistake of ours")

    def look(self) -> None:
        """Do what is asked for, or due. What goes wrong is logged, once as long as it stays so."""
        before, self._problems = self._problems, set()
        if self._engine.reserve is not None:
            self._engine.reserve.look(at_most_every_s=_LOOK_S / 2)
        for step in (self._compact_if_asked, self._compact_if_due, self._clean_up_if_due):
            try:
                step()
            except LaminaError as error:
                text = str(error)
                if text not in before | self._problems:
                    logger.warning("%s", text)
                self._problems.add(text)

    def _compact_if_asked(self) -> None:
        files = self._engine.files
        _make(files, self._folder)
        asked = take_question(files, self._folder)
        if asked is not None:
            self._compact(asked)

    def _compact_if_due(self) -> None:
        if self._is_due():
            try:
                self._compact({"by": "itself"})
            finally:
                self._is_to_clean_up = not self._has_failed

    def _is_due(self) -> bool:
        engine, options = self._engine, self._engine.options
        if engine.failure is not None or not (options.compact_every_s or options.compact_dead_ratio):
            return False
        logged = engine.logged_bytes()
        if not logged:
            return False
        since = engine.clock.monotonic() - self._compactions.last_at
        if self._has_failed and since < _AGAIN_S:
            return False
        if options.compact_every_s and since >= options.compact_every_s:
            return True
        if not options.compact_dead_ratio or logged < _LEAST_BYTES:
            return False
        return self._compactions.dead_ratio() >= options.compact_dead_ratio

    def _clean_up_if_due(self) -> None:
        engine = self._engine
        if not self._is_to_clean_up:
            return
        keep: int | None = None
        if engine.options.keep_history_s:
            try:
                keep = as_of.epoch_at(engine, engine.clock.now_ns() - int(engine.options.keep_history_s * 1e9))
            except TooOld:
                keep = 0  # all there is
        self._compactions.clean_up(keep)
        self._is_to_clean_up = False

    def _compact(self, asked: dict[str, Any]) -> None:
        files = self._engine.files
        answer: dict[str, Any] = {"asked": asked}
        try:
            report = self._compactions.compact(self._tell)
            self._has_failed = False
            answer |= {"outcome": "done" if report.inputs else "nothing to do", **report.as_dict()}
        except Stopped as error:
            answer |= {"outcome": "stopped", "error": error.as_dict()}
        except LaminaError as error:
            self._has_failed = True
            answer |= {"outcome": "failed", "error": error.as_dict()}
            logger.warning("a compaction failed: %s", error)
        finally:
            _remove(files, join(self._folder, RUNNING))
        _make(files, self._folder)
        put(files, self._folder, RESULT, answer)

    def _tell(self, done: int, total: int) -> None:
        now = self._engine.clock.monotonic()
        if now - self._told_at >= _TELL_S:
            self._told_at = now
            with suppress(LaminaError):  # it goes on, whoever watches
                put(self._engine.files, self._folder, RUNNING, {"done": done, "total": total})


def _make(files: Files, folder: str) -> None:
    """Raises: DiskError."""
    try:
        files.make_folder(folder)
    except OSError as error:
        raise from_os(error, "make the folder", folder) from error


def take_question(files: Files, folder: str) -> dict[str, Any] | None:
    """What ``start_compaction`` holds, if it is there; it is removed. Raises: StorageError."""
    found = get(files, folder, START)
    if found is not None:
        try:
            files.remove(join(folder, START))
        except OSError as error:  # left there, it would ask again and again
            raise from_os(error, "remove the file", join(folder, START)) from error
    return found


def get(files: Files, folder: str, name: str) -> dict[str, Any] | None:
    """What a file of ``ctrl/`` holds; None if it is not there, nothing if it is not JSON. Raises: DiskError."""
    path = join(folder, name)
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise from_os(error, "open the file", path) from error
    try:
        text = read_at(file, 0, min(file.size(), 1 << 20 if name == RESULT else _MOST))
        found = json.loads(text)
    except ValueError:
        return {}
    finally:
        file.close()
    return found if isinstance(found, dict) else {}


def put(files: Files, folder: str, name: str, values: dict[str, Any]) -> None:
    """Write a file of ``ctrl/`` in one step. A message, not a record: nothing waits for the disk. Raises: DiskError."""
    path = join(folder, name)
    temporary = path + ".tmp"
    try:
        _remove(files, temporary)
        file = files.create(temporary)
        try:
            write_all(file, [json.dumps(values).encode() + b"\n"])
        finally:
            file.close()
        files.rename(temporary, path)
    except OSError as error:
        _remove(files, temporary)
        raise from_os(error, "write the file", path) from error


def _remove(files: Files, path: str) -> None:
    try:
        files.remove(path)
    except OSError:
        return


def report_of(answer: dict[str, Any]) -> CompactionReport | None:
    """The report in a result, None if there is none."""
    if answer.get("outcome") not in ("done", "nothing to do"):
        return None
    names = CompactionReport.__dataclass_fields__
    facts = {name: answer[name] for name in names if name in answer}
    return CompactionReport(**{**facts, "inputs": tuple(facts.get("inputs", ()))})
