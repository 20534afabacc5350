"""Failed logins: an address may guess as often as people err, not as often as a program can.

Only guesses wait. A token has 256 random bits, so a right one is let in at once whatever else came from its address:
whoever guesses behind a proxy locks nobody out who comes through it, too. A password may be one that people choose, so
beside guesses from the same address it waits for its turn like them.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final

from lamina.clock import Clock

BURST: Final = 20
"""Guesses of one address that are answered at once."""
RATE: Final = 5.0
"""Guesses a second of one address that are answered after those."""
LONGEST_S: Final = 4.0
"""A guess that would have to wait longer is refused unseen."""
_MOST_ADDRESSES: Final = 10_000


class LoginThrottle:
    """Of one server: all its listeners share it. Not locked: on the event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}
        """By address, when its guesses so far would all be over at the rate of RATE: the newest address last."""

    def delay(self, address: str) -> float | None:
        """Count a guess. Returns for how many seconds it has to wait; None: too many wait already."""
        now, address = self._clock.monotonic(), _network(address)
        due = max(self._due.get(address, now), now)
        delay = round(due - now - BURST / RATE, 6)
        if delay > LONGEST_S:
            return None
        self._due.pop(address, None)
        if len(self._due) >= _MOST_ADDRESSES:
            self._forget(now)
        self._due[address] = due + 1 / RATE
        return max(delay, 0.0)

    def was_right(self, address: str) -> None:
        """The guess was none: it does not count."""
        address = _network(address)
        if address in self._due:
            self._due[address] -= 1 / RATE

    def _forget(self, now: float) -> None:
        """Addresses that have nothing to wait for, or the one that has not been heard of for longest."""
        self._due = {address: due for address, due in self._due.items() if due > now}
        if len(self._due) >= _MOST_ADDRESSES:
            del self._due[next(iter(self._due))]


def _network(address: str) -> str:
    """What one owner of addresses has: of IPv6 that is a network of 64 bits."""
    try:
        found = ip_address(address.strip("[]").partition("%")[0])
    except ValueError:  # a socket in the file system
        return address
    if not isinstance(found, IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Address(int(found) >> 64 << 64))
