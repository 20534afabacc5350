"""Who visits: by a token (programs), by a session that a token began (browsers), or nobody in particular.

A browser sends its cookie along with whatever a page of somebody else makes it send. So what changes something needs a
sign that the page was ours: the token of the session in the form, or JSON, which no foreign page may send; and where
the browser says which page it was, that counts. Where nobody has to log in, a name that is made to lead to this
machine must not open it: only addresses and ``localhost`` are answered, and the host that browsers use if whoever runs
the server named one. No header of a proxy is believed: anybody can send them.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import cookie_parser
from starlette.types import Scope

from lamina.config.public_url import PublicUrl
from lamina.server.http.asking import Refused
from lamina.server.refusals import Refusals
from lamina.server.security.gate import Gate
from lamina.server.security.users import EVERYBODY, User

COOKIE: Final = "lamina_session"
IDLE_S: Final = 12 * 3600.0
"""A session that is not used for so long is over."""
MOST_SESSIONS: Final = 1000
"""For one more the one goes that was not used for longest."""
MOST_OF_ONE: Final = 100
"""The same of one user: who logs in again and again logs out nobody else."""


@dataclass(slots=True)
class Session:
    """Of one browser."""

    id: str
    user: User
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    seen: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Visit:
    """One request: on whose behalf, and how that is known."""

    user: User
    session: Session | None = None
    by_token: bool = False
    address: str = ""


class Access:
    """Of one door. On its loop only."""

    def __init__(self, gate: Gate, *, is_loopback: bool = True, public: PublicUrl | None = None) -> None:
        self.gate = gate
        self._is_loopback = is_loopback
        self.public = public
        """Where browsers reach it through a proxy; None: there only where it listens."""
        self.refusals = Refusals()
        self._sessions: dict[str, Session] = {}

    async def log_in(self, token: bytes, address: str) -> User | None:
        """Who that is, as soon as the failed logins from the address allow another one. Raises: Refused."""
        delay = self.gate.delay(token, address)
        if delay is None:
            text = "too many failed logins from this address"
            raise Refused(429, "too_many_logins", text, "try again in a few seconds")
        if delay:
            await asyncio.sleep(delay)
        return self.gate.bearer(token, address)

    async def arrive(self, scope: Scope) -> Visit | None:
        """``visit`` for a new request: one whose token is a guess waits for its turn. Raises: Refused."""
        token = _bearer(dict(scope["headers"]).get(b"authorization", b""))
        if token is not None and self.gate.is_needed and await self.log_in(token, _address(scope)) is None:
            return None
        return self.visit(scope)

    def visit(self, scope: Scope) -> Visit | None:
        """Who that is; None: somebody who has to log in first. Raises: Refused for a host that is not ours."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        address = _address(scope)
        host = _name_of(headers.get(b"host", ""))
        # Whatever else is sent along: a page that was led here by its name may send any header.
        if not self.gate.is_needed and self._is_loopback and not (_leads_here(host) or self._is_public(host)):
            raise Refused(421, "wrong_host", "this server answers to addresses and localhost", "use 127.0.0.1")
        token = _bearer(headers.get(b"authorization", "").encode("latin-1"))
        if token is not None:
            user = self.gate.bearer(token) if self.gate.is_needed else EVERYBODY
            return None if user is None else Visit(user, by_token=True, address=address)
        session = self._session(headers.get(b"cookie", ""))
        if self.gate.is_needed:
            return None if session is None else Visit(session.user, session, address=address)
        return Visit(EVERYBODY, session, address=address)

    def check_origin(self, scope: Scope) -> None:
        """Of what changes something, and came without a token. Raises: Refused if another page sent it."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        site = headers.get(b"sec-fetch-site", "same-origin")
        origin = headers.get(b"origin")
        is_ours = origin is None or self._is_own(origin.lower(), headers.get(b"host", "").lower())
        if site not in ("same-origin", "none") or not is_ours:
            raise Refused(403, "forged", "another page sent this", "use the pages of this server, or a token")

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether a page of this origin is one that was asked for at this host, or at the public one."""
        if self.public is not None:
            if origin == self.public.origin:
                return True
            if host == self.public.authority:  # the same name and not the same scheme: somebody in between
                return False
        return origin.partition("://")[2] == host

    def _is_public(self, name: str) -> bool:
        return self.public is not None and name == self.public.host

    @property
    def is_https(self) -> bool:
        """Whether browsers come by TLS, whatever the door itself speaks."""
        return self.public is not None and self.public.is_https

    def check_form(self, visit: Visit, token: object) -> None:
        """Of a form. Raises: Refused unless it was made for this session."""
        expected = visit.session.form_token if visit.session is not None else ""
        if not expected or not isinstance(token, str) or not hmac.compare_digest(expected.encode(), token.encode()):
            raise Refused(403, "forged", "this form was not made for you, or is too old", "open the page again")

    def begin(self, user: User) -> Session:
        """A new session."""
        self._drop_old(user.name)
        session = Session(secrets.token_urlsafe(32), user)
        self._sessions[session.id] = session
        return session

    def end(self, session: Session) -> None:
        self._sessions.pop(session.id, None)

    def _session(self, cookie: str) -> Session | None:
        session = self._sessions.get(cookie_parser(cookie).get(COOKIE, ""))
        if session is None or time.monotonic() - session.seen > IDLE_S:
            return None
        user = self.gate.user(session.user.name)
        if user is None or user.digest != session.user.digest or user.is_expired(self.gate.now_ns()):
            self.end(session)  # another token, other times: whoever it was has to log in anew
            return None
        session.user, session.seen = user, time.monotonic()
        return session

    def _drop_old(self, name: str) -> None:
        """So that there is room for one more of this user."""
        now = time.monotonic()
        for id in [id for id, one in self._sessions.items() if now - one.seen > IDLE_S]:
            del self._sessions[id]
        own = [id for id, one in self._sessions.items() if one.user.name == name]
        if len(own) >= MOST_OF_ONE and name != EVERYBODY.name:
            self._drop_oldest(own)
        elif len(self._sessions) >= MOST_SESSIONS:
            self._drop_oldest(self._sessions)

    def _drop_oldest(self, ids: Iterable[str]) -> None:
        del self._sessions[min(ids, key=lambda one: self._sessions[one].seen)]


def _bearer(header: bytes) -> bytes | None:
    """The token; None: there is none."""
    kind, _, token = header.partition(b" ")
    return token.strip() if kind.lower() == b"bearer" else None


def _address(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else ""


def _name_of(host: str) -> str:
    """Without the port. Raises: Refused for what is no host at all: no address could be made of it."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        raise Refused(400, "wrong_host", "that is no host", "use 127.0.0.1") from None


def _leads_here(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
