"""The clients people have work unchanged: redis-py, its asyncio side, redis-cli, redis-benchmark, ioredis.

Each does what its users do with streams, and what it got is looked at.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.lamina_server import topic_server
from integration.resp_wire import HOST, OK, Wire

redis = pytest.importorskip("redis", reason="redis-py is not installed")
redis_asyncio = pytest.importorskip("redis.asyncio", reason="redis-py is not installed")

IOREDIS = "5.11.1"
PATIENCE_S = 60
NODE, NPM, CLI, BENCHMARK = (shutil.which(name) for name in ("node", "npm", "redis-cli", "redis-benchmark"))
needs_cli = pytest.mark.skipif(CLI is None, reason="redis-cli is not installed")
needs_benchmark = pytest.mark.skipif(BENCHMARK is None, reason="redis-benchmark is not installed")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with topic_server(tmp_path_factory.mktemp("clients") / "data") as server:
        yield server.port
        assert server.is_alive


@pytest.fixture(autouse=True)
def nothing_there(port: int) -> None:
    with Wire(port) as client:
        assert client.ask("FLUSHALL") == OK


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def client(port: int, request: pytest.FixtureRequest) -> Iterator[Any]:
    with redis.Redis(host=HOST, port=port, protocol=request.param, socket_timeout=PATIENCE_S) as client:
        yield client


def entries_of(reply: Any) -> dict[Any, list[Any]]:
    """XREAD of redis-py: pairs in RESP2; in RESP3 a map, in some versions with one more list around the entries."""
    if not isinstance(reply, dict):
        return {key: list(entries) for key, entries in reply or []}
    return {key: rows[0] if rows and isinstance(rows[0], list) else rows for key, rows in reply.items()}


# -- redis-py ------------------------------------------------------------------------------------------------------


def test_redis_py_writes_and_reads_a_stream(client: Any) -> None:
    assert client.ping()
    first = client.xadd("s", {"a": 1, b"\x00\xff": b"\r\n"}, id="1-1")
    assert first == b"1-1"
    made = client.xadd("s", {"a": "2"})
    assert re.fullmatch(rb"\d{13}-\d+", made)
    assert client.xlen("s") == 2
    assert client.xrange("s") == [(b"1-1", {b"a": b"1", b"\x00\xff": b"\r\n"}), (made, {b"a": b"2"})]
    assert client.xrange("s", min="(1-1") == [(made, {b"a": b"2"})]
    assert client.xrevrange("s", count=1) == [(made, {b"a": b"2"})]
    assert entries_of(client.xread({"s": "1-1", "none": "0"})) == {b"s": [(made, {b"a": b"2"})]}
    assert client.xread({"s": "$"}) in ([], {})
    assert client.xdel("s", made, "9-9") == 1
    assert client.xtrim("s", maxlen=0, approximate=False) == 1
    assert client.xadd("none", {"a": 1}, nomkstream=True) is None
    assert client.exists("s") == 1 and client.type("s") == b"stream"
    assert client.delete("s") == 1 and client.exists("s") == 0


def test_redis_py_gets_the_errors_it_knows(client: Any) -> None:
    client.xgroup_create("s", "g", mkstream=True)
    with pytest.raises(redis.ResponseError, match=r"BUSYGROUP Consumer Group name already exists"):
        client.xgroup_create("s", "g")
    with pytest.raises(redis.ResponseError, match=r"NOGROUP No such key 's' or consumer group 'h'"):
        client.xreadgroup("h", "c", {"s": ">"})
    with pytest.raises(redis.ResponseError, match="wrong number of arguments for 'xadd' command"):
        client.execute_command("XADD", "s")
    with pytest.raises(redis.ResponseError, match="unknown command 'NOPE'"):
        client.execute_command("NOPE")
    assert client.ping()


@pytest.mark.parametrize("transaction", [True, False])
def test_redis_py_pipelines(client: Any, transaction: bool) -> None:
    with client.pipeline(transaction=transaction) as pipe:
        for number in range(1, 501):
            pipe.xadd("s", {"n": number}, id=f"{number}-0")
        pipe.xlen("s")
        pipe.xrange("s", count=2)
        replies = pipe.execute()
    assert replies[:500] == [b"%d-0" % number for number in range(1, 501)]
    assert replies[500:] == [500, [(b"1-0", {b"n": b"1"}), (b"2-0", {b"n": b"2"})]]

    with client.pipeline(transaction=transaction) as pipe:
        pipe.xadd("s", {"n": 0}, id="501-0").xadd("s", {"n": 0}, id="1-0").xlen("s")
        added, refused, length = pipe.execute(raise_on_error=False)
    assert (added, length) == (b"501-0", 501)
    assert isinstance(refused, redis.ResponseError)
    assert "equal or smaller" in str(refused)


def test_redis_py_watches_a_key(client: Any, port: int) -> None:
    """A transaction is run only if nobody touched what it was built on."""
    client.xadd("s", {"n": 1}, id="1-0")
    with redis.Redis(host=HOST, port=port) as other, client.pipeline() as pipe:
        pipe.watch("s")
        other.xadd("s", {"n": 2}, id="2-0")
        pipe.multi()
        pipe.xadd("s", {"n": 3}, id="3-0")
        with pytest.raises(redis.WatchError):
            pipe.execute()
    assert client.xlen("s") == 2

    def add(pipe: Any) -> None:
        pipe.multi()
        pipe.xadd("s", {"n": 3}, id="3-0")

    assert client.transaction(add, "s") == [b"3-0"]
    assert client.xlen("s") == 3


def test_redis_py_pool_is_shared_by_threads(port: int) -> None:
    """All that eight threads add with one pool is there once, each thread's in its order."""
    pool = redis.ConnectionPool(host=HOST, port=port, max_connections=8, socket_timeout=PATIENCE_S)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            client = redis.Redis(connection_pool=pool)
            for step in range(100):
                client.xadd("s", {"by": number, "step": step})
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client = redis.Redis(connection_pool=pool)
    rows = client.xrange("s")
    pool.disconnect()
    assert not failures
    assert len({id for id, _ in rows}) == 800
    for number in range(8):
        assert [int(row[b"step"]) for _, row in rows if int(row[b"by"]) == number] == list(range(100))


