"""Rights at the doors: each command asks for its own, nothing is shown to who may not read it, and time ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from integration.resp_wire import OK, Error, Simple, packed
from integration.workq_server import add, job_id
from lamina.engines.jobs.engine import JobEngine
from lamina.server.resp import door as resp_door
from lamina.server.resp import key_commands
from lamina.server.resp.commands import COMMANDS
from lamina.server.resp.guard import NEEDS
from lamina.server.resp.table import FACTS
from lamina.server.security import strangers, tokens, users
from lamina.server.security.gate import Gate
from lamina.server.security.rights import Right
from lamina.server.security.users import User
from lamina.server.workq import commands as workq
from lamina.server.workq import door as workq_door
from lamina.server.workq.door import _HANDLERS, WorkqDoor
from lamina.server.workq.guard import LEVELS
from lamina.testing import ManualClock, MemoryFiles
from resp_lab import Caller, Lab, Line, in_loop

NOAUTH = Error(b"NOAUTH Authentication required.")
WRONGPASS = Error(b"WRONGPASS invalid username-password pair or user is disabled.")
NO_KEY = Error(b"NOPERM this user has no permissions to access one of the keys used as arguments")
PONG = Simple(b"PONG")
SECOND = 10**9


def no_command(name: str) -> Error:
    return Error(b"NOPERM this user has no permissions to run the '%b' command" % name.encode())


class Door:
    """A gate with users, whose tokens are their names, and a disk on which they can be changed."""

    def __init__(self, **rights: str) -> None:
        self.clock, self.disk = ManualClock(), MemoryFiles()
        self.users = {name: self.user(name, texts) for name, texts in rights.items()}
        users.save("data", self.users, self.disk)
        self.gate = Gate("data", files=self.disk, clock=self.clock)

    def user(self, name: str, texts: str, seconds: int | None = None) -> User:
        ends = None if seconds is None else self.clock.now_ns() + seconds * SECOND
        return User(name, tuple(map(Right.parse, texts.split())), tokens.digest(name), 1, ends)

    def change(self, *changed: User, without: str = "") -> None:
        self.users.update({user.name: user for user in changed})
        self.users.pop(without, None)
        users.save("data", self.users, self.disk)
        self.gate.change(self.gate.read())

    def resp(self) -> Lab:
        return Lab(gate=self.gate, clock=self.clock)


async def entered(lab: Lab, name: str) -> Caller:
    caller = lab.caller()
    assert await caller.ask_one(f"AUTH {name} {name}") == OK
    return caller


# -- RESP -------------------------------------------------------------------------------------------------------------


def test_every_command_of_the_resp_door_has_its_line() -> None:
    named = {each.name for facts in FACTS.values() for each in (facts, *facts.subcommands.values())} & set(COMMANDS)
    assert named - set(NEEDS) == set(), "say in guard.py what they ask for"
    assert set(NEEDS) <= named


@in_loop
async def test_every_refusal_of_a_login_is_the_same() -> None:
    door = Door(ann="*:admin")
    door.change(door.user("late", "*:admin", 0))
    caller = door.resp().caller()
    for words in ("AUTH ann wrong", "AUTH nobody ann", "AUTH late late", "AUTH default ann", "HELLO 3 AUTH ann x"):
        assert await caller.ask_one(words) == WRONGPASS, words
    assert await caller.ask_one("PING") == NOAUTH
    assert await caller.ask("AUTH ann ann", "ACL WHOAMI", "AUTH ann wrong", "ACL WHOAMI") == [
        OK, b"ann", WRONGPASS, b"ann"
    ]  # fmt: skip
    assert await caller.ask("RESET", "PING") == [Simple(b"RESET"), NOAUTH]


@in_loop
async def test_topics_are_for_who_has_the_right_to_their_names() -> None:
    door = Door(ann="topics:write:a*", root="*:admin", eye="topics:read:a*")
    lab = door.resp()
    ann, root, eye = [await entered(lab, name) for name in ("ann", "root", "eye")]
    assert [type(each) for each in await root.ask("XADD a * f v", "XADD b * f v")] == [bytes, bytes]
    refused = ["XADD b * f v", "XLEN b", "XRANGE b - +", "EXISTS a b", "XREAD STREAMS a b 0 0", "XGROUP CREATE b g 0"]
    for words in (*refused, "XINFO STREAM b", "WATCH a b", "MEMORY USAGE b", "L.WHY b", "XTRIM b MAXLEN 0"):
        assert await ann.ask_one(words) == NO_KEY, words
    for words in ("DEL a", "RENAME a ab", "XSETID a 9-9", "FLUSHALL"):
        assert await ann.ask_one(words) == no_command(words.split()[0].lower()), words
    allowed = await ann.ask(
        "XADD a * f v", "XADD a * f w", "XADD b * f v", "XADD a * f x", "XLEN a", "XGROUP CREATE a g 0"
    )
    assert [type(each) for each in allowed[:4]] == [bytes, bytes, Error, bytes] and allowed[4:] == [4, OK]
    assert await ann.ask_one("XREADGROUP GROUP g c COUNT 1 STREAMS a >") != NO_KEY
    assert await eye.ask("XLEN a", "XADD a * f v") == [4, no_command("xadd")]
    assert await eye.ask_one("XREADGROUP GROUP g c STREAMS a >") == no_command("xreadgroup"), "reading changes nothing"
    assert await ann.ask("KEYS *", "DBSIZE", "RANDOMKEY", "SCAN 0") == [[b"a"], 1, b"a", [b"0", [b"a"]]]
    assert len(await root.ask_one("KEYS *")) == 2 and await root.ask_one("DEL b") == 1


@in_loop
async def test_a_group_with_the_name_of_a_keyword_opens_no_other_topic() -> None:
    lab = Door(sue="topics:write:s*", root="*:admin").resp()
    sue, root = await entered(lab, "sue"), await entered(lab, "root")
    await root.ask("XADD orders 1-1 f secret", "XGROUP CREATE orders streams 0")
    for words in (
        "XREADGROUP COUNT 9 GROUP streams s STREAMS orders >",
        "XREADGROUP GROUP streams streams STREAMS orders >",
        "XREADGROUP NOACK GROUP streams streams COUNT 1 streams orders >",
    ):
        assert await sue.ask_one(words) == NO_KEY, words


@in_loop
async def test_a_transaction_is_checked_when_it_is_made() -> None:
    lab = Door(ann="topics:write:a*").resp()
    ann = await entered(lab, "ann")
    *_, refused, aborted = await ann.ask("MULTI", "XADD a * f v", "XADD b * f v", "EXEC")
    assert refused == NO_KEY and aborted == Error(b"EXECABORT Transaction discarded because of previous errors.")
    assert await ann.ask_one("EXISTS a") == 0
    assert len((await ann.ask("MULTI", "XADD a * f v", "DBSIZE", "EXEC"))[-1]) == 2


@in_loop
async def test_the_server_is_for_its_admins() -> None:
    lab = Door(ann="topics:admin jobs:admin queues:admin store:admin", eye="admin:read", root="admin:admin").resp()
    ann, eye, root = [await entered(lab, name) for name in ("ann", "eye", "root")]
    for words in ("CONFIG SET save x", "CLIENT KILL ID 99", "DEBUG SLEEP 0", "CONFIG RESETSTAT"):
        name = "|".join(words.lower().split()[: 1 if words.startswith("DEBUG") else 2])
        assert await ann.ask_one(words) == await eye.ask_one(words) == no_command(name)
    assert await root.ask("CLIENT KILL ID 99", "DEBUG SLEEP 0") == [0, OK]
    for words in ("CLIENT LIST", "CONFIG GET port", "ACL USERS"):
        assert isinstance(await ann.ask_one(words), Error)
        assert not isinstance(await eye.ask_one(words), Error)
    assert b"user=eye" in await eye.ask_one("CLIENT LIST")
    assert await eye.ask_one("FLUSHALL") == no_command("flushall") and await ann.ask_one("FLUSHALL") == OK
    for words in ("INFO", "COMMAND COUNT", "TIME", "CLIENT INFO", "ACL WHOAMI", "SELECT 3", "WAITAOF 0 0 0"):
        assert not isinstance(await ann.ask_one(words), Error)
    assert b"lamina_folder:\r\n" in await ann.ask_one("INFO persistence")


@in_loop
async def test_who_may_see_few_of_many_topics_scans_them_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are for others, a step looks at so many and no more."""
    monkeypatch.setattr(key_commands, "_LOOKED_AT", 40)
    lab = Door(ann="topics:read:t1*", root="*:admin").resp()
    ann, root = [await entered(lab, name) for name in ("ann", "root")]
    await root.ask(*(f"XADD t{number} * f v" for number in range(200)))
    mine = sorted(b"t%d" % number for number in range(200) if str(number).startswith("1"))
    found, cursor, steps, looked_at = list[bytes](), b"0", 0, list[int]()
    page_of = lab.topics.page

    def page(place: int, count: int) -> Any:
        looked_at.append(count)
        return page_of(place, count)

    lab.topics.page = page  # type: ignore[method-assign]
    while cursor != b"0" or not steps:
        cursor, shown = await ann.ask_one(f"SCAN {cursor.decode()} COUNT 5")
        found, steps = found + shown, steps + 1
    assert sorted(found) == mine and looked_at == [40] * steps and steps >= len(mine) // 5
    assert sorted(await ann.ask_one("KEYS *")) == mine and await ann.ask_one("DBSIZE") == len(mine)
    assert {await ann.ask_one("RANDOMKEY") for _ in range(20)} <= {*mine}


