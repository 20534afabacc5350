"""Opening the queues of a folder: the lock, what is there, and a new log that goes on from it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from secrets import token_bytes

from lamina.clock import Clock, SystemClock
from lamina.engines.queues import codec, migration_mark, store_files
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.message import Queue
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.restoring import Restored, restore
from lamina.engines.queues.state import State
from lamina.errors import BadOption, from_os
from lamina.log import foreign, lock
from lamina.log.commit import Committer
from lamina.log.files import Files, FolderLock, join
from lamina.log.files.real import RealFiles
from lamina.log.formats import QUEUE_STORE
from lamina.log.naming import STORED
from lamina.log.options import LogOptions
from lamina.log.teardown import Teardown
from lamina.log.writer import Log

JOURNALS = "messages"
_WHOLE = 1 << 60  # bytes of a log file: only a dump begins the next one

logger = logging.getLogger("lamina.queues")


def open_engine(
    folder: str,
    *,
    options: QueueOptions | None = None,
    log: LogOptions | None = None,
    files: Files | None = None,
    clock: Clock | None = None,
    random: Callable[[int], bytes] = token_bytes,
    committer: Committer | None = None,
    threaded: bool = True,
    force: bool = False,
    keeps_history: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> QueueEngine:
    """Open the queues of ``folder``, making it if need be. ``force``: load what can be read, where it would refuse.
    ``keeps_history``: older files may be there, for the past.

    Durability: what can be received after this is synced.
    Raises: LogLocked; Corruption, WrongFormat (nothing was changed); BadOption if messages are in the other store;
        DiskError, DiskFull.
    """
    options, disk, time = options or QueueOptions(), files or RealFiles(), clock or SystemClock()
    try:
        disk.make_folder(folder)
        foreign.refuse(folder, disk.list(folder))
    except OSError as error:
        raise from_os(error, "make the folder", folder) from error
    with Teardown(folder) as teardown:
        held = lock.take(disk, folder, STORED.lock_name)
        teardown.later(held.release)
        migration_mark.refuse_if_under_way(disk, folder)
        now = time.now_ns() // 10**9
        restored = restore(
            disk, folder, now=now, ttl=options.ttl_s, force=force, keeps_history=keeps_history, progress=progress
        )
        _check_store(disk, folder, restored.state, options)
        for warning in restored.warnings:
            logger.warning("%s", warning)
        log_options = _log_options(log or LogOptions())
        started = _start_log(
            disk, folder, time, restored, log_options, held, committer, threaded=threaded, accepts_loss=force
        )
        teardown.later(started.close)
        engine = QueueEngine(folder, started, time, disk, options, restored, random)
        engine.rebuild_state = lambda: _again(disk, folder, force=restored.was_forced)
        if options.store == "journal":
            _use_journals(engine, log_options, restored)
        else:
            _write_down_expired(engine, restored)
        teardown.cancel()
    return engine


def _log_options(given: LogOptions) -> LogOptions:
    return LogOptions(
        sync=given.sync, segment_bytes=_WHOLE, max_payload=given.max_payload, gather_bytes=given.gather_bytes
    )


def _start_log(
    files: Files,
    folder: str,
    clock: Clock,
    restored: Restored,
    options: LogOptions,
    held: FolderLock,
    committer: Committer | None,
    *,
    threaded: bool,
    accepts_loss: bool,
) -> Log:
    return Log.start(
        folder,
        store_files.log_name(restored.next_number),
        last=restored.last_time,
        held=held,
        options=options,
        family=STORED,
        format=QUEUE_STORE,
        files=files,
        clock=clock,
        committer=committer,
        threaded=threaded,
        may_be_later=True,
        accepts_loss=accepts_loss,
    )


def _write_down_expired(engine: QueueEngine, restored: Restored) -> None:
    """Say in the log what was left out: else the next start, if no dump comes before it, would find those messages in
    front of ones that were received since, and take what acknowledges these for a mistake.

    Nobody waits for it: if the disk refuses, the messages are there again, and go when their turn comes.
    """
    for rid, id in restored.left_out:
        engine._append(codec.expire(rid, id))
    restored.left_out.clear()


def _again(files: Files, folder: str, *, force: bool) -> State:
    """What the log has, after it refused what the state had taken already."""
    return restore(files, folder, now=0, ttl=0, force=force).state


def _check_store(files: Files, folder: str, state: State, options: QueueOptions) -> None:
    """Messages are in one store at a time."""
    has_journals = _has_journals(files, folder)
    if options.store == "memory" and has_journals:
        raise BadOption(
            f"{folder}: the messages are in journals",
            hint="serve with --queues journal, or run `lamina queues migrate --to memory`",
            option="store",
        )
    if options.store == "journal" and state.messages:
        raise BadOption(
            f"{folder}: {state.messages} messages are in the log and its dumps, not in journals",
            hint="serve with --queues memory, or run `lamina queues migrate --to journal`",
            option="store",
        )


def _has_journals(files: Files, folder: str) -> bool:
    try:
        return bool(files.list(join(folder, JOURNALS)))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise from_os(error, "list the folder", join(folder, JOURNALS)) from error


def _use_journals(engine: QueueEngine, log: LogOptions, restored: Restored) -> None:
    from lamina.engines.queues.journal.home import JournalOptions
    from lamina.engines.queues.journal.store import JournalStore

    given = engine.options
    store = JournalStore(
        join(engine.folder, JOURNALS),
        engine.files,
        engine.clock,
        engine.random,
        sync=log.sync,
        options=JournalOptions(
            quota=given.quota,
            max_file_messages=given.max_file_messages,
            path_parts=given.path_parts,
            part_chars=given.part_chars,
            keep_copies=given.keep_copies,
            keep_copy_days=given.keep_copy_days,
            most_open=given.most_open,
        ),
        tell=lambda problem: logger.warning("%s", problem),
    )
    engine.use_journal(store)
    store.bring_back(restored.state.queues.__contains__)
    for rid in restored.deleted:  # a crash may have come between a deletion and the removal of the folder
        if rid not in restored.state.queues:
            store.delete(Queue(rid, None, b"", None))
