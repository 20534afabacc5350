"""Control files: small files that say what a folder is and who may use it. Each is whole, and there if it ever was.

    lamina.json    which layout the folder has, and that it has users (mark.py)
    users.json     who may use a server of it (server/security/users.py)

They are JSON, so that people can read them. A checksum of all that one says is in it, for one changed digit would say
something else and be as good JSON as before: whoever changes such a file by hand takes the line with it out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from lamina.errors import Corruption, LaminaError, WrongFormat, from_os
from lamina.log import kernel, mark
from lamina.log.files import Files, join

USERS: Final = "users.json"
USERS_LOCK: Final = "users.lock"
MOST_BYTES: Final = 16 << 20
_CHECKSUM: Final = "crc32c"
_BY_HAND: Final = f'bring it back from a copy; if you changed it by hand, take the line with "{_CHECKSUM}" out'
_NO_USERS: Final = (
    'bring it back from a copy, or make users anew with "lamina user add"; to let everybody in, take "users" out of '
    f"{mark.NAME} and remove {USERS_LOCK}"
)
_KEYS: Final = frozenset({"format", "version", "users"})
_MARKED: Final = ("jobs", "topics")  # who makes these marks the folder first


@dataclass(frozen=True, slots=True)
class ControlFinding:
    """What is odd about a control file."""

    file: str
    offset: int
    reason: str
    do: str
    is_damage: bool = True


def seal(facts: dict[str, Any]) -> dict[str, Any]:
    """The same with a checksum of all of it."""
    return {**facts, _CHECKSUM: _checksum(facts)}


def unseal(path: str, found: dict[str, Any]) -> dict[str, Any]:
    """What was sealed, or was never: an earlier lamina wrote none. Raises: Corruption if it says something else now."""
    facts = {key: value for key, value in found.items() if key != _CHECKSUM}
    if _CHECKSUM in found and found[_CHECKSUM] != _checksum(facts):
        raise Corruption(path, 0, "its checksum differs: it says something else than was written", hint=_BY_HAND)
    return facts


def check_keys(path: str, facts: dict[str, Any]) -> None:
    """A file with users says nothing else. Raises: Corruption."""
    unknown = facts.keys() - _KEYS
    if unknown:
        raise Corruption(path, 0, f'nobody knows what "{min(unknown)}" is', hint=_BY_HAND)


def _checksum(facts: dict[str, Any]) -> str:
    said = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"{kernel.crc32c(said.encode(), 0):08x}"


def read(files: Files, path: str, most: int = MOST_BYTES) -> bytes | None:
    """All of a small file, one byte more than ``most`` if it is larger; None if it is not there. Raises: DiskError."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise from_os(error, "read the file", path) from error
    try:
        data = bytearray(min(file.size(), most + 1))
        del data[file.read_into(memoryview(data), 0) :]
    except OSError as error:
        raise from_os(error, "read the file", path) from error
    finally:
        file.close()
    return bytes(data)


def had_users(files: Files, folder: str) -> bool:
    """Users were added to this folder, as its mark says; where there is none, the lock that is taken to add them.

    Raises: WrongFormat, DiskError.
    """
    facts = mark.facts(files, folder)
    if facts is not None:
        return facts.get(mark.USERS) is True
    try:
        return USERS_LOCK in files.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error


def missing_users(path: str) -> Corruption:
    """The file with the users is gone: the server must not become open to all by that."""
    return Corruption(path, 0, "it is missing, and there were users", hint=_NO_USERS)


def look(files: Files, folder: str) -> list[ControlFinding]:
    """What is wrong with the control files of a data folder. Raises: DiskError."""
    found = []
    try:
        is_marked = mark.check(files, folder) > 0
        if not is_marked and any(part in files.list(folder) for part in _MARKED):
            reason = "there is no mark of the layout: an earlier lamina made the folder, or it was removed"
            found.append(ControlFinding(mark.NAME, 0, reason, "the next start of a server makes one", is_damage=False))
        has_users = had_users(files, folder)
    except WrongFormat as error:
        found.append(ControlFinding(mark.NAME, 0, error.reason, error.hint))
        has_users = False
    found += _users(files, folder, has_users=has_users)
    return found


def _users(files: Files, folder: str, *, has_users: bool) -> list[ControlFinding]:
    path = join(folder, USERS)
    try:
        data = read(files, path)
        if data is None:
            if has_users:
                raise missing_users(USERS)
            return []
        facts = json.loads(data)
        if not isinstance(facts, dict):
            raise ValueError
        check_keys(USERS, unseal(USERS, facts))
    except Corruption as error:
        return [ControlFinding(USERS, error.offset, error.reason, error.hint)]
    except LaminaError as error:
        return [ControlFinding(USERS, 0, error.message, error.hint)]
    except (ValueError, RecursionError) as error:
        at = error.pos if isinstance(error, json.JSONDecodeError) else 0
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "that is no JSON"
        return [ControlFinding(USERS, at, reason, _BY_HAND)]
    return []
