"""What operators and strangers get to see: looking is not reading, nobody's tabs keep others out, what ended stays
written down, and health names nothing to who may not know it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

import lamina
from http_lab import HttpLab, text_of
from integration.resp_wire import Error
from lamina.cli.topics import topics as topics_command
from lamina.errors import DiskError, DiskFull
from lamina.server.audit import Audit, Entry
from lamina.server.http.console import live
from lamina.server.http.ops import logs, logs_verify, logs_works
from lamina.server.http.ops.logs_works import Running
from lamina.server.life import Life
from waiting import wait_until

LONG_S = 60.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[HttpLab]:
    with HttpLab(tmp_path) as lab:
        yield lab


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


# -- looking is not reading --------------------------------------------------------------------------------------------


def read_so_far(lab: HttpLab) -> int:
    assert lab.inside.topics is not None
    ((_, topic),) = lab.inside.topics.opened()
    return topic.counts.read


def filled(lab: HttpLab) -> None:
    """A topic of 30 entries, of which its group has read 20."""
    for number in range(1, 31):
        lab.redis("XADD", "mail", f"{number}-1", "n", number)
    lab.redis("XGROUP", "CREATE", "mail", "g", "20-1")


@pytest.mark.parametrize(
    ("to", "meant"),
    [("start", "20 messages delivered"), ("end", "10 messages skipped"), ("11-0", "10 messages delivered")],
)
def test_a_preview_of_a_reset_counts_nothing_as_read(lab: HttpLab, to: str, meant: str) -> None:
    filled(lab)
    words = ["reset", "mail", "g", "--to", to, "--server", f"127.0.0.1:{lab.ports[1]}"]
    before = read_so_far(lab)
    for more in (["--dry-run"], []):
        done = CliRunner().invoke(topics_command, [*words, *more], catch_exceptions=False)
        assert (done.exit_code, meant in done.output) == (0, True), done.output
    assert read_so_far(lab) == before
    assert len(lab.redis("XRANGE", "mail", "-", "+")) == 30
    assert read_so_far(lab) == before + 30, "who reads is counted"


def test_a_preview_in_a_folder_counts_nothing_as_read(tmp_path: Path) -> None:
    with lamina.open(str(tmp_path / "data")) as data:
        topic = data.topics.topic("mail")
        topic.publish_many([str(number) for number in range(1500)])  # more than a page
        topic.subscribe("g", wait=0).close()
        engine = topic.find()
        assert engine is not None
        assert topic.reset("g", "start", dry_run=True).again == 1500
        assert engine.counts.read == 0


def test_ids_of_entries_are_told_in_pieces_and_without_reading(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(lab)
    assert lab.redis("XDEL", "mail", "2-1") == 1
    before = read_so_far(lab)
    assert lab.redis("XINFO", "STREAM", "mail", "IDS", "-", "+", 3) == [b"0-0", [b"1-1", b"3-1", b"4-1"]]
    assert lab.redis("xinfo", "stream", "mail", "ids", "(29-1", "+", 1000) == [b"0-0", [b"30-1"]]
    assert lab.redis("XINFO", "STREAM", "mail", "IDS", "31-0", "+", 1) == [b"0-0", []]
    monkeypatch.setattr("lamina.server.resp.stream_info._ENOUGH", 1)
    assert lab.redis("XINFO", "STREAM", "mail", "IDS", "-", "+", 30) == [b"0-0", [b"1-1"]], "fewer if they are large"
    assert lab.redis("XINFO", "STREAM", "mail")[1] == 29
    assert lab.redis("XINFO", "STREAM", "mail", "FULL")[1] == 29
    assert read_so_far(lab) == before


def test_ids_that_cannot_be_asked_for_are_refused(lab: HttpLab) -> None:
    filled(lab)
    cannot_be: list[tuple[str | int, ...]] = [("-", "+", 0), ("-", "+", -1), ("-", "+", "x"), ("-", "+", 1, 2)]
    for words in [*cannot_be, ("x", "+", 1), ("-", "x", 1), ("-", "+")]:
        assert isinstance(lab.redis("XINFO", "STREAM", "mail", "IDS", *words), Error), words
    assert b"no such key" in lab.redis("XINFO", "STREAM", "none", "IDS", "-", "+", 1)


# -- live pages --------------------------------------------------------------------------------------------------------


def test_one_user_with_many_tabs_keeps_no_other_out(lab: HttpLab) -> None:
    many, other = lab.user("ann", "topics:read"), lab.user("bob", "topics:read")
    assert live.MOST_OF_ONE < live.MOST_LOOKING
    with ExitStack() as opened:
        for _ in range(live.MOST_OF_ONE):
            next(opened.enter_context(lab.stream("/live/topics", bearer(many))))
        for path in ("/live/topics", "/live/tail?name=mail"):
            refused = lab.request("GET", path, headers=bearer(many))
            assert (refused.status, refused.json()["error"]["code"]) == (503, "too_many"), path
            assert "12 pages of ann are live already" in refused.json()["error"]["message"]
            assert "close some of your tabs" in refused.json()["error"]["hint"]
        assert lab.request("GET", "/topics", headers=bearer(many)).status == 200, "the page itself is there"
        next(opened.enter_context(lab.stream("/live/topics", bearer(other))))
    with lab.stream("/live/topics", bearer(many)) as events:
        assert next(events) == "retry: 3000", "there is room again"


def test_where_nobody_logs_in_all_share_all_of_it(lab: HttpLab) -> None:
    with ExitStack() as opened:
        for _ in range(live.MOST_LOOKING):
            next(opened.enter_context(lab.stream("/live/topics")))
        refused = lab.request("GET", "/live/topics")
        assert (refused.status, refused.json()["error"]["message"]) == (503, "32 pages are live already")


# -- how long works ended ----------------------------------------------------------------------------------------------


def ends(lab: HttpLab, action: str = "logs.verify") -> list[Entry]:
    """What was written down when works ended."""
    return [one for one in lab.entries() if one.action == action and "work" in one.asked]


class Slow:
    """A verification that goes on until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes_on = threading.Event()
        self.error: Exception | None = None
        monkeypatch.setattr(logs_verify, "verify", self)
        monkeypatch.setattr(logs, "_SOON_S", 0.1)  # of waiting for it before it is answered
        monkeypatch.setattr(logs_works, "SOON_S", 0.0)

    def __call__(self, ref: object, work: Running) -> str:
        while not self.goes_on.wait(0.01):
            work.progress(1, 2)
        if self.error is not None:
            raise self.error
        return "read 3 files: no damage"