def test_redis_py_waits_for_the_next_entry(client: Any, port: int) -> None:
    """Each wait goes on from the last id seen; nothing is missed and nothing comes twice."""
    count = 20

    def write() -> None:
        with redis.Redis(host=HOST, port=port) as writer:
            for number in range(1, count + 1):
                writer.xadd("s", {"n": number}, id=f"{number}-0")

    thread = threading.Thread(target=write)
    thread.start()
    seen: list[int] = []
    last: Any = "0"
    while len(seen) < count:
        for id, row in entries_of(client.xread({"s": last}, block=30_000))[b"s"]:
            seen.append(int(row[b"n"]))
            last = id
    thread.join()
    assert seen == list(range(1, count + 1))
    assert client.xread({"s": last}, block=10) in ([], {})


def test_redis_py_groups_share_work_and_take_over(client: Any) -> None:
    """Two consumers share entries; what one leaves undone the other takes over and finishes."""
    client.xgroup_create("s", "g", id="0", mkstream=True)
    for number in range(1, 7):
        client.xadd("s", {"n": number}, id=f"{number}-0")
    ann = entries_of(client.xreadgroup("g", "ann", {"s": ">"}, count=4))[b"s"]
    bob = entries_of(client.xreadgroup("g", "bob", {"s": ">"}, count=4))[b"s"]
    assert [id for id, _ in ann] == [b"1-0", b"2-0", b"3-0", b"4-0"]
    assert [id for id, _ in bob] == [b"5-0", b"6-0"]
    assert client.xack("s", "g", "1-0", "5-0", "6-0") == 3

    summary = client.xpending("s", "g")
    assert (summary["pending"], summary["min"], summary["max"]) == (3, b"2-0", b"4-0")
    assert summary["consumers"] == [{"name": b"ann", "pending": 3}]
    history = entries_of(client.xreadgroup("g", "ann", {"s": "0"}))[b"s"]
    assert [id for id, _ in history] == [b"2-0", b"3-0", b"4-0"]

    client.xdel("s", "3-0")
    cursor, taken, gone = client.xautoclaim("s", "g", "bob", min_idle_time=0, start_id="0-0", count=10)
    assert (cursor, gone) == (b"0-0", [b"3-0"])
    assert taken == [(b"2-0", {b"n": b"2"}), (b"4-0", {b"n": b"4"})]
    rows = client.xpending_range("s", "g", min="-", max="+", count=10)
    assert [(row["message_id"], row["consumer"], row["times_delivered"]) for row in rows] == [
        (b"2-0", b"bob", 3),
        (b"4-0", b"bob", 3),
    ]
    assert client.xclaim("s", "g", "ann", 0, ["2-0"], justid=True) == [b"2-0"]
    assert client.xack("s", "g", "2-0", "4-0") == 2

    (group,) = client.xinfo_groups("s")
    assert (group["name"], group["consumers"], group["pending"], group["last-delivered-id"]) == (b"g", 2, 0, b"6-0")
    assert (group["entries-read"], group["lag"]) == (6, 0)
    assert {row["name"]: row["pending"] for row in client.xinfo_consumers("s", "g")} == {b"ann": 0, b"bob": 0}
    stream = client.xinfo_stream("s")
    assert (stream["length"], stream["groups"], stream["last-generated-id"]) == (5, 1, b"6-0")
    assert stream["first-entry"] == (b"1-0", {b"n": b"1"})
    assert client.xinfo_stream("s", full=True)["groups"][0]["pel-count"] == 0
    assert client.xgroup_delconsumer("s", "g", "ann") == 0
    assert client.xgroup_destroy("s", "g") == 1


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_decodes(port: int, protocol: int) -> None:
    with redis.Redis(host=HOST, port=port, protocol=protocol, decode_responses=True) as client:
        assert client.xadd("grüße", {"wörter": "ja"}, id="1-1") == "1-1"
        assert client.xrange("grüße") == [("1-1", {"wörter": "ja"})]
        assert entries_of(client.xread({"grüße": 0})) == {"grüße": [("1-1", {"wörter": "ja"})]}
        assert client.keys("gr*") == ["grüße"]
        assert client.xinfo_stream("grüße")["last-entry"] == ("1-1", {"wörter": "ja"})