@in_loop
async def test_queues_and_the_store_ask_for_their_rights() -> None:
    lab = Door(ann="topics:admin", bob="queues:write store:write:7", cy="store:read").resp()
    ann, bob, cy = [await entered(lab, name) for name in ("ann", "bob", "cy")]
    switched_off = b"ERR queues are switched off", b"ERR the store is switched off"  # that comes behind the gate
    for words in ("Q.NEW", "Q.SEND a b", "Q.INFO a", "Q.SUB a"):
        assert await ann.ask_one(words) == no_command(words.split()[0].lower())
        assert (await bob.ask_one(words)).startswith(switched_off[0])
    for words in ("S.WRITE 7 PUT k v", "S.GET 7 k", "S.SCAN 007", "S.STORAGES"):
        assert await ann.ask_one(words) == no_command(words.split()[0].lower())
        assert (await bob.ask_one(words)).startswith(switched_off[1]), words
    for words in ("S.WRITE 8 PUT k v", "S.GET 8 k", "S.WRITE 7 PUT k v IN 8 DEL k", "S.WRITE 7 PUT IN 8 in 8 DROP"):
        assert await bob.ask_one(words) == NO_KEY, words
    assert await bob.ask_one("S.ROTATE") == no_command("s.rotate")
    assert await cy.ask_one("S.WRITE 7 PUT k v") == no_command("s.write")
    assert (await cy.ask_one("S.GET 8 k")).startswith(switched_off[1])


