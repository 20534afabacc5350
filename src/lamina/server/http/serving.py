"""What the routes of the HTTP door share: the server, who visits it, and the audit log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lamina.server.http.access import Access, Visit
from lamina.server.http.operations import Place, Turns
from lamina.server.inside import Inside

if TYPE_CHECKING:
    from lamina.server.http.console.live import Live


@dataclass(slots=True)
class Serving:
    """Of one door."""

    inside: Inside
    access: Access
    turns: Turns = field(default_factory=Turns)

    live: Live = field(init=False)
    """Whoever follows a page of the console."""

    def place(self, visit: Visit) -> Place:
        """Where operations are carried out for this visit."""
        return Place(self.inside, visit.user, address=visit.address, turns=self.turns)
