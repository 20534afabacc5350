"""Pages of store."""

from __future__ import annotations

from typing import Final

from lamina.server.http.console.page import Page

PAGES: Final[tuple[Page, ...]] = ()