@in_loop
async def test_a_user_whose_time_is_over_is_refused_and_waits_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resp_door, "_EXPIRED_EVERY_S", 0.001)
    door = Door()
    door.change(door.user("ann", "*:admin", 60), door.user("bob", "topics:write:a", 60))
    lab = door.resp()
    ann, bob, waiting = await entered(lab, "ann"), await entered(lab, "bob"), await entered(lab, "ann")
    assert await ann.ask_one("PING") == await bob.ask_one("PING") == PONG
    waiting.send("XREAD BLOCK 0 STREAMS a $")
    await lab.settle()
    assert waiting.got() == []
    door.clock.advance(60)
    assert await bob.ask("XADD a * f v", "XADD a * f v", "MULTI") == [NOAUTH] * 3
    assert await ann.ask_one("PING") == NOAUTH
    while not (told := waiting.got()):
        await asyncio.sleep(0.001)
    assert told == [NOAUTH] and waiting.connection.session.stranger is not None
    await lab.door.close()


@in_loop
async def test_a_change_of_the_users_holds_for_those_who_are_there() -> None:
    door = Door(ann="*:admin", bob="*:admin", carl="topics:read")
    lab = door.resp()
    ann, bob, carl, waiting = [await entered(lab, name) for name in ("ann", "bob", "carl", "carl")]
    waiting.send("XREAD BLOCK 0 STREAMS a $")
    await bob.ask("MULTI", "XADD a * f v")
    door.change(door.user("carl", "topics:read:c*"), without="bob")
    assert (await bob.ask_one("EXEC")).startswith(b"EXECABORT")
    assert await ann.ask("PING", "EXISTS a") == [PONG, 0]
    assert await bob.ask_one("PING") == NOAUTH
    assert await carl.ask("XLEN a", "XLEN c") == [NO_KEY, 0]
    assert waiting.got() == [Error(b"NOPERM the rights of this user were changed, ask again")]


