"""Queues over the RESP door: what clients are told, and when, while the disk is slow, full or odd."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

from integration.resp_wire import OK
from lamina.errors import DiskError
from lamina.log import ALWAYS, OS, interval
from queue_doors import EVERY_STORE, JOURNALS, PATIENCE_S, QueueDoors, is_error, pushed_body
from resp_lab import PONG, in_loop, is_refusal

# -- told when it is so ------------------------------------------------------------------------------------------------


@EVERY_STORE
@in_loop
async def test_a_subscriber_is_told_of_a_deletion_once_it_is_safe(store: str) -> None:
    lab = QueueDoors(store, ALWAYS)
    subscriber, other = lab.caller(), lab.caller()
    rid, _ = await lab.new_queue(other)
    assert await subscriber.ask(f"Q.SUB {rid}") == [OK]
    with lab.syncing():
        assert await other.ask(f"Q.DEL {rid}") == []
        assert subscriber.got() == []
    assert await lab.answers(other, 1) == [OK]
    assert await lab.answers(subscriber, 1) == [[b"q.del", rid.encode()]]


@EVERY_STORE
@in_loop
async def test_a_subscriber_to_a_queue_whose_deletion_was_refused_stays_one(store: str) -> None:
    lab = QueueDoors(store)
    subscriber, other = lab.caller(), lab.caller()
    rid, sid = await lab.new_queue(other)
    assert await subscriber.ask(f"Q.SUB {rid}") == [OK]
    lab.refuse()
    other.send(f"Q.DEL {rid}")
    (answer,) = await lab.answers(other, 1)
    assert is_refusal(answer)
    assert subscriber.got() == []
    for body in (b"first", b"second"):
        await other.ask_one(f"Q.SEND {sid} {body.decode()}")
        (push,) = subscriber.got()
        assert pushed_body(push) == body
        assert await subscriber.ask(f"Q.ACK {rid} {push[2].decode()}") == [OK]


@EVERY_STORE
@in_loop
async def test_a_subscriber_is_told_of_a_deletion_that_was_refused_before(store: str) -> None:
    lab = QueueDoors(store, ALWAYS)
    subscriber, other = lab.caller(), lab.caller()
    rid, _ = await lab.new_queue(other)
    assert await subscriber.ask(f"Q.SUB {rid}") == [OK]
    lab.refuse()
    other.send(f"Q.DEL {rid}")
    (answer,) = await lab.answers(other, 1)
    assert is_refusal(answer) and subscriber.got() == []
    other.send(f"Q.DEL {rid}")
    assert await lab.answers(other, 1) == [OK]
    await lab.settle()
    assert subscriber.got() == [[b"q.del", rid.encode()]]


@in_loop
async def test_a_former_subscriber_is_told_so_when_a_record_of_others_is_refused() -> None:
    lab = QueueDoors()
    former, next_one, other = lab.caller(), lab.caller(), lab.caller()
    rid, _ = await lab.new_queue(other)
    assert await former.ask(f"Q.SUB {rid}") == [OK]
    lab.refuse()
    other.send("Q.NEW")
    next_one.send(f"Q.SUB {rid}")
    await lab.settle()
    assert [is_refusal(answer) for answer in other.got()] == [True]
    assert lab.deliveries.subscribers[lab.queue(rid).rid] is next_one.connection.session.receiver
    assert former.got() == [[b"q.end", rid.encode()]]


@EVERY_STORE
@in_loop
async def test_nobody_is_shown_that_a_queue_is_off_before_that_is_safe(store: str) -> None:
    lab = QueueDoors(store, ALWAYS)
    owner, other = lab.caller(), lab.caller()
    rid, _ = await lab.new_queue(owner)
    with lab.syncing():
        assert await owner.ask(f"Q.OFF {rid}") == []
        assert [status for _, status, *_ in await other.ask(f"Q.INFO {rid}") if status == b"off"] == []
    await lab.settle()
    assert owner.got() == [OK]
    other.got()
    assert (await other.ask_one(f"Q.INFO {rid}"))[:2] == [b"status", b"off"]


@in_loop
async def test_waitaof_tells_of_a_message_in_a_journal_once_it_is_synced() -> None:
    lab = QueueDoors("journal", interval(1000))
    caller = lab.caller()
    _, sid = await lab.new_queue(caller)
    await caller.ask_one(f"Q.SEND {sid} BODY")

    def is_synced() -> bool:
        return any(b"BODY" in data for data in lab.disk.synced.values())

    assert not is_synced()
    were_synced: list[bool] = []
    caller.line.on_write = lambda data: were_synced.append(is_synced())
    caller.send("WAITAOF 1 0 0")
    assert await lab.answers(caller, 1) == [[1, 0]]
    assert were_synced == [True]


@in_loop
async def test_waitaof_tells_of_what_is_synced_while_others_send() -> None:
    lab = QueueDoors("journal", interval(1000))
    caller, other = lab.caller(), lab.caller()
    _, sid = await lab.new_queue(caller)
    busy, _ = await lab.new_queue(other)
    await caller.ask_one(f"Q.SEND {sid} BODY")

    def send_to_another(operation: str, path: str) -> None:
        if operation == "sync" and path.startswith(JOURNALS):
            lab.files.before = lambda operation, path: None
            lab.engine.send(lab.queue(busy), b"other")

    lab.files.before = send_to_another
    caller.send("WAITAOF 1 0 0")
    assert await lab.answers(caller, 1) == [[1, 0]]
    assert any(b"BODY" in data for data in lab.disk.synced.values())


# -- who receives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["OFF", "SKIP"])
@in_loop
async def test_the_head_is_pushed_to_a_subscriber_that_wants_no_answers(how: str) -> None:
    lab = QueueDoors()
    subscriber, other = lab.caller(), lab.caller()
    rid, sid = await lab.new_queue(other)
    await other.ask_one(f"Q.SEND {sid} first")
    (push,) = await subscriber.ask(f"CLIENT REPLY {how}", f"Q.SUB {rid}")
    assert push[:2] == [b"q.msg", rid.encode()] and pushed_body(push) == b"first"


@EVERY_STORE
@in_loop
async def test_who_waits_is_given_a_message_whose_acknowledgement_was_refused(store: str) -> None:
    lab = QueueDoors(store)
    waiting, first = lab.caller(), lab.caller()
    rid, sid = await lab.new_queue(first)
    await first.ask_one(f"Q.SEND {sid} body")
    message = await first.ask_one(f"Q.GET {rid}")
    lab.refuse(only=lab.message_files)
    first.send(f"Q.ACK {rid} {message[0].decode()}")
    waiting.send(f"Q.GET {rid} BLOCK 0")
    await lab.settle()
    assert [is_refusal(answer) for answer in first.got()] == [True]
    assert waiting.got() == [message]


@in_loop
async def test_a_send_is_answered_with_its_id_when_the_subscriber_cannot_be_given_the_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = QueueDoors("journal")
    subscriber, sender = lab.caller(), lab.caller()
    rid, sid = await lab.new_queue(sender)
    assert await subscriber.ask(f"Q.SUB {rid}") == [OK]

    def unreadable(queue: object) -> None:
        raise DiskError("cannot read")

    with monkeypatch.context() as patch:
        patch.setattr(lab.engine.messages, "head", unreadable)
        id = await sender.ask_one(f"Q.SEND {sid} first")
    assert not is_error(id) and subscriber.got() == []
    assert lab.bodies_after_a_kill(rid) == [b"first"]
    await sender.ask_one(f"Q.SEND {sid} second")
    (push,) = subscriber.got()
    assert (push[2], pushed_body(push)) == (id, b"first")


@in_loop
async def test_a_silent_subscriber_is_not_hung_up_on() -> None:
    lab = QueueDoors(idle_s=60)
    subscriber, silent, former = lab.caller(), lab.caller(), lab.caller()
    rid, sid = await lab.new_queue(silent)
    other, _ = await lab.new_queue(silent)
    assert await subscriber.ask(f"Q.SUB {rid}") == [OK]
    assert await former.ask(f"Q.SUB {other}", f"Q.UNSUB {other}") == [OK, OK]
    lab.clock.advance(61)
    lab.door._hang_up_on_idle()
    await lab.settle()
    assert [caller.line.is_closed for caller in (subscriber, silent, former)] == [False, True, True]
    await lab.caller().ask_one(f"Q.SEND {sid} body")
    assert [pushed_body(push) for push in subscriber.got()] == [b"body"]
    await lab.door.close()


# -- threads -----------------------------------------------------------------------------------------------------------


@in_loop
async def test_an_odd_error_of_a_deletion_is_told_and_commands_behind_it_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = QueueDoors("journal", ALWAYS)
    caller = lab.caller()
    rid, sid = await lab.new_queue(caller)
    await caller.ask_one(f"Q.SEND {sid} body")

    def fail(queue: object) -> None:
        raise MemoryError

    monkeypatch.setattr(lab.engine.keeper, "delete", fail)
    caller.send(f"Q.DEL {rid}", "PING")
    answer, pong = await lab.answers(caller, 2)
    assert is_error(answer) and pong == PONG


@in_loop
async def test_an_odd_error_of_a_dump_is_told_and_commands_behind_it_go_on() -> None:
    lab = QueueDoors()
    caller = lab.caller()

    def fail() -> None:
        raise MemoryError

    lab.house.dump = fail
    caller.send("L.DUMP queues", "PING")
    answer, pong = await lab.answers(caller, 2)
    assert is_error(answer) and pong == PONG


@in_loop
async def test_who_says_no_more_behind_a_deletion_is_told_nothing_before_the_folder_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = QueueDoors("journal", ALWAYS)
    caller = lab.caller()
    rid, sid = await lab.new_queue(caller)
    await caller.ask_one(f"Q.SEND {sid} body")
    queue, may_go = lab.queue(rid), threading.Event()
    delete = lab.engine.keeper.delete

    def slowly(deleted: object) -> None:
        assert may_go.wait(PATIENCE_S)
        delete(deleted)

    monkeypatch.setattr(lab.engine.keeper, "delete", slowly)
    lab.holds_threads = True
    was_there: list[bool] = []
    caller.line.on_write = lambda data: was_there.append(lab.has_folder(queue))
    caller.send(f"Q.DEL {rid}")
    caller.connection.eof_received()
    await lab.settle()
    assert lab.has_folder(queue) and caller.got() == []
    may_go.set()
    await lab.until(lambda: caller.line.is_closed and not lab.has_folder(queue))
    assert caller.got() in ([OK], []) and not any(was_there)


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["Q.GET {rid}", "Q.SUB {rid}", "Q.GET {rid} BLOCK 0", "XREAD BLOCK 0 STREAMS t $"])
@in_loop
async def test_nothing_keeps_a_client_in_memory_that_left(command: str) -> None:
    lab = QueueDoors("memory", OS)
    rid, _ = await lab.new_queue(lab.caller())
    gc.collect()
    gc.disable()
    try:
        caller = lab.caller()
        await caller.ask(command.format(rid=rid))
        kept = weakref.ref(caller.connection), weakref.ref(caller.connection.session)
        assert all(ref() is not None for ref in kept)
        caller.line.close()
        await lab.settle()
        caller.line.protocol = None  # the two of the lab would keep each other
        del caller
        await lab.settle()
        assert [ref() for ref in kept] == [None, None]
    finally:
        gc.enable()
