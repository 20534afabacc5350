"""The doors of lamina: what listens, and how each protocol becomes commands of an engine."""

from __future__ import annotations

from lamina.twins import stand_in

IS_COMPILED = stand_in(__name__, "turns", "client")
