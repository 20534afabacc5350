"""Letting the clients of a RESP door use queues, and telling them when the disk took something back."""

from __future__ import annotations

import asyncio
import threading
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

    def soon(look: Callable[[], None]) -> None:
        """Whichever thread found that records were refused, and has the queues meanwhile."""
        threading.Thread(target=look_again, args=(look,), name="lamina-queues-look", daemon=True).start()

    def look_again(look: Callable[[], None]) -> None:
        look()  # subscribers: files may be read for that
        with suppress(RuntimeError):  # the loop is over
            loop.call_soon_threadsafe(house.expect_all, QUEUE_KEYS)  # and those who wait for a message

    deliveries.look_again_by(soon)
