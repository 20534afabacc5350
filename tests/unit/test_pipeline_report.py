"""Promises of the job ``report``: the engines' own numbers, one page that needs nothing else, or the old one."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import lamina
from lamina import LogOptions, QueueOptions, StoreOptions
from lamina.cli.pipeline_report import report as command
from lamina.clock import ManualClock
from lamina.engines.store.api import Store
from lamina.errors import BadOption, DiskError, StorageError
from lamina.pipeline.jobs.report import ReportSummary, report
from lamina.pipeline.pieces import Piece, Times
from lamina.pipeline.reporting import buckets, disk, facts, scales, tally
from lamina.pipeline.reporting.drawing import Drawing
from lamina.pipeline.reporting.facts import Facts, Part, Plan
from lamina.pipeline.reporting.jobs import RUNNING, WAITING, Lives
from lamina.pipeline.running import LocalRunner
from lamina.pipeline.tables import scan
from upkeep_lab import START, jobs_folder

SECOND = 10**9
ODD = '<script src="http://evil">alert("&")</script>'


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Some of everything, while another process (this one) has it open."""
    folder, clock = tmp_path_factory.mktemp("report") / "data", ManualClock(START)
    settings = LogOptions(sync=lamina.OS)
    with lamina.open(
        folder, clock=clock, jobs=settings, topics=settings, queue_log=settings, store=StoreOptions(epoch_ms=0)
    ) as opened:
        opened.jobs.add("mail", b"", ttr=100)
        clock.advance(0.001)
        opened.jobs.add("mail", b"", max_fails=3, ttr=100)
        opened.jobs.add("slow", b"", delay=1000)
        clock.advance(4)
        good, bad = opened.jobs.lease_many("mail", most=2)
        clock.advance(2)
        good.complete()
        bad.fail()
        opened.topic(ODD).publish_many([{"a": "b" * 10}] * 7)
        opened.topic("orders").publish({"a": "b"})
        rid, sid = opened.queues.create()
        for body in (b"1", b"2", b"3"):
            opened.queue(sid).send(body)
        clock.advance(8)
        receiver = opened.queue(rid)
        found = receiver.receive()
        assert found is not None
        receiver.ack(found)
        with opened.store.session(wait=False) as session:
            session.put(7, b"k", b"value")
            session.remove(7, b"l")
        epoch = opened.store.epoch
        opened.store.switch_epoch()
        opened.store.wait_durable(epoch, 30)
        opened.log("plain").append(b"x" * 100, until=lamina.Level.WRITTEN)
        clock.advance(100)
        opened.topic("orders").publish({"late": "b"})
        yield folder


def gathered(data: Path, times: Times = Times(), width: int | None = None) -> Facts:  # noqa: B008
    return facts.gather(str(data), times, width, lambda size: LocalRunner(), lambda done, total: None)[0]


def one_by_one(plan: Plan, every: int = 7) -> list[Part]:
    """As if so many records were a task of their own."""
    tasks = []
    for task in plan.tasks:
        cuts: list[Any] = [task.work]
        if task.view in ("jobs", "queue_events"):
            cuts = [(small,) for piece in task.work for small in _cut(task.path, piece, every)]
        tasks += [replace(task, work=cut) for cut in cuts]
    assert len(tasks) > 20
    return [facts.measure(task) for task in tasks]


def _cut(path: str, piece: Piece, every: int) -> Iterator[Piece]:
    view = "queue_events" if piece.file.place.path == "queues" else "jobs"
    rows = scan(path, view, ["file", "position"]).read_all().to_pylist()
    starts = [row["position"] for row in rows if row["file"] == piece.file.name]
    edges = [piece.start, *starts[every::every], piece.stop]
    for start, stop in pairwise(edges):
        yield replace(piece, start=start, stop=stop)


# -- the numbers -----------------------------------------------------------------------------------------------------