@in_loop
async def test_a_change_of_one_user_is_not_felt_by_another() -> None:
    door = Door(ann="topics:read", bob="topics:read", root="*:admin")
    lab = door.resp()
    waiting, root = await entered(lab, "ann"), await entered(lab, "root")
    waiting.send("XREAD BLOCK 0 STREAMS a $")
    door.change(door.user("carl", "topics:read"), without="bob")
    assert waiting.got() == []
    assert type(await root.ask_one("XADD a 1-1 f v")) is bytes
    assert waiting.got() == [[[b"a", [[b"1-1", [b"f", b"v"]]]]]]


@in_loop
async def test_what_a_stranger_sends_forges_no_line_of_the_client_list() -> None:
    lab = Door(root="*:admin").resp()
    root, stranger = await entered(lab, "root"), lab.caller()
    await stranger.ask_one([b"x\nid=77 addr=1.2.3.4:5 user=root"])
    lines = (await root.ask_one("CLIENT LIST")).splitlines()
    assert len(lines) == 2 and b"id=77" not in b"".join(lines)
    assert b" cmd=CLIENT user=root " in lines[0] and b" cmd=NULL user= " in lines[1]
    await stranger.ask_one("lam_a-token-by-mistake")
    assert b"lam_" not in await root.ask_one("CLIENT LIST")


@in_loop
async def test_info_tells_no_number_that_a_command_would_refuse() -> None:
    lab = Door(root="*:admin", ann="topics:read:a*", carl="jobs:read", eye="admin:read").resp()
    root, ann, carl, eye = [await entered(lab, name) for name in ("root", "ann", "carl", "eye")]
    await root.ask("XADD a * f v", "XADD b * f v", "XADD c * f v")
    told = [(await who.ask_one("INFO topics")).split() for who in (ann, carl, eye, root)]
    for facts, count in zip(told, (b"1", b"0", b"3", b"3"), strict=True):
        assert {b"topics:" + count, b"topics_open:" + count, b"topics_added:" + count} <= set(facts)
    assert not any(b"topic_" in word for word in told[2]), "who runs the server gets sums, not names"


@in_loop
async def test_the_first_user_closes_an_open_door() -> None:
    disk = MemoryFiles()
    gate = Gate("data", files=disk)
    lab = Lab(gate=gate)
    caller = lab.caller()
    assert await caller.ask_one("PING") == PONG
    users.save("data", {"ann": User("ann", (Right.parse("*:admin"),), tokens.digest("ann"))}, disk)
    gate.change(gate.read())
    assert await caller.ask("PING", "AUTH ann ann", "PING") == [NOAUTH, OK, PONG]
    await lab.door.close()


