"""``lamina top``: what it makes of the answers of a server, and how it shows them."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from lamina.cli.top_facts import SECTIONS, Watcher, parse_info
from lamina.cli.top_view import view
from lamina.client.workq import Block
from lamina.clock import ManualClock
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.topics.topics import Topics
from lamina.errors import WireError
from lamina.log.options import LogOptions
from lamina.server.life import Life
from lamina.server.resp.commands import COMMANDS
from lamina.server.resp.dispatch import HANDLERS, run
from lamina.server.resp.info_sections import SHOWN, of_jobs
from lamina.server.resp.session import House, Session
from lamina.server.resp.settings import Settings
from lamina.server.security.rights import Right
from lamina.server.security.users import User
from lamina.testing import MemoryFiles

HANDLERS.update(COMMANDS)


class Server:
    """A server without doors: topics and jobs on a disk in memory, asked as a client would."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.life = Life(self.clock)
        self.topics = Topics.open("topics", files=MemoryFiles(), clock=self.clock, threaded=False)
        self.jobs = JobEngine.open("jobs", files=MemoryFiles(), clock=self.clock, threaded=False, options=LogOptions())
        self.life.sections[b"jobs"] = b"Jobs", of_jobs(self.jobs)
        self.house = House(self.topics, self.clock, Settings(sections=self.life.sections))
        self.session: Session = self.house.enter(b"127.0.0.1:5001")

    def ask(self, *words: str | bytes) -> Any:
        """What was said, without the size in front of it."""
        answer = run(self.session, [word.encode() if isinstance(word, str) else word for word in words])
        assert isinstance(answer, bytes)
        self.house.commands += 1
        return answer.partition(b"\r\n")[2] if answer.startswith(b"$") else answer

    def add(self, name: str, queue: int) -> None:
        self.jobs.add(bytes([queue] * 16), name, 1000, 10**9, b"")
        self.jobs.all_written()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def watcher(server: Server) -> Watcher:
    return Watcher(server, None, server.clock.monotonic)


def test_rates_are_what_came_between_two_looks(server: Server, watcher: Watcher) -> None:
    server.ask("XADD", "orders", "*", "a", "1")
    first = watcher.look()
    assert first["topics"]["added_per_s"] is None and first["server"]["commands_per_s"] is None
    for number in range(10):
        server.ask("XADD", "orders", "*", "a", str(number))
    server.add("mail", 1)
    server.clock.advance(2)
    second = watcher.look()
    assert second["topics"]["added_per_s"] == 5.0
    assert second["topics"]["by_topic"][0]["per_s"] == 5.0
    assert second["server"]["commands_per_s"] == 5.0, "its own question does not count"
    assert second["jobs"]["changes_per_s"] == 0.5


def test_rates_begin_anew_with_the_server(server: Server, watcher: Watcher) -> None:
    watcher.look()
    server.house.settings.run_id = "another"
    server.clock.advance(1)
    assert watcher.look()["server"]["commands_per_s"] is None


def test_topics_and_groups_come_with_their_real_names(server: Server, watcher: Watcher) -> None:
    odd = b"a,b=c:d/%\x1b[31m\r\n"
    for _ in range(3):
        server.ask("XADD", odd, "*", "a", "1")
    server.ask("XGROUP", "CREATE", odd, b"g/,=", "0")
    (topic,) = watcher.look()["topics"]["by_topic"]
    assert topic["name"].encode() == odd
    assert (topic["length"], topic["groups"]) == (3, [{"name": "g/,=", "lag": 3, "pending": 0, "consumers": 0}])


def test_jobs_come_by_queue_with_the_age_of_the_oldest(server: Server, watcher: Watcher) -> None:
    server.add("mail", 1)
    server.add("mail", 2)
    server.jobs.lease(["mail"])
    server.clock.advance(7)
    jobs = watcher.look()["jobs"]
    assert jobs["jobs"] == 2
    (queue,) = jobs["by_queue"]
    assert (queue["name"], queue["ready"], queue["leased"], queue["oldest_s"]) == ("mail", 1, 1, 7.0)


