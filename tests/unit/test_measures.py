"""What is measured: against known traffic through real engines, as Prometheus reads it, bounded, and over a restart."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from http_lab import HttpLab
from integration.workq_server import add
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.queues.deliveries import Deliveries, Receiver
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.engines.store.api import Store
from lamina.engines.topics.ids import FIRST
from lamina.engines.topics.topics import Topics
from lamina.log.measured import DISK_BOUNDS, WAIT_BOUNDS, Measured, Spread
from lamina.log.options import LogOptions
from lamina.log.sync import ALWAYS, OS
from lamina.log.writer import Log
from lamina.server import measures
from lamina.server.http.metrics_route import render, wants_openmetrics
from lamina.server.inside import Inside
from lamina.server.life import Life
from lamina.server.measures.families import MOST_NAMES, OTHER, Family
from lamina.server.measures.names import METRICS
from lamina.server.measures.room import RoomLook
from lamina.server.measures.totals import Busiest, Totals
from lamina.server.refusals import Refusals
from lamina.server.security.gate import Gate

MEMORY = LogOptions(sync=OS)
Values = dict[tuple[str, ...], float]


class Server:
    """Engines of a server without its doors."""

    def __init__(self, folder: Path, queues: str = "memory") -> None:
        self.inside = Inside(Life(), Gate(), data=str(folder))
        self.jobs = self.inside.jobs = JobEngine.open(str(folder / "jobs"), options=MEMORY)
        self.topics = self.inside.topics = Topics.open(str(folder / "topics"), options=LogOptions(sync=ALWAYS))
        options = QueueOptions(store=queues)
        self.queues = open_engine(str(folder / "queues"), options=options, log=LogOptions(sync=ALWAYS))
        self.deliveries = self.inside.queues = Deliveries(self.queues)
        self.store = Store.open(str(folder / "store"))
        self.inside.find_store = lambda: self.store
        self.inside.life.ready()
        self.measures = measures.of(self.inside)
        self.measures.look.share = math.inf  # whoever looks sees what is so now

    def close(self) -> None:
        for each in (self.store, self.queues, self.topics, self.jobs):
            each.close()

    def add(self, queue: str, max_fails: int = 0) -> bytes:
        id = uuid.uuid4().bytes
        self.jobs.settle(self.jobs.add(id, queue, 60_000, 3_600_000, b"work", max_fails=max_fails))
        return id

    def values(self) -> dict[str, Values]:
        return {family.metric.name: family.values for family in self.measures.families()}

    def value(self, name: str, *labels: str) -> float:
        return self.values()[name][labels]

    def spread(self, name: str, *labels: str) -> Spread:
        return next(one.spreads[labels] for one in self.measures.families() if one.metric.name == name)


@contextmanager
def served(folder: Path, queues: str = "memory") -> Iterator[Server]:
    with closing(Server(folder, queues)) as server:
        yield server


# -- known traffic -----------------------------------------------------------------------------------------------------


def test_jobs_are_counted_as_they_go(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        ids = [server.add("mail", max_fails=2) for _ in range(6)]
        server.add("print")
        jobs, _ = server.jobs.lease(["mail"], 4)
        assert [job.id for job in jobs] == ids[:4]
        server.jobs.complete(ids[0], b"")
        server.jobs.fail(ids[1], b"no")  # it may fail once more
        server.jobs.fail(ids[2], b"no", for_good=True)
        server.jobs.release(ids[3])
        again, position = server.jobs.lease(["mail"], 2)
        assert {job.id for job in again} == {ids[1], ids[3]}
        server.jobs.settle(position)

        values = server.values()
        states = {state: count for (queue, state), count in values["lamina_jobs"].items() if queue == "mail"}
        assert states == {"ready": 2, "scheduled": 0, "leased": 2, "completed": 1, "failed": 1}
        for name, expected in {
            "added": 6,
            "leased": 6,
            "redelivered": 2,
            "completed": 1,
            "failed": 2,
            "dead": 1,
            "timed_out": 0,
        }.items():
            assert values[f"lamina_jobs_{name}_total"]["mail",] == expected, name
        assert values["lamina_jobs_added_total"]["print",] == 1
        assert values["lamina_jobs_oldest_ready_seconds"]["mail",] > 0
        waits = server.spread("lamina_jobs_queue_seconds")
        assert waits.count == 6
        assert waits.total == pytest.approx(values["lamina_jobs_waited_seconds_total"]["mail",])
        vitals = measures.vitals(server.inside)
        assert (vitals["jobs.added"], vitals["jobs.ready"], vitals["jobs.working"], vitals["jobs.dead"]) == (7, 3, 2, 1)


def test_a_lease_whose_time_has_passed_counts_and_so_does_the_job_that_dies_of_it(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        id = uuid.uuid4().bytes
        server.jobs.add(id, "short", 1, 3_600_000, b"", max_attempts=1)
        server.jobs.lease(["short"])
        while server.jobs.job(id).state != 2:  # failed, when its millisecond is over
            server.jobs.tick()
        values = server.values()
        assert values["lamina_jobs_timed_out_total"]["short",] == values["lamina_jobs_dead_total"]["short",] == 1
        assert measures.vitals(server.inside)["jobs.failed"] == 1


def test_what_is_counted_of_jobs_stays_when_the_state_is_built_anew(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        server.add("mail")
        server.jobs.rebuild()
        assert server.value("lamina_jobs_added_total", "mail") == 1
        server.add("mail")
        assert server.value("lamina_jobs_added_total", "mail") == 2


def test_topics_and_groups_are_counted_as_they_go(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        topic = server.topics.get_or_make(b"news")
        for _ in range(5):
            topic.settle(topic.add([b"a", b"b"])[1])
        topic.groups.create(b"readers", FIRST)
        topic.groups.deliver(b"readers", b"ann", 2)
        topic.groups.history(b"readers", b"ann", FIRST)
        topic.read(FIRST)
        values = server.values()
        assert values["lamina_topic_added_total"]["news",] == 5
        assert values["lamina_topic_delivered_total"]["news",] == 2
        assert values["lamina_topic_redelivered_total"]["news",] == 2
        assert values["lamina_topic_read_total"]["news",] == 2 + 2 + 5
        assert values["lamina_group_lag_entries"]["news", "readers"] == 3
        assert values["lamina_group_lag_seconds"]["news", "readers"] > 0
        assert values["lamina_group_pending_entries"]["news", "readers"] == 2
        assert values["lamina_topic_entries"]["news",] == 5
        topic.groups.deliver(b"readers", b"ann")
        values = server.values()
        assert values["lamina_group_lag_entries"]["news", "readers"] == 0
        assert values["lamina_group_lag_seconds"]["news", "readers"] == 0


def test_a_group_behind_what_is_in_memory_is_as_old_as_the_first_entry_it_has_not_read(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        first = server.topics.get_or_make(b"news")
        entry = b"x" * 40_000
        for _ in range(20):  # more than is kept in memory
            first.settle(first.add([b"a", entry])[1])
        first.groups.create(b"slow", FIRST)
        seen = measures.vitals(server.inside)
        assert seen["topics.lag"] == 20
        assert 0 < seen["topics.lag_s"] < 3600
        first.delete([first.first_id() or FIRST])  # from here on its lag has to be worked out
        assert server.value("lamina_group_lag_entries", "news", "slow") == 19


def test_a_topic_that_is_deleted_and_made_again_goes_on_counting(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        for expected in (1, 2):
            topic = server.topics.get_or_make(b"news")
            topic.settle(topic.add([b"a", b"b"])[1])
            assert server.value("lamina_topic_added_total", "news") == expected
            server.topics.delete(b"news")
            assert measures.vitals(server.inside)["topics.added"] == expected


@pytest.mark.parametrize("store", ["memory", "journal"])
def test_messages_are_counted_as_they_go(tmp_path: Path, store: str) -> None:
    with served(tmp_path, store) as server:
        engine, receiver = server.queues, Receiver(lambda what, rid, message: None)
        queue, position = engine.create()
        engine.settle(position)
        for _ in range(3):
            engine.keeper.settle(engine.send(queue, b"12345")[1])
        given = server.deliveries.get(receiver, queue)
        assert given is not None and server.deliveries.get(receiver, queue) is not None
        _, position = server.deliveries.acknowledge(receiver, queue, given.id)
        engine.keeper.settle(position)
        values = server.values()
        found = {name: values[f"lamina_queues_{name}_total"][()] for name in ("sent", "sent_bytes", "acknowledged")}
        assert found == {"sent": 3, "sent_bytes": 15, "acknowledged": 1}
        assert values["lamina_queues_delivered_total"][()] == 2
        assert values["lamina_queues_redelivered_total"][()] == 1
        assert values["lamina_queues_messages"][()] == 2
        assert values["lamina_queues_oldest_seconds"][()] >= 0
        assert server.spread("lamina_queues_queue_seconds").count == 1
        assert values["lamina_log_appends_total"]["queues",] >= 4
        assert server.spread("lamina_log_sync_seconds", "queues").count >= 4


def test_the_store_and_its_compactions_are_counted(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        for round in range(2):
            with server.store.session() as session:
                for key in range(10):
                    session.put(1, b"%d" % key, b"value %d" % round)
            server.store.wait_durable(session.epoch)
        server.store.compact()
        server.store.clean_up()
        values = server.values()
        assert values["lamina_store_written_entries_total"][()] == 20
        assert values["lamina_store_written_sessions_total"][()] == 2
        assert values["lamina_store_epoch"][()] == server.store.last_epoch
        assert values["lamina_cleaning_runs_total"]["store", "compaction"] == 1
        assert values["lamina_cleaning_runs_total"]["store", "clean"] == 1
        assert values["lamina_cleaning_freed_bytes_total"]["store", "clean"] > 0
        assert values["lamina_log_appends_total"]["store",] >= 24  # entries, and the marks around them
        assert values["lamina_segments"]["store", "compacted"] >= 1


# -- logs --------------------------------------------------------------------------------------------------------------


def test_a_log_says_how_long_writes_and_syncs_took_and_what_is_not_synced(tmp_path: Path) -> None:
    with Log.open(str(tmp_path), options=MEMORY, threaded=False) as log:
        measured, now = log.stats.measured, log._clock.monotonic
        log.append_many([b"a", b"b"])
        assert measured.unsynced_s(now()) == 0  # nothing is written yet
        log.run_round()
        assert (measured.records, measured.bytes) == (2, log.stats.bytes)
        assert (measured.writes.count, measured.syncs.count) == (1, 0)
        assert measured.unsynced_s(now() + 5) >= 5
        log.rotate()
        assert measured.syncs.count == 1 and measured.syncs.total > 0
        assert measured.unsynced_s(now() + 5) == 0
        assert 0 < measured.slow_sync_s(now()) == measured.syncs.total
        assert measured.slow_sync_s(now() + 100) == 0  # that was more than a minute ago


def test_logs_that_share_a_measure_are_counted_together(tmp_path: Path) -> None:
    shared = Measured()
    for name in ("a", "b"):
        with Log.open(str(tmp_path / name), threaded=False) as log:
            log.append(b"before", until=None)
            log.run_round()
            log.stats.measure_with(shared)
            log.append(b"behind", until=None)
            log.run_round()
    assert shared.records == 4
    assert shared.unsynced_s(1e9) == 0  # they are closed


def test_a_spread_puts_each_value_into_one_bucket() -> None:
    spread = Spread((1.0, 2.0, 5.0))
    for value in (0.5, 1.0, 1.5, 2.0, 6.0, -3.0):
        spread.note(value)
    assert spread.counts == [3, 2, 0, 1]
    assert spread.cumulative() == [3, 5, 5, 6]
    assert spread.count == 6
    assert spread.total == pytest.approx(11.0)


@pytest.mark.parametrize("bounds", [DISK_BOUNDS, WAIT_BOUNDS])
def test_bounds_rise(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))


def test_the_room_of_a_folder_is_what_its_files_take(tmp_path: Path) -> None:
    from lamina.log import consumers
    from lamina.log.files.real import RealFiles

    for name, size in {"000000001.log": 10, "000000002.log": 20, "checkpoint": 5}.items():
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "000000001.log.torn-20260101T000000.000000000Z").write_bytes(b"xyz")
    room = RoomLook(str(tmp_path), lambda: 0).get()
    assert room.bytes == 38
    assert room.files == {"active": 1, "sealed": 1, "set_aside": 1}
    assert room.file_bytes == {"active": 20, "sealed": 10, "set_aside": 3}
    assert room.pinned_bytes == 0
    consumers.save(RealFiles(), str(tmp_path), "exports", 1, 1 << 62)
    assert RoomLook(str(tmp_path), lambda: 2).get().pinned_bytes == 10
    assert RoomLook(str(tmp_path / "gone"), lambda: 0).get().bytes == 0


# -- as Prometheus reads it --------------------------------------------------------------------------------------------


def check(text: str) -> None:
    """As ``promtool check metrics`` does, and some of our own rules."""
    lines = text.splitlines()
    series = [line.rpartition(" ")[0] for line in lines if line and not line.startswith("#")]
    assert len(series) == len(set(series)), "a series is there twice"
    helps = [line.split(" ", 3) for line in lines if line.startswith("# HELP ")]
    types = dict(line.split(" ")[2:4] for line in lines if line.startswith("# TYPE "))
    assert [name for _, _, name, _ in helps] == list(types) and len(set(types)) == len(types)
    for _, _, name, text in helps:
        kind = types[name]
        assert re.fullmatch(r"lamina(_[a-z]+)+", name), name
        assert text.endswith(".") and len(text) > 15, name
        assert name.endswith("_total") == (kind == "counter"), name
        assert not re.search(r"_(count|sum|bucket|gauge|counter|histogram|ms|ns|millis|kb|mb|minutes|percent)\b", name)
        for unit in ("seconds", "bytes", "ratio"):  # last, but for _total
            assert unit not in name.removesuffix("_total").split("_")[:-1], name
        assert kind != "histogram" or name.endswith("_seconds")
    for one in series:
        name = one.partition("{")[0]
        assert name in types or name.rpartition("_")[0] in types, name


def test_what_is_exposed_is_as_prometheus_wants_it(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        server.add('strange "name"\\of\na queue')
        topic = server.topics.get_or_make(b"\xff\x00binary")
        topic.settle(topic.add([b"a", b"b"])[1])
        families = server.measures.families()
        text = render(families).decode()
        check(text)
        parsed = {one.name: one for one in parse_plain(text)}
        opened = {one.name: one for one in parse_open(render(families, is_open=True).decode())}  # type: ignore[no-untyped-call]
        assert parsed.keys() == opened.keys()
        queues = {sample.labels["queue"] for sample in parsed["lamina_jobs_added"].samples}
        assert queues == {'strange "name"\\of\na queue'}
        for family in families:
            if family.metric.kind == "histogram":
                _check_histogram(family, parsed[family.metric.name].samples)


def _check_histogram(family: Family, samples: object) -> None:
    assert isinstance(samples, list)
    for labels, spread in family.spreads.items():
        own = dict(zip(family.metric.labels, labels, strict=True))
        mine = [one for one in samples if own.items() <= one.labels.items()]
        buckets = [one.value for one in mine if one.name.endswith("_bucket")]
        assert buckets == sorted(buckets) and len(buckets) == len(spread.bounds) + 1
        counts = {one.name.rpartition("_")[2]: one.value for one in mine}
        assert counts["count"] == buckets[-1] == spread.count and counts["sum"] == pytest.approx(spread.total)


def test_every_name_and_help_is_as_it_should_be() -> None:
    check("\n".join(f"# HELP {one.name} {one.help}\n# TYPE {one.name} {one.kind}" for one in METRICS))
    for metric in METRICS:
        assert not {"le", "id", "key", "rid", "sid", "address"} & set(metric.labels)


def test_no_id_of_a_queue_or_a_job_is_in_any_label(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        id = server.add("mail")
        queue, _ = server.queues.create()
        server.queues.send(queue, b"secret")
        text = render(server.measures.families())
        for secret in (queue.rid, queue.sid, id):
            assert secret.hex().encode() not in text and secret not in text


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("text/plain", False),
        ("", False),
        ("application/openmetrics-text; q=0, text/plain", False),
        ("application/openmetrics-text;version=nonsense", True),
        (",;,=", False),
    ],
)
def test_who_asks_for_openmetrics_gets_it(accept: str, is_open: bool) -> None:
    assert wants_openmetrics(accept) == is_open


# -- bounded -----------------------------------------------------------------------------------------------------------


def test_thousands_of_queues_and_topics_have_a_bounded_number_of_series(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        for number in range(3000):
            server.jobs.add(uuid.uuid4().bytes, f"queue {number}", 1000, 10**6, b"")
        for _ in range(5):
            server.add("busy")
        for number in range(60):
            topic = server.topics.get_or_make(b"topic %d" % number)
            topic.add([b"a", b"b"])
            topic.groups.create(b"g", FIRST)
        values = server.values()
        added = values["lamina_jobs_added_total"]
        assert len(added) == MOST_NAMES + 1
        assert added["busy",] == 5
        assert sum(added.values()) == 3005
        assert added[OTHER,] == 3005 - 5 - (MOST_NAMES - 1)
        assert sum(value for (_, state), value in values["lamina_jobs"].items() if state == "ready") == 3005
        lags = values["lamina_group_lag_entries"]
        assert len(lags) == MOST_NAMES + 1
        assert sum(lags.values()) == 60 and lags[OTHER, OTHER] == 10
        assert sum(values["lamina_topic_entries"].values()) == 60
        assert len(render(server.measures.families()).splitlines()) < 2500


def test_a_total_of_all_others_never_falls_when_one_of_them_becomes_busy() -> None:
    metrics = tuple(one for one in METRICS if one.name in ("lamina_jobs_added_total", "lamina_jobs_leased_total"))
    totals = Totals()
    busiest = Busiest(totals, metrics, most=2)
    busiest.follow({"a": (20, 0), "b": (9, 0), "c": (8, 0)})
    assert busiest.values(0) == {"a": 20, "b": 9, OTHER: 8}
    busiest.follow({"a": (20, 0), "b": (9, 0), "c": (50, 0)})
    assert busiest.names == ["c", "a"]
    assert busiest.values(0) == {"c": 42, "a": 20, OTHER: 8}  # what c did before it had a place stays with the others
    busiest.follow({"a": (20, 0), "b": (11, 0), "c": (50, 0)})
    assert busiest.values(0) == {"c": 42, "a": 20, OTHER: 10}
    for number in range(100):
        busiest.follow({f"{number}": (1000 * number, 0)})
    assert len(totals.by_key) <= 2 * (2 * 2 + 1)


# -- over a restart ----------------------------------------------------------------------------------------------------


def test_counters_go_on_after_a_restart(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        for _ in range(3):
            server.add("mail")
        server.jobs.lease(["mail"], 2)
        before, waits = server.measures.counters(), server.spread("lamina_jobs_queue_seconds")
        appends = server.value("lamina_log_appends_total", "jobs")
    with served(tmp_path) as server:
        assert server.value("lamina_jobs_added_total", "mail") == 0
        server.measures.continue_from(before)
        server.add("mail")
        assert server.value("lamina_jobs_added_total", "mail") == 4
        assert server.value("lamina_log_appends_total", "jobs") == appends + 1
        server.jobs.lease(["mail"], 1)
        after = server.spread("lamina_jobs_queue_seconds")
        assert after.count == waits.count + 1 == 3 and after.total > waits.total
        assert server.value("lamina_jobs", "mail", "ready") == 1  # what is there is not counted on
        now = server.measures.counters()
        assert all(now[key] >= value for key, value in before.items())


def test_a_count_that_begins_anew_is_added() -> None:
    totals = Totals()
    totals.continue_from({"a": 100.0})
    assert [totals.follow("a", raw) for raw in (5, 7, 7, 2, 3)] == [105, 107, 107, 109, 110]


def test_while_the_engines_are_restored_there_are_no_counters(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        server.inside.life = Life()
        early = measures.Measures(server.inside)
        early.look.share = math.inf
        assert {family.metric.kind for family in early.families()} == {"gauge"}
        with server.inside.life.restoring("jobs") as told:
            told(1, 4)
            values = {family.metric.name: family.values for family in early.families()}
            assert values["lamina_recovery_phase"]["jobs", "restoring"] == 1
            assert values["lamina_recovery_ratio"][()] == 0.25
            assert values["lamina_ready"][()] == 0


# -- the route, and the doors ------------------------------------------------------------------------------------------


def test_the_route_shows_what_doors_did_and_notes_it_for_the_next_run(tmp_path: Path) -> None:
    with HttpLab(tmp_path) as lab:
        measures.of(lab.inside).look.share = math.inf
        lab.workq.ask(add(1, "mail"))
        assert lab.redis("XADD", "news", "*", "a", "b")
        with pytest.raises(Exception, match="unknown command"):
            raise_error(lab.redis("NONSENSE"))
        answer = lab.request("GET", "/metrics")
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        check(answer.text)
        for line in (
            'lamina_jobs_added_total{queue="mail"} 1.0',
            'lamina_topic_added_total{topic="news"} 1.0',
            'lamina_connections{door="resp"} 1.0',
            'lamina_connections_accepted_total{door="workq"} 1.0',
            'lamina_refusals_total{door="resp",reason="bad_request"} 1.0',
            "lamina_ready 1.0",
            'lamina_log_failed{engine="jobs"} 0.0',
        ):
            assert line in answer.text.splitlines(), line
        lab.restart()
        measures.of(lab.inside).look.share = math.inf
        lab.workq.ask(add(2, "mail"))
        lines = lab.request("GET", "/metrics").text.splitlines()
        assert 'lamina_jobs_added_total{queue="mail"} 2.0' in lines


def raise_error(answer: object) -> None:
    if isinstance(answer, Exception):
        raise answer
    raise AssertionError(answer)


def test_the_route_needs_the_right_to_see_the_server(tmp_path: Path) -> None:
    with HttpLab(tmp_path) as lab:
        watcher, worker = lab.user("watcher", "admin:read"), lab.user("worker", "jobs:write")
        statuses = [
            lab.request("GET", "/metrics", headers={"authorization": f"Bearer {token}"} if token else {}).status
            for token in (watcher, worker, "wrong", "")
        ]
        assert statuses == [200, 403, 401, 401]
        headers = {"authorization": f"Bearer {watcher}", "accept": "application/openmetrics-text"}
        answer = lab.request("GET", "/metrics", headers=headers)
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert answer.text.endswith("# EOF\n")
        refused = {
            (one.labels["door"], one.labels["reason"]): one.value
            for family in parse_open(answer.text)  # type: ignore[no-untyped-call]
            if family.name == "lamina_refusals"
            for one in family.samples
        }
        assert refused["http", "not_authenticated"] == 2 and refused["http", "not_allowed"] == 1


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"-ERR unknown command\r\n", "bad_request"),
        (b"-NOAUTH Authentication required.\r\n", "not_authenticated"),
        (b"-WRONGPASS invalid\r\n", "bad_token"),
        (b"-NOPERM this user\r\n", "not_allowed"),
        (b"-MISCONF disk\r\n", "storage"),
        (b"-QUOTA full\r\n", "quota"),
        (b"-NOT-FOUND\r\n", "not_found"),
        (b"-CLIENT-ERROR Invalid Name\r\n", "bad_request"),
        (b"-CLIENT-ERROR Authentication failed\r\n", "bad_token"),
        (b"-CLIENT-ERROR Permission denied\r\n", "not_allowed"),
        (b"-SERVER-ERROR Disk full, nothing was changed, try again\r\n", "storage"),
        (b"-TIMEOUT\r\n", None),
    ],
)
def test_a_refusal_is_counted_by_its_reason(reply: bytes, reason: str | None) -> None:
    refusals = Refusals()
    refusals.said(reply)
    assert refusals.by_reason == ({} if reason is None else {reason: 1})


def test_reasons_are_bounded_whatever_is_said() -> None:
    refusals = Refusals()
    for number in range(1000):
        refusals.said(b"-WORD%d x\r\n" % number)
    assert len(refusals.by_reason) <= 41 and sum(refusals.by_reason.values()) == 1000