@in_loop
async def test_one_whose_handshake_fails_leaves_nothing_behind_and_one_that_is_slow_is_no_exception() -> None:
    disk = MemoryFiles()
    gate = Gate("data", files=disk)
    lab = Lab(gate=gate)
    engine = JobEngine.open(None)
    jobs = WorkqDoor(engine, gate=gate)
    slow, slow_worker = lab.door(), jobs()  # a protocol is made before TLS begins
    assert not lab.door.house.sessions
    users.save("data", {"ann": User("ann", (Right.parse("*:admin"),), tokens.digest("ann"))}, disk)
    gate.change(gate.read())
    for connection, asked, told in ((slow, b"PING\r\n", b"-NOAUTH"), (slow_worker, b"inspect server\r\n", REQUIRED)):
        line = Line(("127.0.0.1", 1))
        line.protocol = connection
        connection.connection_made(line)  # type: ignore[arg-type]
        connection.data_received(asked)
        await lab.settle()
        assert line.sent.startswith(told)
    await lab.door.close()
    await jobs.close()
    engine.close()


@in_loop
async def test_strangers_from_one_address_are_few_and_send_little() -> None:
    lab = Door(ann="*:admin").resp()
    there = [lab.caller() for _ in range(strangers.MOST_FROM_ADDRESS)]
    late = lab.caller()
    await lab.settle()
    assert late.got() == [Error(b"ERR max number of clients that are not authenticated reached")]
    assert late.line.has_ended
    lab.door._send_expired_away()
    await lab.settle()
    assert late.got() == [], "it is told once"
    assert await there[0].ask_one("AUTH ann ann") == OK
    next_one = lab.caller()
    assert await next_one.ask_one("PING") == NOAUTH, "one who has logged in is no stranger"
    there[1].send_raw(packed(["PING", "x" * 90]) * 60)
    await lab.settle()
    *some, last = there[1].got()
    assert set(some) == {NOAUTH} and 30 < len(some) < 40 and b"4096 bytes" in last and there[1].line.has_ended
    there[2].send_raw(packed(["RESET"]) * 2000)
    await lab.settle()
    assert there[2].line.has_ended
    for caller in (*there, late, next_one):
        caller.connection.connection_lost(None)
    assert not lab.door.strangers._from


# -- workq ------------------------------------------------------------------------------------------------------------

REQUIRED, FAILED, DENIED = (
    b"-CLIENT-ERROR Authentication required\r\n",
    b"-CLIENT-ERROR Authentication failed\r\n",
    b"-CLIENT-ERROR Permission denied\r\n",
)
MISSING, DONE = b"-NOT-FOUND\r\n", b"+OK\r\n"


class Worker:
    """A client of the workq door."""

    def __init__(self, door: WorkqDoor) -> None:
        self.line = Line(("127.0.0.1", 1))
        self.connection = self.line.protocol = door()
        self.connection.connection_made(self.line)  # type: ignore[arg-type]

    async def ask(self, data: bytes) -> bytes:
        before = len(self.line.sent)
        self.connection.data_received(data)
        for _ in range(5):
            await asyncio.sleep(0)
        return self.line.sent[before:]

    async def named(self, name: str) -> Worker:
        assert await self.ask(b"auth %b %b\r\n" % (name.encode(), name.encode())) == DONE
        return self


def workq_lab(door: Door) -> tuple[JobEngine, WorkqDoor]:
    engine = JobEngine.open(None, clock=door.clock)
    return engine, WorkqDoor(engine, gate=door.gate)


def test_every_command_of_the_workq_door_has_its_level() -> None:
    assert set(LEVELS) == set(_HANDLERS) - {workq.Auth}


