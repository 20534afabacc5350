"""What a queue is to those who use it: every case of section Q, over the commands, in both stores."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest

from integration.resp_wire import OK, Error, Push
from lamina.engines.queues import ids
from lamina.log.files.memory import MemoryFiles
from queue_lab import FOLDER, Client, Lab

AUTH = b"AUTH "


def is_refused(answer: object) -> bool:
    return isinstance(answer, Error) and answer.startswith(AUTH)


def is_error(answer: object, code: bytes) -> bool:
    return isinstance(answer, Error) and answer.startswith(code + b" ")


@pytest.fixture(params=["memory", "journal"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    lab = Lab(request.param)
    yield lab
    lab.engine.close()


@pytest.fixture
def client(lab: Lab) -> Client:
    return lab.client()


def bodies_of(client: Client, rid: bytes) -> list[bytes | None]:
    """All that waits, received one by one."""
    found = []
    message = client.ask("Q.GET", rid)
    while isinstance(message, list):
        found.append(message[3])
        message = client.ask("Q.ACK", rid, message[0])
    return found


def test_q01_create(lab: Lab, client: Client) -> None:
    pairs = [client.new() for _ in range(50)]
    everything = [id for pair in pairs for id in pair]
    assert len(set(everything)) == 100
    assert all(len(id) == 32 and len(ids.parse(id) or b"") == 24 for id in everything)


def test_q02_create_refused() -> None:
    lab = Lab(password=b"let me")
    client = lab.client()
    records = lab.engine.state.records
    written = lab.engine.newest_position()
    assert is_refused(client.ask("Q.NEW"))
    assert is_refused(client.ask("Q.NEW", "PASSWORD", "let us"))
    assert (lab.engine.state.records, lab.engine.newest_position()) == (records, written)
    assert len(client.ask("Q.NEW", "PASSWORD", "let me")) == 2


def test_q03_ids_do_not_cross(client: Client) -> None:
    rid, sid = client.new()
    assert is_refused(client.ask("Q.SEND", rid, "x"))
    assert is_refused(client.ask("Q.SUB", sid))
    assert is_refused(client.ask("Q.GET", sid))


def test_q04_unsecured_send(lab: Lab, client: Client) -> None:
    _, sid = client.new()
    other = lab.client()
    assert len(other.ask("Q.SEND", sid, "x")) == 32
    assert is_refused(other.ask("Q.AUTH", sid, "some key"))


def test_q05_secure_once(lab: Lab, client: Client) -> None:
    rid, sid = client.new()
    assert client.ask("Q.KEY", rid, "K") == OK
    assert client.ask("Q.KEY", rid, "K") == OK
    assert is_refused(client.ask("Q.KEY", rid, "K2"))
    sender = lab.client()
    assert is_refused(sender.ask("Q.SEND", sid, "x"))
    assert is_refused(sender.ask("Q.AUTH", sid, "K2"))
    assert sender.ask("Q.AUTH", sid, "K") == OK
    assert len(sender.ask("Q.SEND", sid, "x")) == 32


def test_q06_subscribe_to_waiting_messages(client: Client) -> None:
    rid, sid = client.new()
    first, _ = client.send(sid, "m1", "m2")
    assert client.ask("Q.SUB", rid) == OK
    assert client.pushed() == [[b"q.msg", rid, first, 1700000000, b"", b"m1"]]
    assert client.pushed() == []


def test_q07_ack_brings_the_next(client: Client) -> None:
    rid, sid = client.new()
    first, second = client.send(sid, "m1", "m2")
    client.ask("Q.SUB", rid)
    assert client.ask("Q.ACK", rid, first) == [second, 1700000000, b"", b"m2"]
    assert client.ask("Q.ACK", rid, second) == OK


def test_q08_live_delivery(lab: Lab, client: Client) -> None:
    rid, sid = client.new("SUB")
    sender = lab.client()
    first, second = sender.send(sid, "m1", "m2")
    assert [push[2] for push in client.pushed()] == [first]
    assert client.ask("Q.ACK", rid, first)[0] == second
    assert client.ask("Q.ACK", rid, second) == OK
    (third,) = sender.send(sid, "m3")
    assert client.pushed() == [[b"q.msg", rid, third, 1700000000, b"", b"m3"]]


def test_q09_wrong_ack(client: Client) -> None:
    rid, sid = client.new()
    first, second = client.send(sid, "m1", "m2")
    client.ask("Q.SUB", rid)
    assert is_error(client.ask("Q.ACK", rid, second), b"NOMSG")
    assert is_error(client.ask("Q.ACK", rid, "x"), b"NOMSG")
    assert client.ask("Q.INFO", rid)[9] == first


def test_q10_ack_twice(client: Client) -> None:
    rid, sid = client.new()
    first, second = client.send(sid, "m1", "m2")
    client.ask("Q.SUB", rid)
    assert client.ask("Q.ACK", rid, first)[0] == second
    assert is_error(client.ask("Q.ACK", rid, first), b"NOMSG")
    assert client.ask("Q.ACK", rid, second) == OK


def test_q11_ack_without_delivery(lab: Lab, client: Client) -> None:
    rid, sid = client.new()
    (first,) = client.send(sid, "m1")
    fresh = lab.client()
    assert is_error(fresh.ask("Q.ACK", rid, first), b"NOMSG")
    assert bodies_of(client, rid) == [b"m1"]


def test_q12_takeover(lab: Lab, client: Client) -> None:
    rid, sid = client.new()
    (first,) = client.send(sid, "m1")
    client.ask("Q.SUB", rid)
    client.pushed()
    other = lab.client(version=3)
    assert other.ask("Q.SUB", rid) == OK
    (push,) = other.pushed()
    assert isinstance(push, Push) and push[2] == first
    assert client.pushed() == [[b"q.end", rid]]
    assert is_error(client.ask("Q.ACK", rid, first), b"NOMSG")
    assert other.ask("Q.ACK", rid, first) == OK


def test_q13_same_connection_subscribes_again(client: Client) -> None:
    rid, sid = client.new("SUB")
    (first,) = client.send(sid, "m1")
    client.pushed()
    assert client.ask("Q.SUB", rid) == OK
    assert [(push[0], push[2]) for push in client.pushed()] == [(b"q.msg", first)]


def test_q14_get_beside_sub(lab: Lab, client: Client) -> None:
    rid, sid = client.new("SUB")
    first, second = client.send(sid, "m1", "m2")
    other = lab.client()
    assert other.ask("Q.GET", rid)[0] == first
    assert client.ask("Q.ACK", rid, first)[0] == second
    other.ask("Q.ACK", rid, first)
    assert [push[0] for push in client.pushed()] == [b"q.msg"]
    assert client.ask("Q.INFO", rid)[5] == 1
    assert client.ask("Q.ACK", rid, second) == OK


def test_q14_who_gets_and_is_quicker_takes_nothing_from_the_subscriber(lab: Lab, client: Client) -> None:
    rid, sid = client.new("SUB")
    first, second = client.send(sid, "m1", "m2")
    other = lab.client()
    other.ask("Q.GET", rid)
    assert other.ask("Q.ACK", rid, first)[0] == second
    assert client.ask("Q.ACK", rid, first)[0] == second
    assert client.ask("Q.ACK", rid, second) == OK


def test_q15_get_and_sub_do_not_mix(lab: Lab, client: Client) -> None:
    rid, _ = client.new()
    assert client.ask("Q.GET", rid) is None
    assert is_error(client.ask("Q.SUB", rid), b"PROHIBITED")
    other = lab.client()
    other.ask("Q.SUB", rid)
    assert is_error(other.ask("Q.GET", rid), b"PROHIBITED")
    assert other.ask("Q.UNSUB", rid) == OK
    assert other.ask("Q.GET", rid) is None


def test_q16_disconnect_keeps(lab: Lab, client: Client) -> None:
    rid, sid = client.new("SUB")
    (first,) = client.send(sid, "m1")
    client.leave()
    other = lab.client()
    assert other.ask("Q.SUB", rid) == OK
    assert [push[2] for push in other.pushed()] == [first]


def test_q17_suspend(client: Client) -> None:
    rid, sid = client.new()
    first, second = client.send(sid, "m1", "m2")
    assert client.ask("Q.OFF", rid) == client.ask("Q.OFF", rid) == OK
    assert is_refused(client.ask("Q.SEND", sid, "m3"))
    assert client.ask("Q.SUB", rid) == OK
    assert client.pushed()[0][2] == first
    assert client.ask("Q.ACK", rid, first)[0] == second
    assert client.ask("Q.ACK", rid, second) == OK


def test_q18_delete(lab: Lab, client: Client) -> None:
    rid, sid = client.new()
    client.send(sid, "a body to look for", "m2")
    other = lab.client()
    other.ask("Q.SUB", rid)
    other.pushed()
    deletes(client, rid)
    assert other.pushed() == [[b"q.del", rid]]
    for command in (("Q.SEND", sid, "x"), ("Q.SUB", rid), ("Q.GET", rid), ("Q.INFO", rid), ("Q.DEL", rid)):
        assert is_refused(client.ask(*command))
    lab.upkeep.dump()
    assert not any(b"a body to look for" in data for data in contents(lab))
    assert not any(name.startswith(f"{FOLDER}/messages/{rid[:2].decode()}/") for name in lab.files.names)


def deletes(client: Client, rid: bytes) -> None:
    """In the store ``journal`` the answer comes when the folder is gone."""
    lab = client.lab
    if lab.options.store == "memory":
        assert client.ask("Q.DEL", rid) == OK
        return
    queue = lab.queue(rid)
    client.wait("Q.DEL", rid)
    lab.engine.remove_folder(queue, lab.engine.newest_position())


def contents(lab: Lab) -> list[bytes]:
    assert isinstance(lab.files, MemoryFiles)
    return [bytes(content.data) for content in lab.files.names.values()]


def test_q19_quota(client: Client) -> None:
    rid, sid = client.new()
    *_, last = answers = client.send(sid, "m1", "m2", "m3", "m4")
    assert all(len(answer) == 32 for answer in answers[:3])
    assert is_error(last, b"QUOTA")
    assert bodies_of(client, rid) == [b"m1", b"m2", b"m3", None]


def test_q20_quota_is_sticky(client: Client) -> None:
    rid, sid = client.new()
    first, second, third, _ = client.send(sid, "m1", "m2", "m3", "m4")
    client.ask("Q.GET", rid)
    client.ask("Q.ACK", rid, first)
    client.ask("Q.ACK", rid, second)
    assert is_error(client.ask("Q.SEND", sid, "m5"), b"QUOTA")
    marker = client.ask("Q.ACK", rid, third)
    assert marker[2:] == [b"quota", None]
    assert is_error(client.ask("Q.SEND", sid, "m6"), b"QUOTA")
    assert client.ask("Q.ACK", rid, marker[0]) == OK
    assert len(client.ask("Q.SEND", sid, "m7")) == 32
    assert bodies_of(client, rid) == [b"m7"]


def test_q21_keeping_up_never_meets_the_quota(client: Client) -> None:
    rid, sid = client.new()
    for number in range(50):
        (id,) = client.send(sid, f"m{number}")
        assert len(id) == 32
        assert client.ask("Q.GET", rid)[0] == id
        assert client.ask("Q.ACK", rid, id) == OK


def test_q22_marker_carries_identity(client: Client) -> None:
    rid, sid = client.new()
    client.send(sid, "m1", "m2", "m3", "the fourth")
    message = client.ask("Q.GET", rid)
    seen = [message[3]]
    for _ in range(3):
        message = client.ask("Q.ACK", rid, message[0])
        seen.append(message[3])
    assert len(message[0]) == 32 and seen == [b"m1", b"m2", b"m3", None]
    assert client.ask("Q.ACK", rid, message[0]) == OK


def test_q23_too_large(lab: Lab, client: Client) -> None:
    rid, sid = client.new()
    limit = lab.options.max_body
    assert is_error(client.ask("Q.SEND", sid, b"x" * (limit + 1)), b"LARGE")
    assert client.ask("Q.GET", rid) is None
    assert len(client.ask("Q.SEND", sid, b"x" * limit)) == 32
    assert bodies_of(client, rid) == [b"x" * limit]


def test_q24_expiry_from_the_head(lab: Lab, client: Client) -> None:
    rid, sid = client.new()
    client.send(sid, "m1")
    lab.clock.advance(1)
    client.send(sid, "m2")
    lab.clock.advance(lab.options.ttl_s)
    assert lab.upkeep.expire_all() == 1
    assert bodies_of(client, rid) == [b"m2"]


def test_q24_an_expired_head_is_not_given_out_either(lab: Lab, client: Client) -> None:
    rid, sid = client.new()
    client.send(sid, "m1")
    lab.clock.advance(lab.options.ttl_s + 1)
    client.send(sid, "m2")
    assert bodies_of(client, rid) == [b"m2"]


@pytest.mark.parametrize("where", ["queue", "message"])
def test_q24_a_queue_and_a_message_may_say_how_long(lab: Lab, client: Client, where: str) -> None:
    rid, sid = client.new(*(("TTL", 10) if where == "queue" else ()))
    client.ask("Q.SEND", sid, "m1", *(("TTL", 10) if where == "message" else ()))
    lab.clock.advance(10)
    assert lab.upkeep.expire_all() == 0
    lab.clock.advance(1)
    assert lab.upkeep.expire_all() == 1
    assert client.ask("Q.GET", rid) is None


def test_q25_marker_does_not_expire(lab: Lab, client: Client) -> None:
    rid, sid = client.new()
    client.send(sid, "m1", "m2", "m3", "m4")
    lab.clock.advance(lab.options.ttl_s + 1)
    assert lab.upkeep.expire_all() == 3
    assert is_error(client.ask("Q.SEND", sid, "m5"), b"QUOTA")
    assert bodies_of(client, rid) == [None]


def test_q26_same_refusal_same_time(lab: Lab, client: Client) -> None:
    """The texts are equal to the byte; the times differ by less than they spread (nothing here waits for a disk)."""
    rid, suspended = client.new()
    client.ask("Q.OFF", rid)
    _, secured = client.new("SKEY", "K")
    missing = ids.wire(bytes(24))
    times: dict[bytes, list[float]] = {suspended: [], secured: [], missing: []}
    texts = set()
    for _ in range(200):
        for sid, taken in times.items():
            begun = time.perf_counter()
            answer = client.ask("Q.SEND", sid, "x")
            taken.append(time.perf_counter() - begun)
            texts.add(bytes(answer))
    assert len(texts) == 1 and next(iter(texts)).startswith(AUTH)
    medians = [statistics.median(taken) for taken in times.values()]
    spread = max(statistics.quantiles(taken, n=20)[-1] - min(taken) for taken in times.values())
    assert max(medians) - min(medians) < spread


def test_q26_a_key_is_checked_with_the_same_work_for_a_queue_that_is_not_there(lab: Lab, client: Client) -> None:
    rid, _ = client.new("KEY", "right")
    wrong, missing = client.ask("Q.AUTH", rid, "wrong"), client.ask("Q.AUTH", ids.wire(bytes(24)), "wrong")
    hostile = client.ask("Q.AUTH", "../../etc", "wrong")
    assert wrong == missing == hostile and is_refused(wrong)


def test_q27_concurrent_senders(lab: Lab, client: Client) -> None:
    """The turns of two connections interleave in any order; the socket's own test is beside this one."""
    rid, sid = client.new()
    one, other = lab.client(), lab.client()
    for round in range(50):
        senders = [one, other] if round % 2 else [other, one]
        sent = [sender.send(sid, f"m{number}")[0] for number, sender in enumerate(senders)]
        assert len({*sent}) == 2
        assert sorted(str(body) for body in bodies_of(client, rid)) == ["b'm0'", "b'm1'"]
