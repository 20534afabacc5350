"""The past of ``lamina demo``: a folder as it was at a moment, and what compaction leaves of the store."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lamina.client.connecting import Remote

TOPIC: Final = "shop"
STORAGE: Final = 2
_KEY: Final = b"price of tea"
_THEN, _NOW = b"2.50", b"2.80"


def change_something(lm: Remote) -> int:
    """A little of everything, then a change. Returns a moment in between, in nanoseconds."""
    lm.jobs.add(TOPIC, b"put the kettle on")
    lm.topic(TOPIC).publish({"door": "open"})
    lm.store.put(STORAGE, _KEY, _THEN)
    time.sleep(0.05)
    moment = time.time_ns()
    time.sleep(0.05)
    lm.topic(TOPIC).publish({"door": "closed"})
    lm.store.put(STORAGE, _KEY, _NOW)
    return moment


def restored(data: Path, to: Path, moment: int, say: Callable[[str], None]) -> dict[str, object]:
    """The folder as it was then, made beside the server, and opened here."""
    import lamina
    from lamina.pipeline.jobs.asof import as_of
    from lamina.units import show_time

    made = as_of(str(data), moment, restore=str(to), engine="local")
    with lamina.open(to) as then:
        doors = [message["door"] for message in then.topic(TOPIC).read()]
        price = then.store.get(STORAGE, _KEY)
        jobs = then.jobs.list(TOPIC)
    is_right = doors == [b"open"] and price == _THEN and len(jobs) == 1
    door = doors[-1].decode() if doors else "?"
    say(f"   As of {show_time(moment)}: the door {door}, tea at {(price or b'?').decode()} (now {_NOW.decode()}),")
    say(f"   and all that was before, {made.files} files made in {made.seconds} s.")
    return {"is_right": is_right, "time_ns": moment, "files": made.files, "seconds": made.seconds}


def compacting(lm: Remote, say: Callable[[str], None]) -> dict[str, object]:
    """Compact the store of the server."""
    report = lm.store.compact()
    read, live = report.entries_read, report.entries_live
    say(f"   {read:,} entries became {live:,}, in {report.seconds:.2f} s; the server went on meanwhile.")
    return {"entries": read, "live": live}