@in_loop
async def test_before_the_login_only_auth_is_answered() -> None:
    door = Door(ann="*:admin")
    door.change(door.user("late", "*:admin", 0))
    engine, at = workq_lab(door)
    worker = Worker(at)
    for data in (add(1), b"lease q 0\r\n", b"nonsense\r\n", b"inspect server\r\n", b"lease q !\r\n"):
        assert await worker.ask(data) == REQUIRED
    assert not engine.state.queues
    for data in (b"auth ann x\r\n", b"auth nobody ann\r\n", b"auth late late\r\n", b"auth default ann\r\n"):
        assert await worker.ask(data) == FAILED
    assert await worker.ask(b"auth ann\r\n") == REQUIRED
    assert await worker.ask(b"auth ann ann\r\n" + add(1)) == DONE + DONE
    assert await worker.ask(b"auth ann x\r\n" + add(2)) == FAILED + DONE, "it is still who it was"
    await at.close()


@in_loop
async def test_jobs_are_for_who_has_the_right_to_their_queue() -> None:
    door = Door(ann="jobs:write:a*", eye="jobs:read:a*", boss="jobs:admin:a*", root="*:admin", none="topics:admin")
    _, at = workq_lab(door)
    ann, eye, boss, root, none = [await Worker(at).named(name) for name in ("ann", "eye", "boss", "root", "none")]
    assert await root.ask(add(1, "a1") + add(2, "b1")) == DONE + DONE
    mine, other = job_id(1).encode(), job_id(2).encode()
    assert await ann.ask(add(3, "b1")) == await ann.ask(b"lease a1 b1 0\r\n") == DENIED
    assert await none.ask(add(3, "a1")) == await eye.ask(add(3, "a1")) == await eye.ask(b"lease a1 0\r\n") == DENIED
    assert (await ann.ask(b"lease a1 0\r\n")).startswith(b"+OK 1\r\n")
    for words in (b"delete %b\r\n", b"touch %b 9\r\n", b"release %b 0\r\n", b"result %b 0\r\n", b"inspect job %b\r\n"):
        assert await ann.ask(words % other) == await none.ask(words % mine) == MISSING, words
    for words in (b"complete %b 1\r\nx\r\n", b"fail %b 1\r\nx\r\n", b"bury %b 1\r\nx\r\n"):
        assert await ann.ask(words % other) == await none.ask(words % mine) == MISSING, words
        assert await eye.ask(words % mine) == DENIED
    assert await ann.ask(b"complete %b 1\r\nx\r\n" % mine) == DONE
    assert (await eye.ask(b"result %b 0\r\n" % mine)).startswith(b"+OK 1\r\n")
    for words in (b"pause %b\r\n", b"resume %b\r\n", b"redrive %b 9\r\n"):
        assert await ann.ask(words % b"a1") == await boss.ask(words % b"b1") == DENIED
        assert (await boss.ask(words % b"a1")).startswith(b"+OK")
    assert await eye.ask(b"inspect queue b1\r\n") == await eye.ask(b"inspect jobs b1 0 9\r\n") == MISSING
    assert await eye.ask(b"inspect queues 0 9\r\n") == b"+OK 1\r\na1 2\r\nready-len 0\r\nscheduled-len 0\r\n"
    assert (await root.ask(b"inspect queues 0 9\r\n")).startswith(b"+OK 2\r\n")
    assert await eye.ask(b"lease secret a1 !\r\n") == await ann.ask(b"lease secret a2 !\r\n"), "a mistake is told"
    assert set(at.engine.state.queues) == {"a1", "b1"}, "but makes no queue of others"
    await at.close()


@in_loop
async def test_who_waits_for_the_result_of_a_job_gets_none_of_another_with_its_id() -> None:
    _, at = workq_lab(Door(ann="jobs:write:a*", root="*:admin"))
    ann, waiting, root = [await Worker(at).named(name) for name in ("ann", "ann", "root")]
    assert await ann.ask(add(1, "a")) == DONE
    id = job_id(1).encode()
    assert await waiting.ask(b"result %b 60000\r\n" % id) == b""
    assert await ann.ask(b"delete %b\r\n" % id) == await root.ask(add(1, "secret")) == DONE
    assert (await root.ask(b"lease secret 1\r\n")).startswith(b"+OK 1")
    assert await root.ask(b"complete %b 6\r\nsecret\r\n" % id) == DONE
    while waiting.line.sent == DONE:
        await asyncio.sleep(0.001)
    assert waiting.line.sent == DONE + MISSING
    await at.close()