def test_redis_py_looks_around(client: Any) -> None:
    """What tools ask when they connect."""
    for number in range(25):
        client.xadd(f"s{number}", {"n": 1})
    assert sorted(client.scan_iter(match="s1*", count=3)) == sorted(b"s%d" % n for n in (1, *range(10, 20)))
    assert client.dbsize() == 25
    assert client.rename("s1", "moved") and client.exists("s1", "moved") == 1
    assert client.client_setname("me") and client.client_getname() in (b"me", "me")
    assert isinstance(client.client_id(), int)
    assert any(row["name"] == "me" for row in client.client_list())
    assert client.info()["redis_version"]
    assert client.config_get("no-such-setting") == {}
    assert client.echo(b"\x00") == b"\x00"
    assert len(client.time()) == 2
    assert client.command_count() > 30
    assert client.select(0)


def test_what_redis_py_was_answered_survives_a_kill(tmp_path: Path) -> None:
    """The client is told that the server is gone; all that was confirmed is there when it is back."""
    never = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    with (
        topic_server(tmp_path / "data", sync="always") as server,
        redis.Redis(host=HOST, port=server.port, retry=never) as client,
    ):
        for number in range(1, 51):
            client.xadd("s", {"n": number}, id=f"{number}-0")
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.xadd("s", {"n": 51}, id="51-0")
    with topic_server(tmp_path / "data", sync="always") as server, redis.Redis(host=HOST, port=server.port) as client:
        assert [id for id, _ in client.xrange("s")] == [b"%d-0" % number for number in range(1, 51)]


