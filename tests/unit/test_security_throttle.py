"""Failed logins: how many of one address are answered, and that a right token never waits for them."""

from __future__ import annotations

import asyncio

import pytest

from integration.resp_wire import OK
from lamina.server.security import throttle
from lamina.server.security.gate import Gate
from lamina.server.security.throttle import BURST, LONGEST_S, RATE, LoginThrottle
from lamina.testing import ManualClock
from resp_lab import Lab, in_loop
from unit.test_security_doors import DONE, FAILED, WRONGPASS, Door, Worker, workq_lab

MOST = BURST + int(LONGEST_S * RATE)
"""That may wait at the same time, and those that need not."""


def test_the_first_guesses_are_answered_at_once_the_next_in_turn_and_what_comes_beyond_not_at_all() -> None:
    clock = ManualClock()
    guesses = LoginThrottle(clock)
    delays = [guesses.delay("10.0.0.1") for _ in range(MOST + 3)]
    assert delays[: BURST + 1] == pytest.approx([0.0] * (BURST + 1))
    assert delays[BURST + 1 : MOST + 1] == pytest.approx([n / RATE for n in range(1, int(LONGEST_S * RATE) + 1)])
    assert delays[MOST + 1 :] == [None, None]
    clock.advance(1 / RATE)
    assert guesses.delay("10.0.0.1") == pytest.approx(LONGEST_S), "room for one more"
    clock.advance(60)
    assert guesses.delay("10.0.0.1") == 0, "forgiven"


def test_addresses_are_counted_one_by_one_and_ipv6_by_network() -> None:
    guesses = LoginThrottle(ManualClock())
    for number in range(MOST + 1):
        guesses.delay(f"2001:db8::{number:x}")
    assert guesses.delay("2001:db8::ffff:1") is None
    assert guesses.delay("2001:db8:0:1::1") == guesses.delay("10.0.0.1") == guesses.delay("") == 0
    for _ in range(MOST + 1):
        guesses.delay("::ffff:10.0.0.2")
    assert guesses.delay("10.0.0.2") is None


def test_a_login_that_was_right_does_not_count() -> None:
    guesses = LoginThrottle(ManualClock())
    for _ in range(10 * MOST):
        assert guesses.delay("10.0.0.1") == 0
        guesses.was_right("10.0.0.1")


def test_memory_for_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "_MOST_ADDRESSES", 10)
    clock = ManualClock()
    guesses = LoginThrottle(clock)
    for number in range(50):
        guesses.delay(f"10.0.0.{number}")
    assert len(guesses._due) == 10
    clock.advance(60)
    guesses.delay("10.0.1.1")
    assert len(guesses._due) == 1, "who has nothing to wait for is forgotten first"


def use_up(gate: Gate, address: str = "127.0.0.1", count: int = BURST + 1) -> None:
    for _ in range(count):
        gate.delay(b"a guess", address)


@in_loop
async def test_a_wrong_login_waits_for_its_turn_and_a_right_token_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(ann="*:admin")
    lab = door.resp()
    guesser, other = lab.caller(), lab.caller()
    use_up(door.gate, guesser.connection.session.host)
    guesser.send("AUTH ann wrong")
    await lab.settle()
    assert guesser.got() == []
    assert await other.ask("AUTH ann ann") == [OK]
    guesser.send("PING")
    for _ in range(int(20 / RATE)):
        await asyncio.sleep(0.1)
    assert guesser.got()[:1] == [WRONGPASS]


@in_loop
async def test_a_client_that_ends_its_side_is_answered_no_sooner_and_what_it_sends_meanwhile_is_bounded() -> None:
    door = Door(ann="*:admin")
    lab = door.resp()
    guesser, sender = lab.caller(), lab.caller()
    use_up(door.gate, guesser.connection.session.host)
    guesser.send("HELLO 3 AUTH ann wrong")
    await lab.settle()
    guesser.connection.eof_received()
    await lab.settle()
    assert guesser.got() == []
    sender.send("AUTH ann wrong")
    await lab.settle()
    sender.send_raw(bytes(5000))
    await lab.settle()
    assert sender.line.is_paused


@in_loop
async def test_too_many_guesses_of_one_address_are_refused_unseen() -> None:
    door = Door(ann="*:admin")
    lab = door.resp()
    caller = lab.caller()
    use_up(door.gate, caller.connection.session.host, MOST + 1)
    (refused,) = await caller.ask("AUTH ann wrong")
    assert refused.startswith(b"TRYAGAIN too many failed logins")
    (refused,) = await caller.ask("HELLO 2 AUTH ann wrong")
    assert refused.startswith(b"TRYAGAIN")
    assert await caller.ask("AUTH ann ann") == [OK], "a right token is no guess"


@in_loop
async def test_the_password_waits_beside_guesses_and_is_not_counted_when_it_is_right() -> None:
    lab = Lab(gate=Gate(password=b"secret", clock=ManualClock()))
    for _ in range(3 * MOST):
        caller = lab.caller()
        assert await caller.ask("AUTH secret") == [OK]
        caller.connection.connection_lost(None)
    caller = lab.caller()
    use_up(lab.door.house.gate, caller.connection.session.host, MOST + 1)
    (refused,) = await caller.ask("AUTH secret")
    assert refused.startswith(b"TRYAGAIN"), "whether it is right must not be told"


@in_loop
async def test_a_guess_in_a_transaction_does_not_wait() -> None:
    door = Door(ann="*:admin")
    lab = door.resp()
    caller = lab.caller()
    assert await caller.ask("AUTH ann ann") == [OK]
    use_up(door.gate, caller.connection.session.host)
    *_, (refused, one) = await caller.ask("MULTI", "AUTH ann wrong", "PING", "EXEC")
    assert refused.startswith(b"TRYAGAIN") and one == b"PONG"


@in_loop
async def test_the_workq_door_lets_guesses_wait_too() -> None:
    door = Door(ann="*:admin")
    _, at = workq_lab(door)
    guesser, other = Worker(at), Worker(at)
    use_up(door.gate)
    assert await guesser.ask(b"auth ann wrong\r\n") == b""
    assert await other.ask(b"auth ann ann\r\n") == DONE
    for _ in range(int(20 / RATE)):
        await asyncio.sleep(0.1)
    assert guesser.line.sent == FAILED
    use_up(door.gate, count=MOST)
    assert (await guesser.ask(b"auth ann wrong\r\n")).startswith(b"-SERVER-ERROR Too many failed logins")
    await at.close()