@in_loop
async def test_a_worker_whose_time_is_over_gets_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workq_door, "_EXPIRED_EVERY_S", 0.001)
    door = Door(root="*:admin")
    door.change(door.user("ann", "*:admin", 60))
    engine, at = workq_lab(door)
    root, ann, waiting = Worker(at), Worker(at), Worker(at)
    await root.named("root"), await ann.named("ann"), await waiting.named("ann")
    assert await waiting.ask(b"lease q 60000\r\n") == b""
    door.clock.advance(60)
    assert await ann.ask(add(1)) == REQUIRED
    while not waiting.line.sent.endswith(REQUIRED):
        await asyncio.sleep(0.001)
    assert await root.ask(add(2)) == DONE and engine.state.queues["q"].lists[0].size == 1
    door.change(without="root")
    assert await root.ask(add(3)) == REQUIRED
    await at.close()


@in_loop
async def test_a_worker_does_not_feel_the_change_of_another_user() -> None:
    door = Door(ann="jobs:write", bob="jobs:write")
    _, at = workq_lab(door)
    waiting, bob = await Worker(at).named("ann"), await Worker(at).named("bob")
    assert await waiting.ask(b"lease q 60000\r\n") == b""
    before = waiting.line.sent
    door.change(door.user("carl", "jobs:read"))
    assert await bob.ask(add(1)) == DONE
    while waiting.line.sent == before:
        await asyncio.sleep(0.001)
    assert waiting.line.sent[len(before) :].startswith(b"+OK 1\r\n")
    await at.close()


@in_loop
async def test_strangers_of_the_workq_door_are_few_and_send_little() -> None:
    door = Door(ann="*:admin")
    _, at = workq_lab(door)
    there = [Worker(at) for _ in range(strangers.MOST_FROM_ADDRESS)]
    late = Worker(at)
    for _ in range(5):
        await asyncio.sleep(0)
    assert late.line.sent == b"-SERVER-ERROR Too many connections that are not authenticated\r\n"
    assert late.line.has_ended
    large = add(1, payload=bytes(100_000))
    sent = await there[0].ask(large[:3000])
    assert sent == b"" and b"too much" in await there[0].ask(large[3000:9000]) and there[0].line.has_ended
    assert await there[1].ask(b"inspect queue abc\r\n" * 200) == REQUIRED * 200
    assert b"too much" in await there[1].ask(b"inspect queue abcdefgh\r\n" * 400) and there[1].line.has_ended
    assert b"too much" in await there[3].ask(b"auth ann bob\r\n" * 400) and there[3].line.has_ended
    behind = b"auth ann ann\r\n" + large
    assert await there[2].ask(behind) == DONE * 2, "a large command behind the login is taken"
    for worker in (*there, late):
        worker.connection.connection_lost(None)
    assert not at.strangers._from
    await at.close()


@pytest.mark.parametrize("kind", ["resp", "workq"])
@in_loop
async def test_who_takes_too_long_to_log_in_is_hung_up_on(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "LONGEST_S", 0.01)
    door = Door(ann="*:admin")
    lines: list[Any] = []
    if kind == "resp":
        lab = door.resp()
        known, slow = lab.caller(), lab.caller()
        assert await known.ask_one("AUTH ann ann") == OK
        lines = [known.line, slow.line]
    else:
        at = workq_lab(door)[1]
        first, second = Worker(at), Worker(at)
        await first.named("ann")
        lines = [first.line, second.line]
    while not lines[1].has_ended:
        await asyncio.sleep(0.01)
    assert b"took too long" in lines[1].sent and not lines[0].has_ended
