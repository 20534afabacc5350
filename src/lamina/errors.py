"""Every error lamina raises on purpose.

LaminaError
  StorageError
    DiskFull          retryable   writes are refused, reads go on; writing resumes when there is room
    DiskError                     the operating system refused or failed a call on a file
    LogFailed                     a sync or a cut-back failed: the log refuses writes until it is reopened
    LogClosed                     the log was closed
    LogLocked         retryable   another process writes to this folder
    Corruption                    bytes that were once whole no longer read back: file, byte, reason
    WrongFormat                   the file is of another kind, or written by a later version
  Gap                             records between two positions, or messages of a topic, are no longer there
  InputError
    RecordTooLarge                a payload above the limit
    ReservedPayload               a payload that looks like one of the kernel's own marks
    BadName                       a name that cannot be a file of this family
    BadOption                     a setting that cannot be
    BadJob                        a job with a value that cannot be
    BadTopic                      an id or a value that cannot be in a topic
      NoGroup                     the topic has no such group
      GroupExists                 the topic has a group of that name already
      BadBody                     a message does not fit the class that its topic is read with
    BadEntry                      a storage, key, value, version or epoch that cannot be in a store
    NotThere                      nothing has the name that was asked for
  MissingExtra                    a part of lamina is asked for that is not installed; names what to install
  StoreError
    TooOld                        the files do not reach back to that moment any more
    Stopped           retryable   it was given up before it was done; nothing was changed
  JobError
    JobNotFound                   no job has this id (any more)
    DuplicateJob                  a job with this id, or with this unique key, is there already
    DuplicateResult               the job was completed or failed before
    NotLeased                     the job is not being worked on
    TaskFailed                    the function of a task raised, or could not be called
    TaskUnfinished    retryable   a task has not ended in the time that was waited for it
  QueueError
    QueueRefused                  no such queue, or not for who asks: every reason looks the same
    QuotaMet          retryable   the queue is full, and closed until all of it was received
    MessageTooLarge               a body above the limit
    NoMessage                     this message is not the one that was delivered
    Prohibited                    one connection cannot both get and subscribe to the same queue
  NotAllowed                      who asks has not logged in, or may not do that
  NotReady            retryable   the server is being started or stopped
  Busy                retryable   something of the kind is going on already
  WireError                       a client got something that is no answer
    Disconnected      retryable   the server is not there, or went away; what was asked may have been done

Each class has a stable ``code`` (the same word in logs, on the wire, in JSON) and says whether trying again can
help. Programming mistakes stay ``TypeError`` and ``ValueError``.
"""

from __future__ import annotations

import errno
from typing import ClassVar


