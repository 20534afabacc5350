"""A restore that takes long is told about while it lasts, in the log and to systemd."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lamina.server.life import Life
from lamina.server.notifying import notify
from lamina.units import show_duration

logger = logging.getLogger("lamina.server")

_EVERY_S: Final = 5.0


@contextmanager
def told_often(life: Life, every_s: float = _EVERY_S) -> Iterator[None]:
    """How far it is, every few seconds until the block ends. What is quick is not told about."""
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(every_s):
            if life.percent:
                left = life.estimate_s
                line = f"restoring: {life.percent:.0f} %" + (f", about {show_duration(left)} left" if left else "")
                logger.info("%s", line)
                notify(f"STATUS={line}")

    thread = threading.Thread(target=tell, name="lamina-telling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
