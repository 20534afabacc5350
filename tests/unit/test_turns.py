"""Turns: who asks for little is served at once, who asks for much waits in line, and nobody is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from lamina.server.turns import SHARE_S, Turns


class Busy:
    """Takes its time at each turn, and has more to do for some turns."""

    def __init__(self, name: str, turns: Turns, told: list[str], times: int = 1, takes_s: float = 0.0) -> None:
        self.name, self.turns, self.told, self.times, self.takes_s = name, turns, told, times, takes_s
        self.is_in_line = False

    def work(self) -> None:
        self.told.append(self.name)
        end = perf_counter() + self.takes_s
        while perf_counter() < end:
            pass
        self.turns.spent += self.takes_s
        self.times -= 1
        if self.times:
            self.turns.wait(self)

    def hang_up(self) -> None:
        raise AssertionError("it was well")


def on_loop(act: Callable[[Turns, list[str]], None], turns_of_loop: int = 20) -> list[str]:
    """What was told: by the clients, and a dot for each turn of the loop."""

    async def run() -> list[str]:
        told: list[str] = []
        turns = Turns(asyncio.get_running_loop())
        act(turns, told)
        for _ in range(turns_of_loop):
            told.append(".")
            await asyncio.sleep(0)
        return told

    return asyncio.run(run())


def test_one_who_comes_while_there_is_time_is_served_at_once() -> None:
    assert on_loop(lambda turns, told: turns.come(Busy("a", turns, told)))[:2] == ["a", "."]


def test_one_who_comes_when_the_time_is_spent_waits_for_the_next_turn() -> None:
    def act(turns: Turns, told: list[str]) -> None:
        turns.spent = SHARE_S
        turns.come(Busy("a", turns, told))

    assert on_loop(act)[:3] == [".", "a", "."]


def test_those_in_line_get_one_slice_each_in_order_and_the_loop_looks_up_between_two() -> None:
    def act(turns: Turns, told: list[str]) -> None:
        for name in "ab":
            turns.wait(Busy(name, turns, told, times=3, takes_s=SHARE_S))

    told = "".join(on_loop(act)).strip(".")
    assert told.replace(".", "") == "ababab"
    assert all(f"{one}{other}" not in told for one in "ab" for other in "ab"), "a turn took two slices"


def test_those_who_take_little_are_served_in_one_turn() -> None:
    def act(turns: Turns, told: list[str]) -> None:
        for number in range(5):
            turns.wait(Busy(str(number), turns, told))

    told = "".join(on_loop(act))
    assert told.replace(".", "") == "01234"


def test_one_in_line_waits_once_however_often_it_comes() -> None:
    def act(turns: Turns, told: list[str]) -> None:
        busy = Busy("a", turns, told)
        for _ in range(3):
            turns.wait(busy)
        turns.come(busy)

    assert on_loop(act).count("a") == 1