def test_what_happened_is_counted_beside_a_process_that_writes(data: Path, tmp_path: Path) -> None:
    to = tmp_path / "page.html"
    found = report(str(data), str(to))
    assert found.sections == ["overview", "jobs", "topics", "queues", "store", "logs"]
    bytes_of = {name: found.totals[name] for name in ("queues.bytes", "topics.bytes", "store.bytes")}
    assert found.totals == bytes_of | {
        "jobs.added": 3,
        "jobs.started": 2,
        "jobs.completed": 1,
        "jobs.retries": 1,
        "jobs.waiting": 1,
        "jobs.running": 0,
        "queues.created": 1,
        "queues.sent": 3,
        "queues.acked": 1,
        "queues.waiting": 2,
        "topics.published": 9,
        "store.puts": 1,
        "store.removes": 1,
        "logs.records": 1,
        "logs.bytes": 100,
    }
    assert all(bytes_of.values()) and found.damage == 0 and found.engine == "local"
    assert found.path == str(to) and found.bytes == to.stat().st_size
    assert os.listdir(tmp_path) == ["page.html"]


def test_times_are_measured(data: Path) -> None:
    drawing = Drawing(gathered(data))
    waits = tally.together(list(drawing.tally.latencies["jobs.wait"].values()))
    runs = tally.together(list(drawing.tally.latencies["jobs.run"].values()))
    delivery = tally.together(list(drawing.tally.latencies["queues.wait"].values()))
    for histogram, count, seconds in ((waits, 2, 4), (runs, 2, 2), (delivery, 1, 8)):
        assert sum(histogram.values()) == count
        assert tally.quantile(histogram, 0.5) == pytest.approx(seconds, rel=0.07)
    # The failed one waits again, the scheduled one not before its time; messages have since they were sent.
    assert drawing.levels(WAITING)[-1] == 1 and max(level or 0 for level in drawing.levels(WAITING)) == 2
    assert drawing.ages("queues.waiting")[-1] == pytest.approx(108, abs=0.1)
    assert drawing.top("jobs.added") == [("mail", 2.0), ("slow", 1.0)]
    assert drawing.top("topics.published")[0] == (ODD, 7.0)


@pytest.mark.parametrize("seed", range(4))
def test_jobs_are_followed_as_the_engine_does_however_the_log_is_divided(tmp_path: Path, seed: int) -> None:
    data = jobs_folder(tmp_path, seed)
    plan = facts.divide(str(data), Times(), None)
    parts = one_by_one(plan)
    lives = Lives(tally.Tally(plan.width), None, None)
    for part in parts:
        lives.take(part.jobs, part.job_events)
    last = max(part.tally.logs["jobs"].last_ns or 0 for part in parts)
    states = {"ready": WAITING, "scheduled": WAITING, "leased": RUNNING, "completed": "", "failed": ""}
    rows = scan(str(data), "job_state", ["id", "name", "state", "attempts"], asOf=str(last + 1)).read_all().to_pylist()
    assert {id: (job.name, job.state, job.attempts) for id, job in lives.jobs.items()} == {
        row["id"]: (row["name"], states[row["state"]], row["attempts"]) for row in rows
    }
    assert facts.put_together(plan, parts) == facts.put_together(plan, [facts.measure(task) for task in plan.tasks])


def test_messages_are_followed_however_the_log_is_divided(tmp_path: Path) -> None:
    draw, clock = random.Random(3), ManualClock(START)
    settings = LogOptions(sync=lamina.OS)
    with lamina.open(tmp_path / "data", clock=clock, queue_log=settings) as opened:
        made = [opened.queues.create() for _ in range(6)]
        for _ in range(200):
            clock.advance(draw.random())
            rid, sid = draw.choice(made)
            if draw.random() < 0.6:
                opened.queue(sid).send(b"x" * 20)
            elif (message := (receiver := opened.queue(rid)).receive()) is not None:
                receiver.ack(message)
        opened.queue(made.pop()[0]).delete()
        clock.advance(1)
        opened.queue(made[0][1]).send(b"")
        plan = facts.divide(str(tmp_path / "data"), Times(), None)
        whole = facts.put_together(plan, [facts.measure(task) for task in plan.tasks])
        assert facts.put_together(plan, one_by_one(plan)) == whole
        rows = scan(str(tmp_path / "data"), "queue_state", ["queue", "waiting"]).read_all().to_pylist()
    waiting = {row["queue"]: row["waiting"] for row in rows if row["waiting"]}
    assert whole.tally.names["queues.waiting"] == waiting
    assert Drawing(whole).levels("queues.waiting")[-1] == sum(waiting.values())


