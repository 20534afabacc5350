"""The gate that all doors share: who is let in with what, and who is told when that changes.

Every refusal is the same, after the same work: an unknown name, a wrong token, a user whose time is over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lamina.clock import Clock, SystemClock
from lamina.errors import BadOption
from lamina.log.files import Files, join
from lamina.server.security import tokens, users
from lamina.server.security.throttle import LoginThrottle
from lamina.server.security.users import EVERYBODY, User

logger = logging.getLogger("lamina.security")

_TELL_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Changes:
    """What a reload found: names of users."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Other rights or another time; the token is the same."""
    rotated: tuple[str, ...] = ()
    """Another token: whoever came with the old one has to go."""
    is_needed_now: bool = False
    """Before, nobody had to log in."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.rotated or self.is_needed_now)

    def __str__(self) -> str:
        parts = [
            ("added", self.added),
            ("removed", self.removed),
            ("changed", self.changed),
            ("new token", self.rotated),
        ]
        told = ", ".join(f"{what} {' '.join(names)}" for what, names in parts if names)
        return f"users: {told}" if told else "users: nothing changed"


@dataclass(frozen=True, slots=True)
class Found:
    """Users as they were just read, and what is new about them."""

    users: dict[str, User] | None = None
    changes: Changes = Changes()


class Gate:
    """Of one server. ``change`` is for the loop's thread only, and any thread may look, and ``read``."""

    def __init__(
        self,
        folder: str | None = None,
        *,
        password: bytes | str | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        """``folder``: the data folder, whose users.json is read. ``password``: lets anybody in who knows it, for all.

        Raises: BadOption, WrongFormat, DiskError, as users.load.
        """
        self._folder = folder
        self._files = files
        self._clock = clock or SystemClock()
        self._password = None if password is None else tokens.digest(password)
        self._users = None if folder is None else users.load(folder, files)
        self._listeners: list[Callable[[Changes], None]] = []
        self._throttle = LoginThrottle(self._clock)
        self._refused = 0
        self._told_at = float("-inf")

    @property
    def is_needed(self) -> bool:
        """Whether whoever comes has to log in."""
        return self._users is not None or self._password is not None

    @property
    def has_password(self) -> bool:
        return self._password is not None

    @property
    def names(self) -> list[str]:
        """Of all who may come in."""
        default = [EVERYBODY.name] if self._password is not None or not self.is_needed else []
        return default + list(self._users or ())

    def now_ns(self) -> int:
        return self._clock.now_ns()

    def user(self, name: str) -> User | None:
        """As it is now; None if it is gone."""
        if name == EVERYBODY.name:
            return EVERYBODY if self._password is not None or not self.is_needed else None
        return (self._users or {}).get(name)

    def delay(self, token: bytes, address: str) -> float | None:
        """For how many seconds a login from ``address`` has to wait before it may be tried, as too many from there were
        wrong; it counts as one of them until it is right. None: too many wait already, it must not be tried at all.
        """
        if not self.is_needed or tokens.digest(token) in {user.digest for user in (self._users or {}).values()}:
            return 0.0
        return self._throttle.delay(address)

    def login(self, name: bytes, token: bytes, address: str | None = None) -> User | None:
        """Who that is; None: nobody who may come in. Where nobody has to log in, ``default`` may with anything.

        Ask ``delay`` first.
        """
        if name == EVERYBODY.name.encode():
            user: User | None = EVERYBODY
            kept = self._password
            is_open = not self.is_needed
        else:
            user = (self._users or {}).get(name.decode("utf-8", "replace"))
            kept = None if user is None else user.digest
            is_open = False
        is_right = tokens.fits(token, kept) or is_open
        return self._let_in(user if is_right else None, address)

    def bearer(self, token: bytes, address: str | None = None) -> User | None:
        """The same for one who shows a token without a name, as in HTTP. The password will do, too.

        Time: it is looked for by its digest, from which nobody learns what the digest of another one is like.
        """
        known = tokens.digest(token)
        found = {user.digest: user for user in (self._users or {}).values()}
        if self._password is not None:
            found[self._password] = EVERYBODY
        return self._let_in(found.get(known), address)

    def _let_in(self, user: User | None, address: str | None) -> User | None:
        if user is EVERYBODY and address is not None:
            self._throttle.was_right(address)
        if user is not None and not user.is_expired(self._clock.now_ns()):
            return user
        self._refused += 1
        now = time.monotonic()
        if now - self._told_at >= _TELL_EVERY_S:  # who tries many must not fill the disk with lines about it
            self._told_at = now
            logger.warning("%d logins were refused since the start", self._refused)
        return None

    # -- changes ------------------------------------------------------------------------------------------------------

    def listen(self, listener: Callable[[Changes], None]) -> None:
        """Have a door told of changes, on the thread that calls ``change``."""
        self._listeners.append(listener)

    def read(self) -> Found:
        """Read users.json again, for ``change``: it may take a while. Nothing else may change them meanwhile.

        A file that is gone changes nothing: a server that asks everybody who they are does not stop that by itself.
        Raises: BadOption, WrongFormat, DiskError; then those who were known still are.
        """
        if self._folder is None:
            return Found()
        found = users.load(self._folder, self._files)
        if found is None:
            if self._users is not None:
                raise BadOption(
                    f"{join(self._folder, users.FILE)} is gone",
                    hint="put it back: until then those who were known may still come in",
                )
            return Found()
        before, was_needed = self._users or {}, self.is_needed
        # Who did not change stays the very same: doors send those away who are another one now.
        found = {name: before[name] if before.get(name) == user else user for name, user in found.items()}
        both = before.keys() & found.keys()
        rotated = tuple(sorted(name for name in both if before[name].digest != found[name].digest))
        changes = Changes(
            added=tuple(sorted(found.keys() - before.keys())),
            removed=tuple(sorted(before.keys() - found.keys())),
            changed=tuple(sorted(name for name in both if name not in rotated and before[name] != found[name])),
            rotated=rotated,
            is_needed_now=not was_needed,
        )
        return Found(found, changes)

    def change(self, found: Found) -> Changes:
        """Have it hold; doors send those away who may not be there any more. Returns what changed."""
        self._users = found.users
        if found.changes:
            for listener in self._listeners:
                listener(found.changes)
        return found.changes

    def stays(self, user: User | None, changes: Changes) -> User | None:
        """Who one is, after ``changes``, who came in as ``user``; None: has to log in anew."""
        if user is None or user is EVERYBODY:
            return None if changes.is_needed_now else user
        return None if user.name in changes.rotated else self.user(user.name)
