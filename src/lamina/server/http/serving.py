"""What the routes of the HTTP door share: the server, who visits it, and the audit log."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lamina.config.public_url import PublicUrl
from lamina.server.http.access import Access, Visit
from lamina.server.http.operations import Place, Turns
from lamina.server.inside import Inside

if TYPE_CHECKING:
    from lamina.server.http.console.live import Live

logger = logging.getLogger("lamina.server")


@dataclass(slots=True)
class Serving:
    """Of one door."""

    inside: Inside
    access: Access
    turns: Turns = field(default_factory=Turns)

    live: Live = field(init=False)
    """Whoever follows a page of the console."""

    def __post_init__(self) -> None:
        config = self.inside.config
        url = None if config is None else config().maybe("http.public_url")
        if url is not None:
            self.access.public = PublicUrl.parse(url)
            if not self.access.gate.is_needed:
                logger.warning("%s is public and nobody has to log in: whoever reaches it may do everything", url)

    def place(self, visit: Visit) -> Place:
        """Where operations are carried out for this visit."""
        return Place(self.inside, visit.user, address=visit.address, turns=self.turns)