def test_of_journals_the_messages_are_counted_and_no_id_is_shown(tmp_path: Path) -> None:
    with lamina.open(tmp_path / "data", queues=QueueOptions(store="journal")) as opened:
        made = [opened.queues.create() for _ in range(3)]
        for _, sid in made:
            for _ in range(4):
                opened.queue(sid).send(b"x")
        found = report(str(tmp_path / "data"), str(tmp_path / "page.html"))
    assert found.totals["queues.sent"] == 12 and "queues.waiting" not in found.totals
    text = (tmp_path / "page.html").read_text()
    assert "Of queues in journals" in text and "Depth" not in text
    assert not any(id in text for ids in made for id in ids)


def test_a_part_of_the_time_has_its_own_counts_and_the_same_levels(tmp_path: Path) -> None:
    data = jobs_folder(tmp_path, 5)
    whole = Drawing(gathered(data, width=SECOND))
    middle = (whole.facts.first_ns + whole.facts.last_ns) // 2 // SECOND * SECOND
    early, late = (Drawing(gathered(data, times, SECOND)) for times in (Times(None, middle), Times(middle, None)))
    for name in ("jobs.added", "jobs.completed", "jobs.timeouts", "jobs.retries", "jobs.started"):
        assert early.total(name) + late.total(name) == whole.total(name) > 0
    assert early.total("jobs.added") and late.total("jobs.added")
    count = len(late.facts.buckets)
    assert late.levels(WAITING) == whole.levels(WAITING)[-count:]
    assert late.ages(WAITING) == whole.ages(WAITING)[-count:]
    # Of what waits longer than the time that is shown, all is known still.
    assert max(age or 0 for age in late.ages(WAITING)) > count / 2


def test_wide_steps_are_narrow_ones_together(tmp_path: Path) -> None:
    data = jobs_folder(tmp_path, 6)
    narrow, wide = gathered(data, width=SECOND), gathered(data, width=60 * SECOND)
    assert narrow.tally.widened(60 * SECOND).latencies == wide.tally.latencies
    widened = replace(wide, tally=narrow.tally.widened(60 * SECOND))
    assert Drawing(widened).levels(WAITING) == Drawing(wide).levels(WAITING)
    assert Drawing(widened).ages(WAITING) == Drawing(wide).ages(WAITING)
    for before, after in zip(buckets.WIDTHS, buckets.WIDTHS[1:], strict=False):
        assert after % before == 0


def test_quantiles_are_right_to_seven_percent() -> None:
    draw = random.Random(1)
    lengths = sorted(round(10 ** draw.uniform(4.5, 14)) for _ in range(4000))
    histogram: dict[int, int] = {}
    for length in lengths:
        histogram[tally.step_of(length)] = histogram.get(tally.step_of(length), 0) + 1
    for share in (0.01, 0.5, 0.95, 0.99):
        exact = lengths[int(share * len(lengths))] / SECOND
        assert tally.quantile(histogram, share) == pytest.approx(exact, rel=0.07)
    assert tally.quantile({}, 0.5) is None


def test_names_without_end_are_bounded() -> None:
    whole = tally.Tally(SECOND)
    for first in range(0, 120_000, 30_000):
        part = tally.Tally(SECOND)
        for number in range(first, first + 30_000):
            part.name("queues.sent", f"q{number}", 5 if number == 7 else 1)
        whole.take(part)
    names = whole.names["queues.sent"]
    assert len(names) <= 80_000 and names["q7"] == 5
    assert sum(names.values()) == 120_004 and names[tally.OTHERS] > 0


# -- the disk --------------------------------------------------------------------------------------------------------


