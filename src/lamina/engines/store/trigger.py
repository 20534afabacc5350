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
from time import thread_time
from typing import Any, Final

from lamina.engines.store.compactions import CompactionReport, Compactions
from lamina.engines.store.engine import StoreEngine
from lamina.errors import LaminaError, Stopped, from_os
from lamina.log.files import Files, join, read_at, write_all
from lamina.log.teardown import Teardown
from lamina.units import MIB

logger = logging.getLogger("lamina.store")

CTRL: Final = "ctrl"
START: Final = "start_compaction"
RUNNING: Final = "compaction_running"
RESULT: Final = "compaction_result"
_LOOK_S: Final = 0.5  # how often the folder is looked at
_SOON_BYTES: Final = 8 * MIB  # that were written since: it is looked sooner
_PIECES: Final = 5  # in which it waits
_TELL_S: Final = 0.2  # how often it is said how far a compaction is
_AGAIN_S: Final = 60.0  # when the last one failed
_MOST: Final = 4096  # bytes of a question that are given back
_LEAST_BYTES: Final = MIB  # that are dead: fewer are not worth a compaction of their own
_MOST_BYTES: Final = 64 * MIB  # that are dead: more are, however many files are kept for the past
_PAST: Final = 16  # a compaction leaves a file for the past: of what is kept it is a part like this, or there were many
_SELDOM: Final = 30  # of a processor's time such a part goes into finding out how much is dead
_AT_LEAST_S: Final = 5.0  # how often it finds that out, whatever it costs
_CLEAN_S: Final = 60.0  # how often it is looked for files that were kept for long enough


class Trigger:
    """The thread that compacts when it is asked to. Start it when the store is open, stop it before it is closed."""

    def __init__(self, engine: StoreEngine, compactions: Compactions) -> None:
        self._engine, self._compactions = engine, compactions
        self._folder = join(engine.folder, CTRL)
        self._is_stopped = threading.Event()
        self._told_at = 0.0
        self._problems: set[str] = set()  # of the last look
        self._has_failed = self._is_to_clean_up = False
        self._took = 0.0  # seconds, the last compaction that it began
        self._seen_bytes = -1  # when it last found out how much was dead
        self._look_at = self._clean_at = 0.0  # when it will again, and when it cleans up next
        self._thread = threading.Thread(target=self._run, name="lamina-store-compaction", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give up what is going on, and end."""
        self._is_stopped.set()
        with Teardown(self._engine.folder) as teardown:
            teardown.step(self._compactions.stop)
            teardown.step(self._thread.join)

    def _run(self) -> None:
        while not self._is_stopped.is_set():  # at once: a program that runs for a moment only looks, too
            try:
                self.look()
            except Exception:
                logger.exception("the compaction's thread met a mistake of ours")
            self._wait()

    def _wait(self) -> None:
        """Till it is time for the next look: sooner when much is written."""
        before = self._engine.measured.bytes
        for _ in range(_PIECES):
            if self._is_stopped.wait(_LOOK_S / _PIECES) or self._engine.measured.bytes - before >= _SOON_BYTES:
                return

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

    @property
    def _acts(self) -> bool:
        """It compacts and cleans up by itself."""
        return bool(self._engine.options.compact_every_s or self._engine.options.compact_dead_ratio)

    def _compact_if_due(self) -> None:
        if self._is_due():
            began = self._engine.clock.monotonic()
            try:
                self._compact({"by": "itself"})
            finally:
                self._took = self._engine.clock.monotonic() - began
                self._is_to_clean_up = not self._has_failed

    def _is_due(self) -> bool:
        engine, options = self._engine, self._engine.options
        if engine.failure is not None or not self._acts:
            return False
        since = engine.clock.monotonic() - self._compactions.last_at
        if self._has_failed and since < _AGAIN_S:
            return False
        if options.compact_every_s and since >= options.compact_every_s and engine.logged_bytes():
            return True
        return bool(options.compact_dead_ratio) and since >= self._took and self._is_mostly_dead()

    def _is_mostly_dead(self) -> bool:
        compactions, clock = self._compactions, self._engine.clock
        if clock.monotonic() < self._look_at:
            return False
        counted = compactions.counted_bytes()
        least = self._least()
        if counted == self._seen_bytes or counted < least:
            return False
        began = thread_time()
        dead, total = compactions.dead_bytes()
        self._seen_bytes = counted
        self._look_at = clock.monotonic() + min(_SELDOM * (thread_time() - began), _AT_LEAST_S)
        return dead >= least and dead >= self._engine.options.compact_dead_ratio * total

    def _least(self) -> int:
        past = self._compactions.history.bytes_of(self._engine.folder)
        return max(_LEAST_BYTES, min(past // _PAST, _MOST_BYTES))

    def _clean_up_if_due(self) -> None:
        """What a compaction left, now or in an earlier run; what was kept for the past, and is older by now than that
        goes back, or has to give way."""
        engine, now = self._engine, self._engine.clock.monotonic()
        if not self._acts or engine.failure is not None or not engine.catalog.generation:
            return
        if self._is_to_clean_up or now >= self._clean_at or self._compactions.history.is_over(engine.folder):
            self._compactions.clean_up(keeps_recent=True)
            self._is_to_clean_up, self._clean_at = False, now + _CLEAN_S

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
