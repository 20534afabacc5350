"""The workq door: the text protocol of workq 0.2.0, on the jobs engine."""

from __future__ import annotations

from lamina.twins import stand_in

IS_COMPILED = stand_in(__name__, "quick", "parse", "replies", "answers", "door")
