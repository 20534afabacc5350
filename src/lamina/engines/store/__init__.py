"""The store: storages of keys and values, written through parallel channels, durable by epochs."""

from __future__ import annotations

from lamina.twins import stand_in

IS_COMPILED = stand_in(__name__, "columns", "packing", "table")
