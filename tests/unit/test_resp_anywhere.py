"""Commands for clients that share connections: the key with the command, and nothing tied to the connection."""

from __future__ import annotations

from typing import Any

import pytest

from integration.resp_wire import OK, Error
from queue_doors import EVERY_STORE, QueueDoors, is_error, pushed_body
from resp_lab import in_loop

SYNTAX = Error(b"ERR syntax error")


async def keyed(lab: QueueDoors, caller: Any) -> tuple[str, str]:
    rid, sid = await caller.ask_one("Q.NEW ANYWHERE KEY k SKEY s")
    return rid.decode(), sid.decode()


def is_refused(answer: object) -> bool:
    return isinstance(answer, Error) and answer.startswith(b"AUTH ")


@EVERY_STORE
@in_loop
async def test_a_key_that_is_shown_with_a_command_is_shown_for_that_one_only(store: str) -> None:
    lab = QueueDoors(store)
    caller = lab.caller()
    rid, sid = await keyed(lab, caller)
    commands = [
        f"Q.SEND {sid} body FLAGS f TTL 5 KEY",
        f"Q.GET {rid} ANYWHERE KEY",
        f"Q.GET {rid} BLOCK 1 ANYWHERE KEY",
        f"Q.INFO {rid} KEY",
        f"Q.SUB {rid} KEY",
        f"Q.UNSUB {rid} KEY",
        f"Q.KEY {rid} s KEY",
        f"Q.OFF {rid} KEY",
        f"Q.DEL {rid} KEY",
    ]
    for command in commands:
        key = "s" if "Q.SEND" in command else "k"
        without = command.removesuffix(" KEY")
        for wrong in (without, f"{command} wrong", f"{command} {'k' if key == 's' else 's'}"):
            answers = await caller.ask(wrong)
            assert is_refused(answers[0]), wrong
        caller.send(f"{command} {key}")
        answers = await lab.answers(caller, 1)
        assert not is_error(answers[0]), command
        caller.got()  # what was pushed
        assert command.startswith("Q.DEL") or is_refused(await caller.ask_one(without)), command


@in_loop
async def test_the_connection_that_made_a_queue_anywhere_holds_nothing_of_it() -> None:
    lab = QueueDoors()
    caller = lab.caller()
    rid, _ = await keyed(lab, caller)
    assert is_refused(await caller.ask_one(f"Q.INFO {rid}"))
    other = (await caller.ask_one("Q.NEW KEY k"))[0].decode()
    assert not is_error(await caller.ask_one(f"Q.INFO {other}"))


@EVERY_STORE
@in_loop
async def test_any_connection_acknowledges_what_was_given_anywhere(store: str) -> None:
    lab = QueueDoors(store)
    one, other = lab.caller(), lab.caller()
    rid, sid = await lab.new_queue(one)
    for body in ("a", "b"):
        await one.ask_one(f"Q.SEND {sid} {body}")
    first = await one.ask_one(f"Q.GET {rid} ANYWHERE")
    id = first[0].decode()
    for caller in (one, other):
        assert (await caller.ask_one(f"Q.ACK {rid} {id}")).startswith(b"NOMSG ")
    following = await other.ask_one(f"Q.ACK {rid} {id} ANYWHERE")
    assert following[3] == b"b"
    # Asked again, because the answer was lost: it is gone, and nothing else goes for it.
    assert await one.ask_one(f"Q.ACK {rid} {id} ANYWHERE") == following
    assert await one.ask_one(f"Q.ACK {rid} {following[0].decode()} ANYWHERE") == OK
    assert await one.ask_one(f"Q.GET {rid} ANYWHERE") is None
    assert (await one.ask_one(f"Q.ACK {rid} noid ANYWHERE")).startswith(b"NOMSG ")
    # Nothing was remembered: it may subscribe.
    assert await one.ask_one(f"Q.SUB {rid}") == OK


@in_loop
async def test_a_subscriber_that_acknowledges_anywhere_is_pushed_the_next_one() -> None:
    lab = QueueDoors()
    subscriber, sender = lab.caller(), lab.caller()
    rid, sid = await lab.new_queue(sender)
    await subscriber.ask(f"Q.SUB {rid}")
    for number in range(3):
        await sender.ask_one(f"Q.SEND {sid} {number}")
        (push,) = subscriber.got()
        assert pushed_body(push) == b"%d" % number
        if number == 1:  # another one is quicker, and the subscriber looks
            assert await sender.ask_one(f"Q.ACK {rid} {push[2].decode()} ANYWHERE") == OK
            assert await subscriber.ask_one(f"Q.GET {rid} ANYWHERE") is None
        else:
            assert await subscriber.ask(f"Q.ACK {rid} {push[2].decode()} ANYWHERE") == [OK]


@pytest.mark.parametrize(
    "command",
    [
        "Q.INFO RID KEY",
        "Q.INFO RID WORD k",
        "Q.INFO RID KEY k k",
        "Q.ACK RID ID KEY k ANYWHERE",
        "Q.ACK RID ID ANYWHERE KEY",
        "Q.GET RID KEY",
        "Q.GET RID BLOCK",
        "Q.GET RID WORD 1",
        "Q.SEND SID body KEY",
        "Q.KEY RID new KEY",
        "Q.NEW ANYWHERE KEY",
    ],
)
@in_loop
async def test_words_that_mean_nothing_are_refused(command: str) -> None:
    lab = QueueDoors()
    caller = lab.caller()
    rid, sid = await lab.new_queue(caller)
    words = command.replace("RID", rid).replace("SID", sid).replace("ID", rid)
    assert await caller.ask_one(words) == SYNTAX


@in_loop
async def test_all_queues_are_counted() -> None:
    lab = QueueDoors()
    caller = lab.caller()
    assert await caller.ask_one("L.QUEUES") == b'{"queues": 0, "messages": 0, "expired": 0}'
    _, sid = await lab.new_queue(caller)
    await caller.ask_one(f"Q.SEND {sid} x")
    assert await caller.ask_one("L.QUEUES") == b'{"queues": 1, "messages": 1, "expired": 0}'
