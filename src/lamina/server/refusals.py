"""How often a door refused something, by reason: found in the answers, which say it, so that only refusals cost."""

from __future__ import annotations

from typing import Final

TOO_MANY: Final = "too_many_connections"
BAD_REQUEST: Final = "bad_request"
NOT_AUTHENTICATED: Final = "not_authenticated"
NOT_ALLOWED: Final = "not_allowed"
NOT_FOUND: Final = "not_found"
STORAGE: Final = "storage"
OUTPUT: Final = "output_not_taken"

_MOST: Final = 40  # reasons; more can only come from a mistake of ours
_OTHER: Final = "other"
_WORDS: Final = {
    b"ERR": BAD_REQUEST,
    b"NOAUTH": NOT_AUTHENTICATED,
    b"WRONGPASS": "bad_token",
    b"NOPERM": NOT_ALLOWED,
    b"MISCONF": STORAGE,
    b"AUTH": "bad_queue_or_key",
    b"CLIENT-ERROR": BAD_REQUEST,
    b"SERVER-ERROR": STORAGE,
    b"NOT-FOUND": NOT_FOUND,
}
_WORKQ: Final = {
    b"Authentication required": NOT_AUTHENTICATED,
    b"Authentication failed": "bad_token",
    b"Authentication took": NOT_AUTHENTICATED,
    b"Permission denied": NOT_ALLOWED,
    b"Too many": TOO_MANY,
}
_STATUSES: Final = {
    400: BAD_REQUEST,
    401: NOT_AUTHENTICATED,
    403: NOT_ALLOWED,
    404: NOT_FOUND,
    421: "wrong_host",
    429: TOO_MANY,
    503: "not_ready",
    507: STORAGE,
}


class Refusals:
    """Of one door. On its loop only; any thread may look."""

    def __init__(self) -> None:
        self.by_reason: dict[str, int] = {}

    def note(self, reason: str) -> None:
        """One more."""
        if reason not in self.by_reason and len(self.by_reason) >= _MOST:
            reason = _OTHER
        self.by_reason[reason] = self.by_reason.get(reason, 0) + 1

    def said(self, reply: bytes) -> None:
        """A client was told so: a reply of the RESP or the workq door that begins with a minus."""
        word, _, rest = reply[1:200].rstrip(b"\r\n").partition(b" ")
        if word == b"TIMEOUT":  # nothing was refused: there was nothing to have
            return
        if word in (b"CLIENT-ERROR", b"SERVER-ERROR"):
            for beginning, reason in _WORKQ.items():
                if rest.startswith(beginning):
                    self.note(reason)
                    return
        self.note(_WORDS.get(word) or word.decode("ascii", "replace").lower().replace("-", "_"))

    def answered(self, status: int) -> None:
        """An HTTP client got an answer with this status, of 400 or more."""
        self.note(_STATUSES.get(status) or (BAD_REQUEST if status < 500 else "error"))