class LaminaError(Exception):
    """Root of every error this library raises on purpose."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def as_dict(self) -> dict[str, object]:
        """The error as plain values, for ``--json`` and the wire."""
        return {"code": self.code, "message": self.message, "hint": self.hint, **self.facts}


class StorageError(LaminaError):
    """Something about the files."""

    code = "storage"


class DiskFull(StorageError):
    """There is no room for the record. Nothing of it was kept; try again when there is room."""

    code = "disk_full"
    retryable = True


class DiskError(StorageError):
    """The operating system refused or failed a call on a file."""

    code = "disk_error"


class LogFailed(StorageError):
    """What is on the disk is no longer known (a failed sync is never retried): reopen the log to go on."""

    code = "log_failed"


class LogClosed(StorageError):
    """The log was closed; open it again to go on."""

    code = "log_closed"


class LogLocked(StorageError):
    """Another process (or another handle of this one) is the writer of this folder."""

    code = "log_locked"
    retryable = True


class Corruption(StorageError):
    """Bytes that were whole once no longer read back. Never skipped silently."""

    code = "corruption"

    def __init__(self, file: str, offset: int, reason: str, *, hint: str = "") -> None:
        super().__init__(
            f"{file}, byte {offset}: {reason}",
            hint=hint or 'run "lamina log verify" to see all damage, "lamina log repair" to quarantine it',
            file=file,
            offset=offset,
            reason=reason,
        )
        self.file, self.offset, self.reason = file, offset, reason


class WrongFormat(StorageError):
    """The file has the header of another kind of file, or of a later version."""

    code = "wrong_format"

    def __init__(self, file: str, reason: str, *, hint: str = "") -> None:
        super().__init__(
            f"{file}, byte 0: {reason}",
            hint=hint or "check that the folder is the right one; nothing was changed",
            file=file,
            offset=0,
            reason=reason,
        )
        self.file, self.offset, self.reason = file, 0, reason


class Gap(LaminaError):
    """Records after ``after`` and up to ``until`` are no longer there: times of records, or ids of a topic's messages.

    Reading a topic goes on by asking for the next message: the first that is there is ``resumes_at`` (None: there is
    none yet).
    """

    code = "gap"

    def __init__(
        self, after: int | str, until: int | str, *, why: str, hint: str = "", resumes_at: str | None = None
    ) -> None:
        super().__init__(
            f"records after {after} up to {until} are gone: {why}",
            hint=hint or f"read on with after={until} to accept the gap",
            after=after,
            until=until,
        )
        self.after, self.until, self.resumes_at = after, until, resumes_at


class InputError(LaminaError):
    """What was handed in cannot be stored; nothing was changed."""

    code = "input"


class RecordTooLarge(InputError):
    """The payload is above the limit of the log."""

    code = "record_too_large"

    def __init__(self, index: int, size: int, limit: int) -> None:
        super().__init__(
            f"payload {index} of the batch has {size} bytes, the limit is {limit}",
            hint="split it, or raise max_payload",
            index=index,
            size=size,
            limit=limit,
        )


class ReservedPayload(InputError):
    """The payload has exactly the form of a kernel mark and would be read back as one."""

    code = "reserved_payload"

    def __init__(self, index: int) -> None:
        super().__init__(
            f"payload {index} of the batch has the form of a kernel mark",
            hint="add a byte of your own in front of it",
            index=index,
        )


class BadName(InputError):
    """The name cannot be a file of this family."""

    code = "bad_name"


class BadOption(InputError):
    """A setting that cannot be."""

    code = "bad_option"


class BadJob(InputError):
    """A job with a value that cannot be."""

    code = "bad_job"


class BadTopic(InputError):
    """An id or a value that cannot be in a topic."""

    code = "bad_topic"


class NoGroup(BadTopic):
    """The topic has no such group."""

    code = "no_group"


class GroupExists(BadTopic):
    """The topic has a group of that name already."""

    code = "group_exists"


class BadBody(BadTopic):
    """A message does not fit the class that its topic is read with; or an object cannot be published as one."""

    code = "bad_body"

    def __init__(self, topic: str, id: str | None, field: str, reason: str) -> None:
        which = "an object" if id is None else f"the message {id}"
        where = f", in its field {field!r}" if field else ""
        super().__init__(
            f"{which} does not fit the topic {topic!r}{where}: {reason}",
            hint="nothing was published" if id is None else "acknowledge it to be done with it; .plain has its fields",
            topic=topic,
            id=id,
            field=field,
            reason=reason,
        )
        self.topic, self.id, self.field, self.reason = topic, id, field, reason


class BadEntry(InputError):
    """A storage, key, value, version or epoch that cannot be in a store."""

    code = "bad_entry"


class NotThere(InputError):
    """Nothing has the name that was asked for (any more)."""

    code = "not_there"


class MissingExtra(LaminaError):
    """What is asked for needs packages that are not installed; the hint is the command that does."""

    code = "missing_extra"


class StoreError(LaminaError):
    """Something about the store."""

    code = "store"


class TooOld(StoreError):
    """What was is no longer in the files: clean-up removed it."""

    code = "too_old"

    def __init__(self, asked: int, oldest: int, oldest_ns: int) -> None:
        super().__init__(
            f"the files do not reach back to epoch {asked}",
            hint=f"the oldest epoch that can be read is {oldest}",
            oldest_epoch=oldest,
            oldest_time_ns=oldest_ns,
        )


class Stopped(StoreError):
    """It was given up before it was done; nothing was changed."""

    code = "stopped"
    retryable = True


class JobError(LaminaError):
    """A command that does not fit the job."""

    code = "job"


class JobNotFound(JobError):
    """No job has this id (any more)."""

    code = "job_not_found"


class DuplicateJob(JobError):
    """A job with this id, or with this unique key, is there already."""

    code = "duplicate_job"


class DuplicateResult(JobError):
    """The job was completed or failed before."""

    code = "duplicate_result"


class NotLeased(JobError):
    """The job is not being worked on."""

    code = "not_leased"


class TaskFailed(JobError):
    """The function of a task raised, for the last time, or could not be called; the message says what it said."""

    code = "task_failed"

    def __init__(self, task: str, id: str, error: str) -> None:
        super().__init__(
            f"{task}, job {id}: {error}", hint='"lamina jobs redrive" drives it again', task=task, id=id, error=error
        )


class TaskUnfinished(JobError):
    """The task has not ended in the time that was waited for it. It may yet: ask for its result again."""

    code = "task_unfinished"
    retryable = True

    def __init__(self, task: str, id: str, waited_s: float) -> None:
        super().__init__(
            f"{task}, job {id}: not done in {waited_s:g} s",
            hint="is a worker running (lamina worker module:app)? task.handle(id).result(wait) waits on",
            task=task,
            id=id,
        )


class QueueError(LaminaError):
    """Something about queues."""

    code = "queue"


class QueueRefused(QueueError):
    """There is no such queue, or it is not for who asks. Which of the two nobody is told."""

    code = "auth"

    def __init__(self, message: str = "there is no such queue for you") -> None:
        super().__init__(message, hint="check the id, and show its key first")


class QuotaMet(QueueError):
    """The queue is full. It takes nothing until its recipient has received all of it."""

    code = "quota"
    retryable = True

    def __init__(self, quota: int, position: int = 0) -> None:
        super().__init__(
            f"the queue has {quota} messages that wait: it takes none until all were received",
            hint="send again when the recipient says so",
            quota=quota,
        )
        self.position = position
        """Of the marker that was put at the end."""


class MessageTooLarge(QueueError):
    """The body is above the limit."""

    code = "large"

    def __init__(self, size: int, limit: int, what: str = "a message") -> None:
        super().__init__(
            f"{what} of {size} bytes cannot be sent: {limit} bytes at most", hint="send it in parts", limit=limit
        )


class NoMessage(QueueError):
    """This message is not the one that was delivered, or not to who acknowledges it."""

    code = "no_message"

    def __init__(self, message: str = "this is not the message that was delivered here last") -> None:
        super().__init__(message, hint="receive again: the head of the queue comes again until it is acknowledged")


class Prohibited(QueueError):
    """One connection cannot both get and subscribe to the same queue."""

    code = "prohibited"


class NotReady(LaminaError):
    """The server is being started or stopped. Try again in a moment."""

    code = "not_ready"
    retryable = True


class Busy(LaminaError):
    """Something of the kind is going on already. Nothing was changed."""

    code = "busy"
    retryable = True


class NotAllowed(LaminaError):
    """Who asks has not logged in, said something wrong of itself, or may not do that. Nothing was changed."""

    code = "not_allowed"


class WireError(LaminaError):
    """What came back is no answer of such a server, or it does not know the command."""

    code = "wire"


class Disconnected(WireError):
    """The server is not there, hung up, or did not answer in time. A command that was sent may have been done."""

    code = "disconnected"
    retryable = True


def from_os(error: OSError, action: str, path: str) -> StorageError:
    """Say which file the operating system failed on, doing what, and what to do next."""
    number = error.errno or 0
    reason = error.strerror or str(error)
    facts = {"path": path, "errno": errno.errorcode.get(number, str(number)), "action": action}
    message = f"{path}: cannot {action}: {reason}"
    if number in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(message, hint="make room; writing resumes by itself", **facts)
    hint = {
        errno.EACCES: "check the owner and the rights of the folder",
        errno.EPERM: "check the owner and the rights of the folder",
        errno.EROFS: "the file system is read-only; readers still work",
        errno.ENOENT: "check the path",
        errno.ENOTDIR: "a folder was expected",
        errno.EMFILE: "raise the limit of open files (ulimit -n)",
        errno.ENFILE: "the machine is out of file handles",
        errno.EIO: "the disk reports an error; check it before reopening the log",
        errno.ELOOP: "symbolic links are not followed; name the real file or folder",
    }.get(number, "")
    return DiskError(message, hint=hint, **facts)


def let_go_of_frames(error: BaseException | None) -> None:
    """An error that is kept must not keep the frames it came through, and what they hold."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        error = error.__cause__  # what else was being handled is the caller's
