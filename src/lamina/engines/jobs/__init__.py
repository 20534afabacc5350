"""Jobs: a job server's command log, readable for workq and replayed by the same code that runs it."""

from __future__ import annotations

from lamina.twins import stand_in

IS_COMPILED = stand_in(__name__, "packing", "codec", "job", "core", "checkpoint", "engine")