def begun(lab: HttpLab, token: str, log: str = "jobs") -> str:
    status, found = lab.post_json("/logs/verify", {"name": log}, token)
    assert (status, found["work"]["outcome"]) == (200, "running")
    return str(found["id"])


def test_the_answer_waits_longer_than_what_it_leaves_out_takes() -> None:
    assert logs._SOON_S > logs_works.SOON_S


@pytest.mark.parametrize(
    "error", [None, DiskError("jobs/1.log: cannot be read", hint="look at the disk"), OSError(5, "x")]
)
def test_how_a_long_work_ended_is_in_the_audit_log_and_stays_there(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    slow, token = Slow(monkeypatch), lab.user("ann", "*:admin")
    work = begun(lab, token)
    assert ends(lab) == []
    slow.error = error
    slow.goes_on.set()
    wait_until(lambda: bool(ends(lab)))
    lab.restart()
    (one,) = ends(lab)
    outcome, told = ("done", "read 3 files: no damage")
    if error is not None:
        outcome, told = ("disk_error", "jobs/1.log: cannot be read") if isinstance(error, DiskError) else ("error", "x")
    assert (one.user, one.target, one.outcome, one.asked["work"]) == ("ann", "jobs", outcome, work)
    assert told in one.told
    _, found = lab.get_json("/audit", token, action="logs.verify")
    assert [each["outcome"] for each in found["entries"]] == [outcome, "done", "begun"]
    page = text_of(lab.request("GET", "/audit", headers={**bearer(token), "accept": "text/html"}).text)
    assert told in page and f"work={work}" in page


def test_a_work_that_was_stopped_is_written_down_for_who_began_it(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    Slow(monkeypatch)
    began, stops = lab.user("ann", "*:admin"), lab.user("bob", "*:admin")
    begun(lab, began)
    assert lab.post_json("/logs/stop", {"name": "jobs"}, stops)[0] == 200
    wait_until(lambda: bool(ends(lab)))
    (one,) = ends(lab)
    assert (one.user, one.outcome) == ("ann", "stopped")


def test_what_the_answer_told_is_not_written_down_twice_but_a_failure_is(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.redis("XADD", "mail", "*", "f", "v")
    slow, token = Slow(monkeypatch), lab.user("ann", "*:admin")
    slow.goes_on.set()
    name = {"name": "topics/mail"}
    monkeypatch.setattr(logs, "_SOON_S", LONG_S)  # however busy the machine is
    monkeypatch.setattr(logs_works, "SOON_S", LONG_S)
    assert lab.post_json("/logs/verify", name, token)[1]["work"]["outcome"] == "done"
    assert ends(lab) == [] and lab.entries()[0].told == "topics/mail: read 3 files: no damage"
    slow.error = DiskError("1.log: cannot be read", hint="look")
    assert lab.post_json("/logs/verify", name, token)[1]["work"]["outcome"] == "disk_error"
    (one,) = ends(lab)
    assert (one.outcome, one.target) == ("disk_error", "topics/mail")


def test_an_end_that_cannot_be_written_down_is_in_the_log_of_the_server(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slow, token = Slow(monkeypatch), lab.user("ann", "*:admin")
    begun(lab, token)

    def full(self: Audit, begun: object, outcome: str, told: str = "") -> None:
        raise DiskFull("no room", hint="make some")

    monkeypatch.setattr(Audit, "end", full)
    slow.goes_on.set()
    wait_until(lambda: "not in the audit log" in caplog.text)
    assert "logs.verify of jobs, which ann began, ended (done: read 3 files: no damage)" in caplog.text
    assert "no room" in caplog.text
    wait_until(lambda: lab.get_json("/logs/one", token, name="jobs")[1]["works"][0]["outcome"] == "done")


def test_paths_of_journals_are_not_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HttpLab(tmp_path, queues="journal") as lab:
        slow, token = Slow(monkeypatch), lab.user("ann", "*:admin")
        slow.error = DiskError("queues/messages/ab/cd/1.log: cannot be read", hint="look")
        slow.goes_on.set()
        monkeypatch.setattr(logs, "_SOON_S", LONG_S)
        status, found = lab.post_json("/logs/verify", {"name": "queues/messages"}, token)
        assert (status, found["did"]) == (200, "verify of queues/messages ended: disk_error")
        (one,) = ends(lab)
        assert (one.outcome, one.told) == ("disk_error", "")
        assert not any("ab/cd" in each.told for each in lab.entries()), "nor with the answer"


# -- health ------------------------------------------------------------------------------------------------------------

NAMES = "secret.topic: /data/topics/secret.topic/1.log: cannot sync the file"


@pytest.mark.parametrize("path", ["/readyz", "/healthz"])
def test_health_names_nothing_to_who_may_not_know_it(lab: HttpLab, path: str, caplog: pytest.LogCaptureFixture) -> None:
    lab.life.watch("topics", lambda: NAMES, needs_restart=True)
    assert NAMES in lab.request("GET", path).text, "nobody has to log in here: everybody may know"
    reader, keeper = lab.user("ann", "topics:read"), lab.user("bob", "admin:read")
    for headers, knows in (({}, False), (bearer("wrong"), False), (bearer(reader), False), (bearer(keeper), True)):
        answer = lab.request("GET", path, headers=headers)
        assert answer.status == 503 and "topics" in answer.text
        assert ("secret" in answer.text, "1.log" in answer.text) == (knows, knows)
    assert NAMES in lab.request("GET", "/recovery", headers={**bearer(keeper), "accept": "text/html"}).text
    assert caplog.text.count(NAMES) == 1, "it is told once, however often somebody asks"


def test_a_full_disk_is_told_to_everybody_but_not_what_came_up_by_asking(lab: HttpLab) -> None:
    def broken() -> str | None:
        raise FileNotFoundError(2, "No such file", "/data/secret")

    lab.user("ann", "topics:read")
    lab.life.problem("jobs disk", "the disk is full: make room")
    lab.life.watch("disk", broken)
    problems = lab.request("GET", "/readyz").json()["problems"]
    assert problems["jobs disk"] == "the disk is full: make room"
    assert "secret" not in problems["disk"] and "something is wrong with it" in problems["disk"]
    assert lab.request("GET", "/healthz").status == 200


def test_a_start_that_failed_names_no_file_to_strangers(caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    with pytest.raises(DiskError), life.restoring("jobs"):
        raise DiskError("/data/jobs/1.log: cannot be read", hint="look")
    assert "1.log" in life.needs_restart and "1.log" in str(life.as_dict())
    told = str(life.as_dict(with_names=False)) + life.why_restart(with_names=False)
    assert "1.log" not in told and "could not be opened" in told


def test_a_problem_that_comes_back_is_in_the_log_again(caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    with caplog.at_level(logging.WARNING, "lamina.server"):
        for _ in range(2):
            life.problem("jobs disk", "the disk is full")
            assert life.problems and life.problems
            life.solved("jobs disk")
            assert not life.problems
    assert caplog.text.count("jobs disk: the disk is full") == 2