def test_of_many_topics_the_largest_are_told(server: Server, watcher: Watcher) -> None:
    for number in range(SHOWN + 10):
        for _ in range(1 + (number == 25)):
            server.ask("XADD", f"t{number}", "*", "a", "1")
    topics = watcher.look()["topics"]
    assert (topics["topics"], len(topics["by_topic"])) == (SHOWN + 10, SHOWN)
    assert topics["by_topic"][0]["name"] == "t25"


def test_a_user_sees_what_it_may_read(server: Server, watcher: Watcher) -> None:
    for name in ("orders.eu", "secret"):
        server.ask("XADD", name, "*", "a", "1")
        server.jobs.add(bytes([len(name)] * 16), name, 1000, 10**9, b"")
    server.life.problem("disk", "/data is full")
    rights = (Right("topics", "read", "orders.*"), Right("jobs", "read", "orders.*"))
    server.session.become(User("ann", rights, b""))
    facts = watcher.look()
    assert [topic["name"] for topic in facts["topics"]["by_topic"]] == ["orders.eu"]
    assert [queue["name"] for queue in facts["jobs"]["by_queue"]] == ["orders.eu"]
    assert facts["server"]["problems"] == "" and facts["disk"]["total_bytes"] is None
    assert (facts["topics"]["topics"], facts["topics"]["entries"], facts["topics"]["open"]) == (1, 1, 1)
    assert (facts["jobs"]["jobs"], facts["jobs"]["queues"], facts["jobs"]["evicted"]) == (1, 1, None)
    assert facts["disk"]["by_engine"] == {}
    assert "orders.eu" in shown(facts)


def test_problems_of_the_server_are_shown(server: Server, watcher: Watcher) -> None:
    server.life.ready()
    server.life.problem("jobs", "the log failed\r\nfor a reason")
    facts = watcher.look()
    assert facts["server"]["problems"] == "jobs: the log failed for a reason"
    assert "the log failed" in shown(facts)


def test_sections_of_the_engines_come_only_when_asked_for(server: Server) -> None:
    plain = parse_info(server.ask("INFO"))
    assert "topics" not in plain and "jobs" not in plain
    assert {"topics", "jobs", "disk_written_bytes", "phase"} <= parse_info(server.ask("INFO", *SECTIONS)).keys()


class Workq:
    """A workq server of any make."""

    def inspect(self, what: str, *words: str | int) -> list[Block]:
        if what == "server":
            return [Block("server", {"active-clients": b"3", "evicted-jobs": b"1", "started": b"x"})]
        sizes = (("mail", b"5", b"1"), ("sms", b"9", b"0"))
        return [Block(name, {"ready-len": ready, "scheduled-len": later}) for name, ready, later in sizes]


def test_a_server_with_a_workq_door_alone_is_asked_there() -> None:
    facts = Watcher(None, Workq()).look()
    assert facts["jobs"]["jobs"] == 15
    assert [queue["name"] for queue in facts["jobs"]["by_queue"]] == ["sms", "mail"]
    assert "sms" in shown(facts) and "server" not in facts


def test_what_is_no_info_is_refused() -> None:
    with pytest.raises(WireError):
        parse_info(None)


def shown(facts: dict[str, Any], **options: Any) -> str:
    console = Console(file=io.StringIO(), width=150, force_terminal=False, color_system=None)
    console.print(view(facts, "here:6380", **options))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_names_cannot_play_with_the_terminal(server: Server, watcher: Watcher) -> None:
    server.ask("XADD", b"\x1b[2J[bold]x", "*", "a", "1")
    text = shown(watcher.look())
    assert "\x1b" not in text and "[2J[bold]x" in text


def test_a_small_terminal_gets_small_tables(server: Server, watcher: Watcher) -> None:
    for number in range(15):
        server.ask("XADD", f"t{number}", "*", "a", "1")
    facts = watcher.look()
    assert "and 12 more" in shown(facts, height=20)
    assert "more" not in shown(facts, height=200)


def test_a_server_that_went_away_is_told(server: Server, watcher: Watcher) -> None:
    assert "cannot connect" in shown(watcher.look(), problem="here:6380: cannot connect")