# -- redis-py with asyncio -----------------------------------------------------------------------------------------


def test_asyncio_many_tasks_share_a_pool(port: int) -> None:
    async def story() -> None:
        async with redis_asyncio.Redis(host=HOST, port=port, socket_timeout=PATIENCE_S, max_connections=60) as client:

            async def one(number: int) -> list[bytes]:
                return [await client.xadd("s", {"by": number, "step": step}) for step in range(10)]

            made = await asyncio.gather(*map(one, range(50)))
            rows = await client.xrange("s")
            assert sorted(id for ids in made for id in ids) == sorted(id for id, _ in rows)
            assert len(rows) == 500
            for number, ids in enumerate(made):
                assert [id for id, row in rows if int(row[b"by"]) == number] == ids

    asyncio.run(story())


@pytest.mark.parametrize("transaction", [True, False])
@pytest.mark.parametrize("protocol", [2, 3])
def test_asyncio_pipelines(port: int, protocol: int, transaction: bool) -> None:
    async def story() -> None:
        async with redis_asyncio.Redis(host=HOST, port=port, protocol=protocol) as client:
            async with client.pipeline(transaction=transaction) as pipe:
                for number in range(1, 101):
                    pipe.xadd("s", {"n": number}, id=f"{number}-0")
                replies = await pipe.xlen("s").execute()
            assert replies == [*(b"%d-0" % number for number in range(1, 101)), 100]

    asyncio.run(story())


def test_asyncio_a_wait_that_is_cancelled_takes_nothing(port: int) -> None:
    """The client hangs up on a cancelled wait. The entry that comes then goes to the next who asks."""

    async def story() -> None:
        async with redis_asyncio.Redis(host=HOST, port=port, socket_timeout=PATIENCE_S) as client:
            await client.xgroup_create("s", "g", mkstream=True)
            waiting = asyncio.create_task(client.xreadgroup("g", "ann", {"s": ">"}, block=0))
            await _until_blocked(client, 1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await _until_blocked(client, 0)
            await client.xadd("s", {"n": 1}, id="1-0")
            got = entries_of(await client.xreadgroup("g", "bob", {"s": ">"}, block=30_000))
            assert got == {b"s": [(b"1-0", {b"n": b"1"})]}
            assert (await client.xpending("s", "g"))["consumers"] == [{"name": b"bob", "pending": 1}]

    asyncio.run(story())


def test_asyncio_many_wait_and_all_are_woken(port: int) -> None:
    async def story() -> None:
        async with redis_asyncio.Redis(host=HOST, port=port, socket_timeout=PATIENCE_S, max_connections=60) as client:
            waiting = [asyncio.create_task(client.xread({"s": "$"}, block=0)) for _ in range(30)]
            await _until_blocked(client, 30)
            await client.xadd("s", {"n": 1}, id="1-0")
            for reply in await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S):
                assert entries_of(reply) == {b"s": [(b"1-0", {b"n": b"1"})]}

    asyncio.run(story())


async def _until_blocked(client: Any, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await client.info("clients"))["blocked_clients"] != count:
            await asyncio.sleep(0.01)


# -- redis-cli -----------------------------------------------------------------------------------------------------


def cli(port: int, *words: str, typed: str | bytes = "") -> str:
    """What it prints, which must not be about a mistake."""
    data = typed.encode() if isinstance(typed, str) else typed
    done = subprocess.run(
        [str(CLI), "-p", str(port), *words], input=data, capture_output=True, timeout=PATIENCE_S, check=True
    )
    assert done.stderr == b""
    return done.stdout.decode()


@needs_cli
def test_cli_one_command(port: int) -> None:
    assert cli(port, "PING") == "PONG\n"
    assert cli(port, "XADD", "s", "1-1", "f", "v") == "1-1\n"
    assert cli(port, "XLEN", "s") == "1\n"
    assert cli(port, "--no-raw", "XRANGE", "s", "-", "+") == '1) 1) "1-1"\n   2) 1) "f"\n      2) "v"\n'
    assert cli(port, "--no-raw", "XREAD", "STREAMS", "s", "9") == "(nil)\n"
    assert cli(port, "XADD", "s", "1-1", "f", "v").startswith("ERR The ID specified in XADD is equal or smaller")
    assert cli(port, "--csv", "XRANGE", "s", "-", "+").replace(" ", "") == '"1-1","f","v"\n'


