"""Every number that comes in with the commands of the store: it is taken or refused, nothing beyond 64 bits goes out,
and the store goes on, closes, and opens again."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from integration.resp_wire import Error
from lamina.engines.store.api import Store
from lamina.server.resp.table import FACTS
from property.test_extreme_numbers import LEAST, MOST, NUMBERS, integers
from store_doors import FOLDER, StoreDoors

# n number; what is behind a ! may wait for ever: nobody waits for its answer
TEMPLATES = [
    *("S.WRITE n PUT k v", "S.WRITE 1 PUT k v IN n DEL k", "S.WRITE n CLEAR ADD DROP", "S.WRITE n PUT k v NOWAIT"),
    *("S.GET n k", "S.GET n k FULL", "S.GET 1 k ASOF n FULL", "S.GET 1 k ASOF nms", "S.GET 1 k ASOF nns", "S.SCAN n"),
    *("S.SCAN 1 COUNT n FULL", "S.SCAN 1 ASOF n", "S.EPOCH", "S.STORAGES FULL", "S.STORAGES ASOF n", "S.SNAPSHOT"),
    *(
        "S.SNAPSHOT ASOF n",
        "! S.WAIT n",
        "! S.WAIT n BLOCK 1",
        "! S.WAIT 1 BLOCK n",
        "! S.ROTATE BLOCK n",
        "S.SWITCH n",
    ),
    *("S.COMPACT CLEAN KEEP n", "S.CLEAN KEEP n"),
]


async def told(lab: StoreDoors, template: str, number: int) -> None:
    caller = lab.caller()
    words = template.replace("n", str(number)) if "n" in template.split() else template
    for unit in ("ms", "ns"):
        words = words.replace(f"n{unit}", f"{number}{unit}")
    if words.startswith("! "):
        caller.send(words.removeprefix("! "))
        await lab.settle()
        answers = caller.got()
    else:
        answers = [await lab.answer(caller, words)]
    for answer in answers:
        assert not isinstance(answer, Error) or b"internal error" not in answer, (words, answer)
        assert all(LEAST <= each <= MOST for each in integers(answer)), (words, answer)
    caller.connection.hang_up()
    await asyncio.sleep(0)


@pytest.mark.parametrize("template", TEMPLATES)
def test_whatever_number_comes_in_the_store_goes_on_closes_and_opens_again(template: str) -> None:
    with asyncio.Runner() as runner:

        async def story() -> StoreDoors:
            lab = StoreDoors(runner, epoch_ms=1)
            for number in NUMBERS:
                await told(lab, template, number)
                caller = lab.caller()
                assert isinstance(await lab.answer(caller, "S.WRITE 7 PUT own v"), int)
                assert await lab.answer(caller, "S.GET 7 own") == b"v"
            return lab

        lab = runner.run(story())
        lab.close()
        lab.topics.close()
        assert not lab.disk.locks and not lab.disk.handles
        with Store.open(FOLDER, files=lab.disk) as store:
            assert store.get(7, b"own") == b"v"


def test_every_command_of_the_store_is_in_it() -> None:
    told = {word.lower().encode() for template in TEMPLATES for word in template.split()[:2] if word.startswith("S.")}
    assert told == {name for name in FACTS if name.startswith(b"s.")}


def test_there_is_a_number_at_every_edge() -> None:
    assert all(number in NUMBERS for number, near in product((1 << 62, 1 << 63, 1 << 64), (-1, 0, 1)))
