"""Operations on store."""

from __future__ import annotations

from typing import Final

from lamina.server.http.operations import AnyOperation

OPERATIONS: Final[tuple[AnyOperation, ...]] = ()
