"""Queues: mailboxes for one recipient, with a key for either end, in memory with log and dumps or as journals."""

from __future__ import annotations

from lamina.twins import stand_in

IS_COMPILED = stand_in(__name__, "ids", "message", "codec", "state", "memory", "engine", "deliveries")