def test_every_byte_of_the_folder_is_in_one_state(tmp_path: Path) -> None:
    data = jobs_folder(tmp_path / "data")
    with Store.open(str(data / "store")) as store:
        store.put(1, b"k", b"v" * 100)
        store.rotate()
        store.compact()
        store.put(1, b"l", b"v")
    first = min((data / "jobs").glob("*.log")).name
    for name, size in ((f"{first}.torn-20261116T082616.000000000Z", 5), (f"{first}.rw", 7), ("notes.txt", 11)):
        (data / "jobs" / name).write_bytes(bytes(size))
    (data / "jobs" / "_tmp" / "clean").mkdir(parents=True)
    (data / "jobs" / "_tmp" / "clean" / "part").write_bytes(bytes(13))
    found = disk.look(str(data))
    assert found.total == sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    assert sum(found.files.values()) == sum(path.is_file() for path in data.rglob("*"))
    assert found.bytes["jobs", "damaged"] == 5
    assert found.bytes["jobs", "temporary"] == 7 + 13
    assert found.bytes["jobs", "foreign"] == 11
    logs = sorted((data / "jobs").glob("*.log"))
    assert found.bytes["jobs", "active"] == logs[-1].stat().st_size
    assert found.bytes["jobs", "sealed"] == sum(path.stat().st_size for path in logs[:-1])
    parts = list((data / "store").glob("pwal_compacted.*"))
    assert found.bytes["store", "compacted"] == sum(path.stat().st_size for path in parts) > 0
    assert found.bytes["store", "merged"] > 0 and found.catalog is not None and found.catalog.generation == 1
    one = disk.look(str(data / "store"))
    assert {key: size for key, size in found.bytes.items() if key[0] == "store"} == one.bytes


# -- the page --------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Sees that what is opened is closed, and what a browser would ask for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.asked: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.asked += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action", "style")]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_needs_nothing_and_shows_odd_names_as_text(data: Path, tmp_path: Path) -> None:
    report(str(data), str(tmp_path / "page.html"))
    text = (tmp_path / "page.html").read_text()
    page = Page(text)
    assert page.open == [] and "svg" in page.tags
    assert not page.tags & {"script", "link", "img", "iframe", "object", "embed", "image", "use"}
    assert page.asked and all(each.startswith("#") for each in page.asked)
    assert "url(" not in text and "@import" not in text and "default-src 'none'" in text
    assert any(ODD in words for words in page.words)
    pictures = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
    assert len(pictures) > 15
    for picture in pictures:
        assert "nan" not in picture.lower().replace("finance", "") and "inf" not in re.sub(r">[^<]*<", "><", picture)
        assert re.search(r'role="img" aria-labelledby="t(\d+) d\1"', picture) and "<desc" in picture
    for mode in ("prefers-color-scheme:dark", "@media print"):
        assert mode in text