@needs_cli
def test_cli_lines_from_standard_input(port: int) -> None:
    lines = [f'XADD s {number}-0 "a field" "v \\x00 {number}"' for number in range(1, 301)]
    said = cli(port, typed="\n".join([*lines, "XLEN s", "MULTI", "XLEN s", "PING", "EXEC"]))
    ids = [f"{number}-0" for number in range(1, 301)]
    assert said.splitlines() == [*ids, "300", "OK", "QUEUED", "QUEUED", "300", "PONG"]
    with Wire(port) as client:
        assert client.ask("XRANGE", "s", "300", "+") == [[b"300-0", [b"a field", b"v \x00 300"]]]


@needs_cli
def test_cli_pipe_mode(port: int) -> None:
    """Bulk loading: raw commands, and a count of replies and errors at the end."""
    typed = b"".join(b"XADD s %d-0 f v\r\n" % number for number in range(1, 2001)) + b"XADD s 1-0 f v\r\n"
    done = subprocess.run(
        [str(CLI), "-p", str(port), "--pipe"], input=typed, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert b"errors: 1, replies: 2001" in done.stdout
    with Wire(port) as client:
        assert client.ask("XLEN", "s") == 2000


@needs_cli
def test_cli_in_resp3(port: int) -> None:
    cli(port, "XADD", "s", "1-1", "f", "v")
    cli(port, "XGROUP", "CREATE", "s", "g", "0")
    assert cli(port, "-3", "--no-raw", "XREAD", "STREAMS", "s", "0").split() == [
        *("1#", '"s"', "=>", "1)", "1)", '"1-1"', "2)", "1)", '"f"', "2)", '"v"')
    ]
    told = json.loads(cli(port, "--json", "XINFO", "STREAM", "s"))
    assert (told["length"], told["groups"], told["last-generated-id"]) == (1, 1, "1-1")
    assert told["first-entry"] == ["1-1", ["f", "v"]]
    full = json.loads(cli(port, "--json", "XINFO", "STREAM", "s", "FULL"))
    assert full["entries"] == [["1-1", ["f", "v"]]]
    assert (full["groups"][0]["name"], full["groups"][0]["lag"]) == ("g", 1)


@needs_cli
def test_cli_shows_a_stream(port: int) -> None:
    cli(port, "XADD", "s", "1-1", "f", "v")
    lines = cli(port, "XINFO", "STREAM", "s").splitlines()
    told = dict(zip(lines[::2], lines[1::2], strict=False))
    assert (told["length"], told["last-generated-id"], told["entries-added"]) == ("1", "1-1", "1")
    assert "CREATE <key> <group" in cli(port, "XGROUP", "HELP")


# -- redis-benchmark -----------------------------------------------------------------------------------------------


def benchmark(port: int, *words: str) -> str:
    done = subprocess.run(
        [str(BENCHMARK), "-p", str(port), *words], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert "rror" not in done.stdout + done.stderr.replace("WARNING: Could not fetch server CONFIG", ""), done
    return done.stdout


@needs_benchmark
@pytest.mark.parametrize("more", [(), ("-3",)], ids=["resp2", "resp3"])
def test_benchmark_fills_a_stream(port: int, more: tuple[str, ...]) -> None:
    """2000 requests, sixteen at a time from five clients: each is an entry of its own."""
    said = benchmark(port, *more, "-c", "5", "-P", "16", "-n", "2000", "-q", "XADD", "key", "*", "f", "v")
    assert "requests per second" in said
    with Wire(port) as client:
        rows = client.ask("XRANGE", "key", "-", "+")
    # It sends whole pipelines: a few more than asked for may be on their way when it has counted enough.
    assert 2000 <= len(rows) < 2000 + 5 * 16
    assert len({id for id, _ in rows}) == len(rows)
    assert all(fields == [b"f", b"v"] for _, fields in rows)


@needs_benchmark
def test_benchmark_pings(port: int) -> None:
    said = benchmark(port, "-t", "ping", "-c", "5", "-P", "16", "-n", "2000", "-q")
    assert "PING_INLINE:" in said
    assert "PING_MBULK:" in said


# -- node ----------------------------------------------------------------------------------------------------------

NODE_STORY = """
const Redis = require("ioredis");
const port = Number(process.argv[2]);
const fail = (problem) => { console.error(problem); process.exit(1); };
(async () => {
  const client = new Redis({ port, maxRetriesPerRequest: 1 });
  const other = new Redis({ port, maxRetriesPerRequest: 1 });
  const told = {};
  told.added = await client.xadd("s", "1-1", "f", "ä");
  told.piped = await client.pipeline().xadd("s", "2-1", "f", "w").xlen("s").xadd("s", "1-1", "f", "x").exec();
  told.piped[2][0] = String(told.piped[2][0].message);
  told.multi = await client.multi().xlen("s").xrange("s", "-", "+", "COUNT", 1).exec();
  told.binary = (await client.xrangeBuffer("s", "1", "1"))[0][1][1].toString("hex");
  await client.xgroup("CREATE", "s", "g", "0");
  told.group = await client.xreadgroup("GROUP", "g", "ann", "COUNT", 1, "STREAMS", "s", ">");
  told.acked = await client.xack("s", "g", "1-1");
  const waiting = other.xread("BLOCK", 0, "STREAMS", "s", "$");
  while (!(await client.info("clients")).includes("blocked_clients:1")) await new Promise((go) => setTimeout(go, 10));
  await client.xadd("s", "3-1", "f", "new");
  told.waited = await waiting;
  told.none = await client.xread("BLOCK", 5, "STREAMS", "s", "$");
  const many = [];
  for (let i = 0; i < 200; i++) many.push(client.xadd("many", `${i + 1}-0`, "n", i));
  told.many = (await Promise.all(many)).length;
  told.length = await client.xlen("many");
  told.error = await client.xadd("s", "1-1", "f", "v").catch((problem) => problem.message);
  console.log(JSON.stringify(told));
  await client.quit();
  await other.quit();
})().catch(fail);
"""


@pytest.fixture
def ioredis(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder that has it, kept with pytest's cache where there is one."""
    if NODE is None or NPM is None:
        pytest.skip("node and npm are not installed")
    cache = getattr(request.config, "cache", None)
    folder = Path(cache.mkdir(f"ioredis-{IOREDIS}")) if cache else tmp_path
    if not (folder / "node_modules" / "ioredis" / "package.json").exists():
        words = [NPM, "install", "--no-audit", "--no-fund", "--prefix", str(folder), f"ioredis@{IOREDIS}"]
        try:
            done = subprocess.run(words, cwd=folder, capture_output=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm could not fetch ioredis {IOREDIS} within two minutes")
        if done.returncode:
            pytest.skip(f"npm could not fetch ioredis {IOREDIS}")
    return folder


def test_ioredis(port: int, ioredis: Path) -> None:
    """Commands, pipelines, transactions, groups, waiting and two hundred at once, from node."""
    script = ioredis / "story.js"
    script.write_text(NODE_STORY)
    done = subprocess.run(
        [str(NODE), str(script), str(port)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    too_small = "ERR The ID specified in XADD is equal or smaller than the target stream top item"
    assert json.loads(done.stdout) == {
        "added": "1-1",
        "piped": [[None, "2-1"], [None, 2], [too_small]],
        "multi": [[None, 2], [None, [["1-1", ["f", "ä"]]]]],
        "binary": "ä".encode().hex(),
        "group": [["s", [["1-1", ["f", "ä"]]]]],
        "acked": 1,
        "waited": [["s", [["3-1", ["f", "new"]]]]],
        "none": None,
        "many": 200,
        "length": 200,
        "error": too_small,
    }
