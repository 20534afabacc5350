"""State machines on the log kernel, each with its codec, its state and the engine that ties both to a log."""

from __future__ import annotations

from lamina.twins import stand_in

IS_COMPILED = stand_in(__name__, "loops", "lock", "journal", "logged")
