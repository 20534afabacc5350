"""One line of the workq protocol, read with care: its words and flags, and the command they make.

The order of the checks is part of the protocol, as it decides which error the client sees; it is the order of the
statements here, and the arguments of a call are checked from left to right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from lamina.server.workq import fields
from lamina.server.workq.commands import (
    Add,
    Auth,
    Bury,
    Command,
    Complete,
    Delete,
    Fail,
    InspectJob,
    InspectJobs,
    InspectQueue,
    InspectQueues,
    InspectQueueViews,
    InspectScheduled,
    InspectServer,
    InspectState,
    InspectView,
    InspectViews,
    Lease,
    Pause,
    Redrive,
    Refusal,
    Release,
    Result,
    Resume,
    Run,
    Touch,
)
from lamina.server.workq.fields import Refused

Words: TypeAlias = list[bytes]
Flags: TypeAlias = dict[bytes, bytes]

BAD_FLAGS: Final = "Invalid command flags"
BAD_COUNT: Final = "Invalid command args"
UNKNOWN: Final = "Unknown command"

# Numbers, as ``in`` takes ten times longer to look for bytes in bytes.
_DASH: Final = ord("-")
_EQUALS: Final = ord("=")
_OWN_JOB_FLAGS: Final = frozenset((b"unique", b"backoff"))  # unknown to workq, so they do not count against its limit
_MAX_JOB_FLAGS: Final = 3
_MAX_RUN_FLAGS: Final = 1


class Line(NamedTuple):
    """A line taken apart."""

    word: bytes  # the command; empty if the line is, or starts with a blank
    arguments: Words
    flags: Flags | None  # None: malformed

    def refusal(self, text: str) -> Refusal:
        """``text``, unless the flags are malformed: they are checked before all else."""
        return Refusal(BAD_FLAGS if self.flags is None else text)

    def command(self) -> Command:
        """What the line of a command without payload asks for."""
        if self.flags is None:
            return Refusal(BAD_FLAGS)
        make = _PLAIN.get(self.word)
        if make is None:
            return Refusal(UNKNOWN)
        try:
            return make(self.arguments, self.flags)
        except Refused as refused:
            return Refusal(str(refused), refused.queues)


class Form(NamedTuple):
    """A command with a payload."""

    argument_count: int  # the last argument is the size of the payload
    size_text: str  # the refusal if size and payload do not agree
    make: Callable[[Words, Flags, bytes], Command]

    def size(self, line: Line) -> int | Refusal:
        """Bytes of the payload. After the refusal nobody knows where the next command starts."""
        if len(line.arguments) != self.argument_count:
            return line.refusal(BAD_COUNT)
        try:
            return fields.size(line.arguments[-1], self.size_text)
        except Refused:
            return line.refusal(self.size_text)

    def command(self, line: Line, payload: bytes) -> Command:
        """What a line with a usable size and its payload ask for."""
        if line.flags is None:
            return Refusal(BAD_FLAGS)
        try:
            return self.make(line.arguments, line.flags, payload)
        except Refused as refused:
            return Refusal(str(refused))


def split(line: bytes) -> Line:
    """Words and flags of a line without its CR LF. Only blanks separate; several count as one."""
    words = line.split(b" ")
    arguments = words[1:]
    flags: Flags | None = {}
    if _EQUALS in line:
        arguments, flags = _part_flags(words)
    if b"" in arguments:
        arguments = [argument for argument in arguments if argument]
    return Line(words[0], arguments, flags)


def _part_flags(words: Words) -> tuple[Words, Flags | None]:
    """Arguments and flags of a line; the flags are None if one is malformed or given twice."""
    arguments = [word for word in words[1:] if _EQUALS not in word or word[0] != _DASH]
    # The first word is looked at, too: that is how the real server does it.
    pairs = [word[1:].split(b"=", 2) for word in words if _EQUALS in word and word[0] == _DASH]
    flags = {pair[0]: pair[1] for pair in pairs}  # what follows a second = is thrown away
    is_right = len(flags) == len(pairs) and b"" not in flags and b"" not in flags.values()
    return arguments, flags if is_right else None


def _expect(is_right: bool) -> None:
    """Number of arguments and flags: workq has one text for both."""
    if not is_right:
        raise Refused(BAD_COUNT)


# -- with payload --------------------------------------------------------------------------------------------------


def _add(words: Words, flags: Flags, payload: bytes) -> Add:
    return _job(words, None, flags, payload)


def _schedule(words: Words, flags: Flags, payload: bytes) -> Add:
    return _job(words, words[4], flags, payload)


def _job(words: Words, time_word: bytes | None, flags: Flags, payload: bytes) -> Add:
    _expect(len(flags) <= _MAX_JOB_FLAGS or len(flags.keys() - _OWN_JOB_FLAGS) <= _MAX_JOB_FLAGS)
    id = fields.spelled_id(words[0])
    ttr = fields.ttr_number(words[2])
    ttl = fields.ttl_number(words[3])
    time = None if time_word is None else fields.time(time_word)
    max_attempts = fields.max_attempts(flags[b"max-attempts"]) if b"max-attempts" in flags else 0
    max_fails = fields.max_fails(flags[b"max-fails"]) if b"max-fails" in flags else 0
    priority = fields.priority(flags[b"priority"]) if b"priority" in flags else 0
    unique = fields.unique(flags[b"unique"]) if b"unique" in flags else ""
    backoff = fields.backoff(flags[b"backoff"]) if b"backoff" in flags else 0
    fields.check_version(id)
    name = fields.name(words[1])
    fields.check_ttr(ttr)
    fields.check_ttl(ttl)
    return Add(id, name, ttr, ttl, payload, priority, max_attempts, max_fails, time, unique, backoff)


def _run(words: Words, flags: Flags, payload: bytes) -> Run:
    _expect(len(flags) <= _MAX_RUN_FLAGS)
    id = fields.spelled_id(words[0])
    ttr = fields.ttr_number(words[2])
    priority = fields.priority(flags[b"priority"]) if b"priority" in flags else 0
    wait = fields.wait(words[3])
    fields.check_version(id)
    name = fields.name(words[1])
    return Run(id, name, fields.check_ttr(ttr), wait, payload, priority)


def _complete(words: Words, flags: Flags, payload: bytes) -> Complete:
    _expect(not flags)
    return Complete(fields.job_id(words[0]), payload)


def _fail(words: Words, flags: Flags, payload: bytes) -> Fail:
    _expect(not flags)
    return Fail(fields.job_id(words[0]), payload)


def _bury(words: Words, flags: Flags, payload: bytes) -> Bury:
    _expect(not flags)
    return Bury(fields.job_id(words[0]), payload)


WITH_PAYLOAD: Final = {
    b"add": Form(5, "Invalid payload size", _add),
    b"schedule": Form(6, "Invalid payload size", _schedule),
    b"run": Form(5, "Invalid payload size", _run),
    b"complete": Form(2, "Invalid payload size", _complete),
    b"fail": Form(2, "Invalid result size", _fail),
    b"bury": Form(2, "Invalid result size", _bury),
}


# -- without payload -----------------------------------------------------------------------------------------------


def _lease(words: Words, flags: Flags) -> Lease:
    _expect(len(words) >= 2 and flags.keys() <= {b"max", b"attempts"})
    wait = fields.wait(words[-1])
    most = fields.most(flags[b"max"]) if b"max" in flags else 1
    tells_attempts = b"attempts" in flags and fields.unsigned(flags[b"attempts"], 0, 1, BAD_FLAGS) == 1
    return Lease(fields.names(words[:-1]), wait, most, tells_attempts)


def _delete(words: Words, flags: Flags) -> Delete:
    _expect(len(words) == 1 and not flags)
    return Delete(fields.job_id(words[0]))


def _result(words: Words, flags: Flags) -> Result:
    _expect(len(words) == 2 and not flags)
    return Result(fields.job_id(words[0]), fields.wait(words[1]))


def _touch(words: Words, flags: Flags) -> Touch:
    _expect(len(words) == 2 and not flags)
    return Touch(fields.job_id(words[0]), fields.check_ttr(fields.ttr_number(words[1])))


def _release(words: Words, flags: Flags) -> Release:
    _expect(len(words) == 2 and not flags)
    return Release(fields.job_id(words[0]), fields.delay(words[1]))


def _redrive(words: Words, flags: Flags) -> Redrive:
    _expect(1 <= len(words) <= 2 and not flags)
    if len(words) == 1:
        return Redrive(fields.job_id(words[0]), None, 1)
    return Redrive(None, fields.name(words[0]), fields.limit(words[1], fields.MAX_BATCH))


def _pause(words: Words, flags: Flags) -> Pause:
    _expect(len(words) == 1 and not flags)
    return Pause(fields.name(words[0]))


def _resume(words: Words, flags: Flags) -> Resume:
    _expect(len(words) == 1 and not flags)
    return Resume(fields.name(words[0]))


def _auth(words: Words, flags: Flags) -> Auth:
    _expect(len(words) == 2 and not flags)
    return Auth(*words)


# -- inspect -------------------------------------------------------------------------------------------------------


def _inspect(words: Words, flags: Flags) -> Command:
    _expect(len(words) >= 1)
    found = _OBJECTS.get(words[0])
    if found is None:
        raise Refused(UNKNOWN)
    count, make = found
    _expect(len(words) == 1 + count and not flags)
    return make(*words[1:])


def _inspect_queue(name: bytes) -> InspectQueue:
    return InspectQueue(fields.name(name))


def _inspect_queues(offset: bytes, limit: bytes) -> InspectQueues:
    return InspectQueues(fields.offset(offset), fields.limit(limit))


def _inspect_jobs(name: bytes, offset: bytes, limit: bytes) -> InspectJobs:
    return InspectJobs(fields.name(name), fields.offset(offset), fields.limit(limit))


def _inspect_scheduled(name: bytes, offset: bytes, limit: bytes) -> InspectScheduled:
    return InspectScheduled(fields.name(name), fields.offset(offset), fields.limit(limit))


def _inspect_job(id: bytes) -> InspectJob:
    return InspectJob(fields.spelled_id(id))  # of any version, as the real server


def _inspect_state(name: bytes, state: bytes, offset: bytes, limit: bytes) -> InspectState:
    return InspectState(fields.name(name), fields.state(state), fields.offset(offset), fields.limit(limit))


def _inspect_view(id: bytes) -> InspectView:
    return InspectView(fields.job_id(id))


def _inspect_views(name: bytes, state: bytes, offset: bytes, limit: bytes) -> InspectViews:
    return InspectViews(fields.name(name), fields.state(state), fields.offset(offset), fields.limit(limit))


def _inspect_queue_views(offset: bytes, limit: bytes) -> InspectQueueViews:
    return InspectQueueViews(fields.offset(offset), fields.limit(limit))


_OBJECTS: Final[dict[bytes, tuple[int, Callable[..., Command]]]] = {
    b"server": (0, InspectServer),
    b"queue": (1, _inspect_queue),
    b"queues": (2, _inspect_queues),
    b"jobs": (3, _inspect_jobs),
    b"scheduled-jobs": (3, _inspect_scheduled),
    b"job": (1, _inspect_job),
    b"state": (4, _inspect_state),
    b"view": (1, _inspect_view),
    b"views": (4, _inspect_views),
    b"queue-views": (2, _inspect_queue_views),
}

_PLAIN: Final[dict[bytes, Callable[[Words, Flags], Command]]] = {
    b"lease": _lease,
    b"delete": _delete,
    b"result": _result,
    b"inspect": _inspect,
    b"touch": _touch,
    b"release": _release,
    b"redrive": _redrive,
    b"pause": _pause,
    b"resume": _resume,
    b"auth": _auth,
}
