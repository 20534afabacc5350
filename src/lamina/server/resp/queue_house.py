"""Letting the clients of a RESP door use queues, and telling them when the disk took something back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from lamina.engines.queues.deliveries import Deliveries
from lamina.engines.queues.upkeep import Upkeep
from lamina.server.resp.queue_commands import QUEUE_KEYS
from lamina.server.resp.session import House


def let_in(house: House, deliveries: Deliveries, upkeep: Upkeep, password: bytes | None = None) -> None:
    """From now on the commands of queues work. ``password`` is what has to be said to make one. Call it on the loop."""
    house.queues, house.queue_password = deliveries, password
    house.dump, house.stops = upkeep.dump, upkeep.dumper.cancel
    loop = asyncio.get_running_loop()

    def look_again(look: Callable[[], None]) -> None:
        look()  # subscribers
        house.expect_all(QUEUE_KEYS)  # and those who wait for a message

    def soon(look: Callable[[], None]) -> None:
        # On the loop, whichever thread found that records were refused; and not when the loop is over.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(look_again, look)

    deliveries.look_again_by(soon)
