"""The users of a data folder: ``users.json``, readable by its owner only.

    {"format": "lamina users", "version": 1,
     "users": [{"name": "ann", "token_sha256": "…64 hex digits…", "allow": ["jobs:write:mail.*"],
                "created": "2026-11-15T06:17:00Z", "expires": null}]}

The file being there means that whoever comes has to log in, also when nobody is in it: taking away the last user locks
the door, it does not open it. It is only ever replaced as a whole, and one who changes it holds ``users.lock``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from lamina.errors import BadOption, LaminaError, LogLocked, WrongFormat, from_os
from lamina.log import control, mark
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles
from lamina.log.rewrite import write_new
from lamina.server.security.rights import ANY, ENGINES, Right
from lamina.units import parse_time, show_time

FILE: Final = control.USERS
_LOCK: Final = control.USERS_LOCK
_FORMAT: Final = "lamina users"
_VERSION: Final = 1
_MOST_BYTES: Final = control.MOST_BYTES
_NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{1,64}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_RESERVED: Final = ("default",)  # whoever knows the one password of the server
_MOST_KEPT: Final = 4096  # names of which a user remembers what it may
_LONGEST_KEPT: Final = 1024  # of such a name: a client can send names of any length, and many

_Key = tuple[str, str, bytes | str | None]


@dataclass(frozen=True)
class User:
    """Somebody who may come in."""

    name: str
    rights: tuple[Right, ...]
    digest: bytes
    """SHA-256 of the token."""
    created_ns: int = 0
    expires_ns: int | None = None
    """When it may not come in any more; None: never."""

    may_everything: bool = field(init=False, repr=False, compare=False)
    """Nothing has to be looked at for it."""
    _known: dict[_Key, bool] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        may_everything = all(self.may_all(engine, "admin") for engine in ENGINES)
        object.__setattr__(self, "may_everything", may_everything)

    def may(self, engine: str, level: str, name: bytes | str) -> bool:
        """Whether it may ``read``, ``write`` or ``admin`` what has this name in ``engine``."""
        key = (engine, level, name)
        found = self._known.get(key)
        if found is None:
            found = any(right.may(engine, level, name) for right in self.rights)
            if len(name) <= _LONGEST_KEPT:
                if len(self._known) >= _MOST_KEPT:
                    self._known.clear()
                self._known[key] = found
        return found

    def may_all(self, engine: str, level: str) -> bool:
        """The same for every name."""
        return any(right.is_for_all(engine, level) for right in self.rights)

    def may_some(self, engine: str, level: str) -> bool:
        """The same for some name: what it sees has to be chosen name by name."""
        key = (engine, level, None)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = any(right.is_for(engine, level) for right in self.rights)
        return found

    def is_expired(self, now_ns: int) -> bool:
        return self.expires_ns is not None and now_ns >= self.expires_ns


EVERYBODY: Final = User("default", (Right(ANY, "admin"),), b"")
"""Whoever comes where nobody has to log in, and whoever knows the one password."""


def check_name(name: str) -> str:
    """Raises: BadOption."""
    if not _NAME.fullmatch(name) or name in _RESERVED:
        reserved = f" ({name} is whoever knows the password)" if name in _RESERVED else ""
        raise BadOption(
            f"{name[:80]!r} cannot be the name of a user{reserved}",
            hint="use 1 to 64 letters, digits, and any of _ . @ -",
            option="name",
        )
    return name


def load(folder: str, files: Files | None = None) -> dict[str, User] | None:
    """By name; None if there is no such file, and never was one.

    Raises: Corruption if it is missing though there were users, or says something else than was written; BadOption,
        with the place of the mistake; WrongFormat if a later version wrote it; DiskError.
    """
    files = files or RealFiles()
    found = _load(folder, files)
    if found is None and control.had_users(files, folder):
        raise control.missing_users(join(folder, FILE))
    return found


def _load(folder: str, files: Files) -> dict[str, User] | None:
    path = join(folder, FILE)
    data = control.read(files, path)
    if data is None:
        return None
    if len(data) > _MOST_BYTES:
        raise _wrong(path, f"more than {_MOST_BYTES} bytes")
    return _parse(path, data)


def save(folder: str, users: dict[str, User], files: Files | None = None) -> None:
    """Replace the file. Durability: synced when it returns. Raises: DiskFull, DiskError; then the old one is there."""
    files = files or RealFiles()
    said = {"format": _FORMAT, "version": _VERSION, "users": [_shown(user) for user in users.values()]}
    shown = control.seal(said)
    path = join(folder, FILE)
    temporary = path + ".new"
    try:
        files.make_folder(folder)
        if FILE + ".new" in files.list(folder):
            files.remove(temporary)  # of one that was killed
        write_new(files, temporary, [json.dumps(shown, indent=1).encode() + b"\n"])
        files.rename(temporary, path)
        files.sync_folder(folder)
    except OSError as error:
        raise from_os(error, "write the users", path) from error
    mark.note_users(files, folder)  # after them: a crash in between refuses nobody


@contextmanager
def changing(folder: str, files: Files | None = None) -> Iterator[dict[str, User]]:
    """The users, to be changed: saved when the block ends, not if it raises. Raises: LogLocked; as load and save."""
    files = files or RealFiles()
    path = join(folder, _LOCK)
    try:
        files.make_folder(folder)
        lock = files.lock(path)
    except OSError as error:
        raise from_os(error, "lock the users", path) from error
    if isinstance(lock, str):
        raise LogLocked(f"{path}: the users are being changed by {lock}", hint="wait for it to end, then try again")
    try:
        users = _load(folder, files) or {}  # where the file is missing, who is added now is the only one
        yield users
        save(folder, users, files)
    finally:
        lock.release()


# -- the file ---------------------------------------------------------------------------------------------------------


def _shown(user: User) -> dict[str, object]:
    return {
        "name": user.name,
        "token_sha256": user.digest.hex(),
        "allow": [str(right) for right in user.rights],
        "created": show_time(user.created_ns),
        "expires": None if user.expires_ns is None else show_time(user.expires_ns),
    }


def _parse(path: str, data: bytes) -> dict[str, User]:
    try:
        found = json.loads(data)
    except json.JSONDecodeError as error:
        raise _wrong(path, f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (UnicodeDecodeError, RecursionError):
        raise _wrong(path, "that is no JSON") from None
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise _wrong(path, f'"format" is not "{_FORMAT}"')
    version = found.get("version")
    if not isinstance(version, int) or version > _VERSION:
        raise WrongFormat(path, f"version {version!r} is of a newer lamina", hint="use the lamina that wrote it")
    found = control.unseal(path, found)
    control.check_keys(path, found)
    listed = found.get("users")
    if not isinstance(listed, list):
        raise _wrong(path, '"users" is no list')
    users: dict[str, User] = {}
    for number, each in enumerate(listed, 1):
        user = _user(path, number, each)
        if user.name in users:
            raise _wrong(path, f"user {number}: there are two of the name {user.name!r}")
        users[user.name] = user
    return users


def _user(path: str, number: int, found: Any) -> User:
    """Raises: BadOption, which says which user, and what of it."""

    def take(what: str, read: Callable[[Any], Any]) -> Any:
        try:
            return read(found[what])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = "is missing" if isinstance(error, KeyError) else "cannot be understood"
            raise _wrong(path, f'user {number}: "{what}" {reason}') from None
        except LaminaError as error:
            raise _wrong(path, f'user {number}: "{what}": {error.message}') from None

    if not isinstance(found, dict):
        raise _wrong(path, f"user {number} is no object")
    unknown = found.keys() - {"name", "token_sha256", "allow", "created", "expires"}
    if unknown:  # a mistyped "expires" must not make somebody stay for ever
        raise _wrong(path, f'user {number}: nobody knows what "{min(unknown)}" is')
    return User(
        name=take("name", check_name),
        rights=take("allow", lambda texts: tuple(Right.parse(text) for text in _list(texts))),
        digest=take("token_sha256", _digest),
        created_ns=take("created", parse_time),
        expires_ns=take("expires", lambda text: None if text is None else parse_time(text)),
    )


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _digest(text: str) -> bytes:
    if not _DIGEST.fullmatch(text):
        raise ValueError
    return bytes.fromhex(text)


def _wrong(path: str, reason: str) -> BadOption:
    return BadOption(f"{path}: {reason}", hint="correct it, or put a copy back: without it nobody is let in", file=path)
