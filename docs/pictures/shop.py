"""A small shop on a server, for the pictures of the console: orders, mail, invoices, stock, with what goes wrong in it.

Each kind of work is a thread of its own with a client of its own, and goes on over any number of kills of the server.
"""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lamina.errors import LaminaError

if TYPE_CHECKING:
    from lamina.client.connecting import Remote

GOODS: Final = ("coffee", "tea", "sugar", "oat milk", "cups", "filters", "a kettle", "biscuits")
TOWNS: Final = ("Lisbon", "Ghent", "Turku", "Brno", "Cork", "Graz", "Odense", "Porto")
_PAUSE_S: Final = 0.1
_WAVE_S: Final = 40.0

Work = Callable[["Remote", random.Random, "int"], None]


class Shop:
    """At work until the ``with`` ends."""

    def __init__(self, connect: Callable[[], Remote], pace: float = 1.0) -> None:
        """``pace``: how much is done, 1 is some hundred commands a second."""
        self._connect, self._pace = connect, pace
        self._over = threading.Event()
        works: tuple[Work, ...] = (_orders, _packers, _billing, _mail, _pictures, _letters, _Letterbox().turn, _stock)
        self._threads = [threading.Thread(target=self._keep_at, args=(work,), daemon=True) for work in works]

    def __enter__(self) -> Shop:
        with self._connect() as lm:
            _open(lm)
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._over.set()
        for each in self._threads:
            each.join(30)

    def _keep_at(self, work: Work) -> None:
        chance = random.Random(work.__name__ + str(id(self)))
        while not self._over.is_set():
            with suppress(LaminaError, OSError), self._connect() as lm:
                while not self._over.wait(_PAUSE_S):
                    wave = 1.2 + math.sin(time.time() * 2 * math.pi / _WAVE_S)
                    work(lm, chance, max(1, round(6 * wave * self._pace)))
            self._over.wait(_PAUSE_S)


def _open(lm: Remote) -> None:
    """What is there from the first day on."""
    for number in range(14):
        lm.jobs.add("reports.daily", _json(day=f"2026-11-{number + 1:02}"), delay=3600 * (number + 1))
    for number in range(40):
        lm.jobs.add("newsletter", _json(to=f"guest{number}@example.org", issue=47))
    lm.jobs.pause("newsletter")
    for number in range(6):
        lm.topic(f"shelves.{TOWNS[number].lower()}").publish_many({"good": one, "count": "12"} for one in GOODS)


def _orders(lm: Remote, chance: random.Random, many: int) -> None:
    def order() -> str:
        return str(chance.randrange(10_000, 99_999))

    def one() -> dict[str, str]:
        count = str(chance.randrange(1, 9))
        return {"order": order(), "item": chance.choice(GOODS), "count": count, "town": chance.choice(TOWNS)}

    def line() -> str:
        return f"GET /goods/{chance.choice(GOODS)} 200 {chance.randrange(2, 90)} ms"

    lm.topic("orders").publish_many(one() for _ in range(many * 4))
    lm.topic("payments").publish_many({"order": order(), "cents": str(chance.randrange(9999))} for _ in range(many))
    lm.topic("logs.web").publish_many({"line": line()} for _ in range(many * 3))


def _packers(lm: Remote, chance: random.Random, many: int) -> None:
    _read(lm, "orders", "packers", f"packer-{chance.randrange(1, 4)}", many * 8, chance)
    _read(lm, "payments", "bookkeeping", "books", many * 4, chance)


def _billing(lm: Remote, chance: random.Random, many: int) -> None:
    """Slower than orders come: it falls behind."""
    _read(lm, "orders", "billing", "billing-1", many * 3, chance)


def _read(lm: Remote, topic: str, group: str, consumer: str, many: int, chance: random.Random) -> None:
    with lm.topic(topic).subscribe(group, consumer=consumer, since="start", wait=0) as messages:
        for number, message in enumerate(messages):
            if chance.random() > 0.002:  # who forgets one has it pending
                message.ack()
            if number >= many:
                return


def _mail(lm: Remote, chance: random.Random, many: int) -> None:
    def one() -> bytes:
        return _json(to=f"guest{chance.randrange(900)}@example.org", order=chance.randrange(99_999))

    jobs = lm.jobs
    jobs.add_many("mail", (one() for _ in range(many)), max_fails=3, ttr=120)
    jobs.add_many("invoices", (_json(order=chance.randrange(99_999)) for _ in range(many)), ttr=120)
    for job in jobs.lease_many("mail", "invoices", most=many * 2 + 2):
        draw = chance.random()
        if draw < 0.02:
            job.fail(b"smtp: timed out after 30 s")
        elif draw < 0.026:
            job.bury(b"550 no such person: guest%d@example.org" % chance.randrange(900))
        elif draw < 0.030:
            job.bury(b"ValueError: order %d has no address" % chance.randrange(99_999))
        else:
            job.complete(b"sent")


def _pictures(lm: Remote, chance: random.Random, many: int) -> None:
    jobs, many = lm.jobs, max(1, many // 2)
    files = (f"goods/{chance.randrange(500)}.jpg" for _ in range(many))
    jobs.add_many("thumbnails", (_json(file=file, width=320) for file in files), ttr=120, max_fails=2)
    for job in jobs.lease_many("thumbnails", most=many):
        if chance.random() < 0.01:
            job.bury(b"OSError: cannot identify image file goods/%d.jpg" % chance.randrange(500))
        elif chance.random() > 0.02:  # else its worker is gone with it
            job.complete()


def _letters(lm: Remote, chance: random.Random, many: int) -> None:
    """One who sends to a queue that somebody empties now and then."""
    made = lm.queues.create()
    for number in range(chance.randrange(1, 4 * many)):
        lm.queue(made.sid).send(b"dear customer %d, your order is on its way" % number)


class _Letterbox:
    """A queue between two programs."""

    def __init__(self) -> None:
        self._ids: tuple[str, str] | None = None

    def turn(self, lm: Remote, chance: random.Random, many: int) -> None:
        if self._ids is None:
            made = lm.queues.create()
            self._ids = made.rid, made.sid
        to, of = lm.queue(self._ids[1]), lm.queue(self._ids[0])
        for _ in range(many):
            to.send(b"scan of a parcel")
        message = of.receive()
        while message is not None:
            message = of.ack(message)


def _stock(lm: Remote, chance: random.Random, many: int) -> None:
    for _ in range(many):
        place = f"stock/{chance.choice(TOWNS)}/{chance.choice(GOODS)}"
        basket = _json(items=chance.sample(GOODS, 2), since=round(time.time()))
        lm.store.put(1, place.encode(), b"%d" % chance.randrange(400))
        lm.store.put(2, b"basket/%05d" % chance.randrange(4000), basket)
    if chance.random() < 0.02:
        lm.store.switch_epoch()


def _json(**members: object) -> bytes:
    return json.dumps(members).encode()
