"""The benchmarks run and write what they promise. Their figures are not looked at: a test machine is busy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bench import topic_servers
from bench.aggressor import Client
from bench.bystander import spread
from bench.bystander_data import DATA
from bench.families import FAMILIES, Lane
from bench.queue_driver import QueueLane
from bench.queue_folder import body_of, sends_and_syncs
from bench.topic_servers import Server, Wrong, command
from integration import redis_peer
from lamina.engines.queues.opening import open_engine
from lamina.log import ALWAYS, Log, LogOptions

ROOT = Path(__file__).parents[2]


def bench(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench", *words], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def bench_rows(folder: Path, *cases: str) -> dict[str, dict[str, Any]]:
    """Run cases tiny. Nothing stays of them on the disk."""
    out, files = folder / "out.json", folder / "files"
    bench("--scale", "0.001", "--dir", str(files), "--json", str(out), *(f"--case={case}" for case in cases))
    assert list(files.iterdir()) == []
    return {row["case"]: row for row in json.loads(out.read_text())}


def test_json_has_a_row_for_each_case(tmp_path: Path) -> None:
    out, files = tmp_path / "out.json", tmp_path / "files"
    words = ["--case", "append_100B_x1000_os", "--case", "scan_200B"]

    shown = bench("--scale", "0.01", "--dir", str(files), "--json", str(out), *words)

    rows = json.loads(out.read_text())
    assert [row["case"] for row in rows] == ["append_100B_x1000_os", "scan_200B"]
    for row in rows:
        assert isinstance(row["unit"], str)
        assert all(row[key] > 0 for key in ("ours", "base", "ratio"))
    assert shown == ""
    assert list(files.iterdir()) == []


def test_list_names_every_case_without_running_any() -> None:
    names = [line.split()[0] for line in bench("--list").splitlines()]

    assert {"append_1KiB_x10_always", "scan_200B_memory", "group_commit_64", "open_killed_4GB", "asof_4GB"} <= set(
        names
    )
    assert len(names) == len(set(names))


def test_compare_flags_what_changed_by_more_than_a_tenth(tmp_path: Path) -> None:
    before, after = tmp_path / "a.json", tmp_path / "b.json"
    before.write_text(json.dumps([{"case": "same", "ratio": 0.50}, {"case": "slower", "ratio": 0.50}]))
    after.write_text(json.dumps([{"case": "same", "ratio": 0.52}, {"case": "slower", "ratio": 0.40}]))

    same, slower = bench("compare", str(before), str(after)).splitlines()[1:]

    assert "WORSE" not in same
    assert "WORSE" in slower


@pytest.mark.skipif(redis_peer.PROGRAM is None, reason=redis_peer.MISSING)
def test_topics_are_compared_with_a_redis(tmp_path: Path) -> None:
    out, files = tmp_path / "out.json", tmp_path / "files"
    cases = ["topics_xadd_always_P16", "topics_fan_out_200", "topics_xread_files", "topics_restart_2GB_redis"]

    bench("--scale", "0.001", "--dir", str(files), "--json", str(out), *(f"--case={case}" for case in cases))

    rows = {row["case"]: row for row in json.loads(out.read_text())}
    assert list(rows) == cases
    assert all(row["ratio"] > 0 for row in rows.values())
    assert rows["topics_xadd_always_P16"]["bare fdatasync us"] > 0
    assert rows["topics_xread_files"]["entries"] % 1000 == 0
    assert list(files.iterdir()) == []


@pytest.mark.skipif(redis_peer.PROGRAM is None, reason=redis_peer.MISSING)
def test_queues_are_compared_with_lists_of_a_redis(tmp_path: Path) -> None:
    cases = ["queues_throughput", "queues_throughput_journal"]

    rows = bench_rows(tmp_path, *cases)

    assert list(rows) == cases
    assert all(row["ratio"] > 0 and 0 < row["driver busy"] < 1 for row in rows.values())


def test_queues_are_dumped_at_three_sizes(tmp_path: Path) -> None:
    rows = bench_rows(tmp_path, "queues_dump")

    found = rows["queues_dump_wait"]
    assert list(rows) == ["queues_dump_wait", "queues_dump_growth", "queues_dump_pause", "queues_dump_length"]
    assert [found[size]["queues"] / found["1x"]["queues"] for size in ("1x", "4x", "16x")] == [1, 4, 16]
    assert all(0 <= found[size]["worst wait at"] < 1 for size in ("1x", "4x", "16x"))
    for figure in ("longest wait ms", "without a dump ms", "pause ms", "dump s"):
        assert all(found[size][figure]["worst"] >= found[size][figure]["median"] > 0 for size in ("1x", "4x", "16x"))


def test_queues_are_restored_and_served_as_journals(tmp_path: Path) -> None:
    rows = bench_rows(tmp_path, "queues_restore", "queues_scale", "queues_always_64")

    restored, scale = rows["queues_restore"], rows["queues_scale_send"]
    assert restored["records"] == restored["queues"] + restored["messages"] + 1
    assert restored["peak MiB"] > restored["growth MiB"]
    assert scale["few"]["active"] == scale["all"]["active"] == 100
    assert scale["all"]["files"] > scale["empty"]["files"]
    assert rows["queues_always_64"]["ours"] >= 1


def test_the_syncs_that_are_counted_in_a_log_are_those_that_its_writer_did(tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "queues"), log=LogOptions(sync=ALWAYS))
    queue, position = engine.create()
    engine.settle(position)
    assert isinstance(engine.log, Log)
    before = engine.log.stats.syncs
    for together in (1, 2, 3):
        positions = [engine.send(queue, b"message")[1] for _ in range(together)]
        engine.settle(positions[-1])
    syncs = engine.log.stats.syncs - before

    found = sends_and_syncs(str(tmp_path))
    engine.close()

    assert found == (6, syncs)


def test_a_message_that_is_not_the_one_sent_is_noticed() -> None:
    rid, sid, id = b"r" * 32, b"s" * 32, b"$32\r\n" + b"i" * 32 + b"\r\n"
    lane = QueueLane((rid, sid), first=0, turns=1)
    shown = [b"*4\r\n%b:1700000000\r\n$0\r\n\r\n$100\r\n%b\r\n" % (id, body_of(n)) for n in range(16)]

    lane.answered(id * 16)
    lane.answered(b"".join([*shown[:2], shown[3], shown[2], *shown[4:]]) + b"+OK\r\n")

    with pytest.raises(Wrong, match="message 2 came as"):
        lane.check()


def refused(server: Server, name: str, *, is_fresh: bool) -> bytes:
    """The first error among the answers to a few turns of a family; nothing if there is none."""
    family, entries = FAMILIES[name], 1000
    port = server.workq if family.is_workq else server.address[1]
    assert port is not None
    if is_fresh:
        with Client(server.address[1]) as to:
            to.say(command("FLUSHALL"))
        with Client(port, is_workq=family.is_workq) as to:
            DATA[family.data](to, entries)
            if to.error:
                return to.error
    for number in range(family.connections):
        with Client(port, is_workq=family.is_workq) as to:
            turns = family.turns(to, Lane(number, family.connections, entries, server.address[1]))
            done = len(list(islice(turns, 2)))
            turns.close()
            if to.error or not (done or number):
                return to.error or b"it says nothing"
    return b""


def test_every_family_of_commands_is_legal(tmp_path: Path) -> None:
    once = {"store", "jobs"}  # FLUSHALL leaves these as they are
    seen: set[str] = set()
    found: dict[str, bytes] = {}
    with topic_servers.lamina(str(tmp_path / "data"), "os", "--workq", "127.0.0.1:0", "--http", "off") as server:
        for name, family in FAMILIES.items():
            if error := refused(server, name, is_fresh=not {family.data} & once & seen):
                found[name] = error
            seen.add(family.data)

    assert found == {}


@pytest.mark.skipif(redis_peer.PROGRAM is None, reason=redis_peer.MISSING)
def test_every_family_of_commands_that_redis_has_is_legal_there(tmp_path: Path) -> None:
    with topic_servers.redis(str(tmp_path / "data"), "os") as server:
        found = {name: refused(server, name, is_fresh=True) for name, family in FAMILIES.items() if family.in_redis}

    assert {name: error for name, error in found.items() if error} == {}


def test_a_bystander_is_measured_beside_others_and_on_a_slow_disk(tmp_path: Path) -> None:
    slow, journal = "bystander_xinfo_full_slow_disk", "bystander_q_journal"

    rows = bench_rows(tmp_path, slow, journal)

    assert set(rows) == {slow, journal}
    for row in rows.values():
        assert row["base"] >= 5.0
        assert row["lamina"]["commands"] and not row["lamina"]["error"]
        assert all(row["lamina"][what]["count"] for what in ("idle", "ping", "late", "control"))
    assert rows[slow]["lamina"]["add"]["p50"] >= 20  # an entry is answered when it is synced


@pytest.mark.skipif(redis_peer.PROGRAM is None, reason=redis_peer.MISSING)
def test_what_is_left_of_a_topic_is_compared_with_a_redis(tmp_path: Path) -> None:
    rows = bench_rows(tmp_path, "usual_queue", "sparse_pending")

    assert {"usual_queue_xrange_one", "sparse_pending_xautoclaim"} <= set(rows)
    assert all(row["ours"] > 0 and row["base"] > 0 for row in rows.values())


def test_memory_is_measured_while_clients_do_not_read(tmp_path: Path) -> None:
    rows = bench_rows(tmp_path, "large_replies")

    found = rows["large_replies_memory"]["lamina"]
    assert list(rows) == ["large_replies_memory", "large_replies_ping"]
    assert found["asked"] == 100 and not found["stopped"]
    assert found["ping"]["count"] and found["seconds to read one"] > 0


def test_a_wait_counts_for_all_that_would_have_been_sent_meanwhile() -> None:
    quick = [(at * 0.01, 0.001) for at in range(50)]
    stalled = [*quick, (0.5, 0.3), *((0.8 + at * 0.01, 0.001) for at in range(20))]

    found = spread(stalled, 0.0, 1.0, every=0.01)

    assert found["count"] == 100
    assert found["p50"] == pytest.approx(1.0)
    assert found["max"] == pytest.approx(300)
    assert found["p99"] == pytest.approx(300)


def test_what_needs_a_redis_is_skipped_with_a_line_where_there_is_none(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = ["--case", "topics_xadd", "--dir", str(tmp_path / "files"), "--json", str(out)]

    done = subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )

    lines = done.stderr.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) == 4
    assert all("skipped, needs redis-server" in line for line in lines)
    assert json.loads(out.read_text()) == []