def test_neither_spark_nor_java_is_needed(data: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules.update(pyspark=None, pandas=None, numpy=None)\n"
        "from lamina.pipeline.jobs.report import report\n"
        "print(report(sys.argv[1], sys.argv[2]).records)"
    )
    arguments = [sys.executable, "-c", program, str(data), str(tmp_path / "page.html")]
    done = subprocess.run(
        arguments, env={"PATH": "", "HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and int(done.stdout) > 20, done.stderr


def test_the_same_folder_gives_the_same_bytes(data: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        report(str(data), str(tmp_path / name), now=START)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_an_empty_time_has_a_page_too(data: Path, tmp_path: Path) -> None:
    found = report(str(data), str(tmp_path / "page.html"), since="2040-01-01")
    assert found.records == 0 and found.first is None
    assert "no records" in (tmp_path / "page.html").read_text()


def test_one_log_is_enough(data: Path, tmp_path: Path) -> None:
    found = report(str(data / "jobs"), str(tmp_path / "page.html"))
    assert found.sections == ["overview", "jobs"] and found.logs == 1


def test_damage_is_told_and_all_else_is_counted(tmp_path: Path) -> None:
    data = jobs_folder(tmp_path / "data")
    before = report(str(data), str(tmp_path / "before.html"))
    file = sorted((data / "jobs").glob("*.log"))[2]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    found = report(str(data), str(tmp_path / "page.html"))
    assert found.damage == 1 and 0 < found.records < before.records
    text = (tmp_path / "page.html").read_text()
    assert "One place cannot be read" in text and file.name in text


def test_labels_are_round() -> None:
    assert [scales.show_seconds(value) for value in (0, 1e-5, 0.0021, 1, 90, 5400, 86400)] == [
        *("0 s", "10 µs", "2.1 ms", "1 s", "1.5 min", "1.5 h", "1 d")
    ]
    assert [scales.show_size(value) for value in (0, 1023, 1 << 20, 5 << 30)] == ["0 B", "1023 B", "1 MiB", "5 GiB"]
    assert [scales.show_count(value) for value in (0, 9999, 12_000, 3.5e6)] == ["0", "9,999", "12k", "3.5M"]
    for highest in (1, 3, 7, 99, 12345, 5 * 10**9):
        scale = scales.linear(highest)
        assert scale.high >= highest and 2 <= len(scale.ticks) <= 6 and all(tick == int(tick) for tick in scale.ticks)
    for length in (SECOND // 10, SECOND, 600 * SECOND, 86400 * SECOND, 400 * 86400 * SECOND, 10**19):
        assert 1 <= len(scales.time_ticks(START, START + length)) <= 7


# -- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"since": "yesterday"}, "since: 'yesterday' is not a time"),
        ({"until": "12:00"}, "until"),
        ({"since": "2026-01-02", "until": "2026-01-01"}, "until is not after since"),
        ({"bucket": "often"}, "bucket"),
        ({"bucket": 0}, "too short"),
        ({"bucket": 0.002}, "more than a page can show"),
        ({"engine": "flink"}, "flink"),
        ({"to": "s3://bucket/page.html"}, "disk"),
        ({"to": ""}, "names no file"),
    ],
)
def test_bad_options_are_told_before_anything_is_written(
    data: Path, tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadOption, match=re.escape(words)):
        report(str(data), **{"to": str(tmp_path / "page.html"), **options})
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_ours_and_places_that_cannot_be(data: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadOption, match="no folder of lamina's"):
        report(str(tmp_path / "empty"), str(tmp_path / "page.html"))
    with pytest.raises(DiskError, match="missing"):
        report(str(tmp_path / "missing"), str(tmp_path / "page.html"))
    with pytest.raises(DiskError, match="the report cannot be written"):
        report(str(data), str(tmp_path / "nowhere" / "page.html"))
    with pytest.raises(BadOption, match="is a folder"):
        report(str(data), str(tmp_path))
    with pytest.raises(BadOption, match="in the data folder itself"):
        report(str(data), str(data / "page.html"))
    assert os.listdir(tmp_path) == ["empty"]


def test_an_old_page_stays_when_the_new_one_fails_and_leftovers_go(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    (tmp_path / "page.html.new").write_text("left by a crash")
    from lamina.pipeline.jobs import report as module

    def fail(*anything: object) -> str:
        raise StorageError("it went wrong")

    with monkeypatch.context() as patch:
        patch.setattr(module, "page", fail)
        with pytest.raises(StorageError, match="it went wrong"):
            report(str(data), str(page))
    assert page.read_text() == "old"
    report(str(data), str(page))
    assert page.read_text().startswith("<!doctype html>") and os.listdir(tmp_path) == ["page.html"]


def test_files_that_a_server_merges_meanwhile_are_read_anew(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def merged(measure: Callable[[facts.Task], Part], times: int) -> Callable[[facts.Task], Part]:
        def one(task: facts.Task) -> Part:
            calls.append(task)
            if len(calls) <= times:
                raise StorageError("was merged into another file while it was read")
            return measure(task)

        return one

    before = gathered(data)
    measure = facts.measure
    monkeypatch.setattr(facts, "measure", merged(measure, 2))
    assert gathered(data).tally == before.tally
    calls.clear()
    monkeypatch.setattr(facts, "measure", merged(measure, 99))
    with pytest.raises(StorageError, match="merged"):
        gathered(data)


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_tells_what_it_did(data: Path, tmp_path: Path) -> None:
    to = str(tmp_path / "page.html")
    shown = CliRunner().invoke(command, ["--data", str(data), "--to", to, "--json"])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.output)
    assert found["path"] == to and found["totals"]["jobs.added"] == 3
    assert set(found) == set(ReportSummary.__dataclass_fields__)
    shown = CliRunner().invoke(command, ["--data", str(data), "--to", to, "--bucket", "5s"])
    assert shown.exit_code == 0 and "overview, jobs, topics, queues, store, logs" in shown.output
    failed = CliRunner().invoke(command, ["--data", str(data), "--to", to, "--since", "soon"])
    assert failed.exit_code != 0 and isinstance(failed.exception, BadOption)
