"""``python -m bench.console_size``: how long each page of the console takes on a server that holds much and is busy.

10 000 topics, a million jobs, 100 000 queues and a store of 100 000 keys; meanwhile the server is under load. Every
kind of page that links lead to is asked for again and again, in turns. Bar: 300 ms at the 95th percentile, each.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bench.console_load import BATCH, Console, Load, links, pack, quiet_end
from lamina.cli.demo_server import HOST
from lamina.client.connecting import Remote
from lamina.client.leased import RemoteLeased

BAR_MS: Final = 300.0
TOPICS, JOBS, QUEUES, KEYS = 10_000, 1_000_000, 100_000, 100_000
_JOB_QUEUES: Final = 200
_AT_ONCE: Final = 5000
_OF_A_KIND: Final = 3
_MOST_S: Final = 120.0
_SEARCHES: Final = (
    "/jobs?search=9",
    "/jobs/find?text=job+99999",
    "/jobs/find?text=none+has+this",
    "/topics?search=999",
    "/log?search=999",
    "/queues?prefix=a",
    "/store/scan?storage=1&prefix=key/0009",
)
"""What no link leads to."""
_LOAD_PAUSES: Final = {"full": 0.0, "half": 0.01}


def fill(server: Console, scale: float) -> None:
    """Over the wire, many at a time."""
    many = int(TOPICS * scale)
    for start in range(0, many, _AT_ONCE):
        if start:  # each topic in use has two files open, and not every machine allows so many: a start opens none
            server.stop()
            server.start()
        part = range(start, min(start + _AT_ONCE, many))
        _wire(server, "XADD", [("XADD", f"topic.{one:05d}", "*", "body", b"x" * 100) for one in part])
    _wire(server, "Q.NEW", [("Q.NEW",)] * int(QUEUES * scale))
    with server.client() as lm:
        for start in range(0, int(JOBS * scale), 10_000):
            part = range(start, min(start + 10_000, int(JOBS * scale)))
            lm.jobs.add_many(f"work.{start // 10_000 % _JOB_QUEUES:03d}", (b"job %d" % one for one in part))
        for number in range(max(int(2000 * scale), 20)):  # dead letters of a few kinds
            lm.jobs.add("mail", b"letter %d" % number, priority=1)
        for job in _leased(lm, "mail"):
            job.bury(b"smtp: timed out" if len(job.payload) % 2 else b"550 no such person")
        for key in range(0, int(KEYS * scale), 1000):
            with lm.store.session() as draft:
                for one in range(key, min(key + 1000, int(KEYS * scale))):
                    draft.put(1, b"key/%08d" % one, b"value %d" % one)


def _leased(lm: Remote, queue: str) -> Iterator[RemoteLeased]:
    while found := lm.jobs.lease_many(queue, most=500):
        yield from found


def _wire(server: Console, what: str, commands: Sequence[tuple[bytes | str, ...]]) -> None:
    with socket.create_connection((HOST, server.resp), _MOST_S) as line:
        for start in range(0, len(commands), BATCH):
            part = commands[start : start + BATCH]
            line.sendall(pack(*part))
            lines = len(part) * (2 if what == "XADD" else 5)
            while lines > 0:
                found = line.recv(1 << 16)
                if not found or found[:1] == b"-":
                    raise RuntimeError(f"{what}: {found[:200]!r}")
                lines -= found.count(b"\r\n")


class Visitor:
    """One who goes through pages over one connection."""

    def __init__(self, port: int) -> None:
        self._line = http.client.HTTPConnection(HOST, port, timeout=_MOST_S)

    def look(self, path: str) -> tuple[int, bytes, float]:
        """Status, page, and seconds until the last byte of it."""
        began = time.perf_counter()
        for is_last in (False, True):
            try:
                self._line.request("GET", path, headers={"accept": "text/html"})
                answer = self._line.getresponse()
                return answer.status, answer.read(), time.perf_counter() - began
            except (http.client.HTTPException, OSError):  # the server hangs up on who was silent
                self._line.close()
                if is_last:
                    raise
        raise AssertionError

    def explore(self) -> list[str]:
        """Addresses: a few of each kind of page."""
        kinds: dict[str, int] = {}
        waiting, seen, found = deque(["/", *_SEARCHES]), {"/", *_SEARCHES}, []
        while waiting:
            at = waiting.popleft()
            status, page, _ = self.look(at)
            if status != 200:
                print(f"  {at}: {status}", file=sys.stderr)
                continue
            found.append(at)
            for link in sorted(links(page.decode())):
                where = urlsplit(link)
                kind = where.path + "?" + "&".join(sorted(part.partition("=")[0] for part in where.query.split("&")))
                if link not in seen and kinds.get(kind, 0) < _OF_A_KIND:
                    kinds[kind] = kinds.get(kind, 0) + 1
                    seen.add(link)
                    waiting.append(link)
        return found


def measure(folder: Path, scale: float, times: int, load: str) -> list[dict[str, object]]:
    """A row for each address."""
    with Console(folder / "data") as server, ExitStack() as opened:
        began = time.monotonic()
        fill(server, scale)
        print(f"filled in {time.monotonic() - began:.0f} s", file=sys.stderr)
        visitor = Visitor(server.http)
        pages = visitor.explore()
        rate = 0.0
        if load != "none":
            busy = opened.enter_context(Load(server, _LOAD_PAUSES[load]))
            rate = busy.rate(3.0 if scale == 1 else 0.5)
        took: dict[str, list[float]] = {page: [] for page in pages}
        sizes: dict[str, int] = {}
        for _ in range(times):
            for page in pages:
                status, body, seconds = visitor.look(page)
                if status != 200:
                    raise RuntimeError(f"{page}: {status}: {body[:200]!r}")
                took[page].append(seconds * 1000)
                sizes[page] = len(body)
    return [
        {
            "page": page,
            "p50_ms": round(statistics.median(found), 1),
            "p95_ms": round(_p95(found), 1),
            "max_ms": round(max(found), 1),
            "kib": round(sizes[page] / 1024, 1),
            "load_per_s": round(rate),
        }
        for page, found in took.items()
    ]


def _p95(found: list[float]) -> float:
    return sorted(found)[min(len(found) - 1, int(len(found) * 0.95))]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.console_size", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="0.01: a hundredth of everything")
    parser.add_argument("--times", type=int, default=40, help="that each page is asked for")
    parser.add_argument("--load", choices=("full", "half", "none"), default="full")
    parser.add_argument("--dir", help="where the data is kept meanwhile")
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder, quiet_end():
        rows = measure(Path(folder), given.scale, given.times, given.load)
        if given.json:
            Path(given.json).write_text(json.dumps(rows, indent=1) + "\n")
        print(f"{'page':<60} {'p50 ms':>8} {'p95 ms':>8} {'max ms':>8} {'KiB':>7}")
        for row in sorted(rows, key=lambda row: -float(str(row["p95_ms"]))):
            shown = [f"{row[name]:>8}" for name in ("p50_ms", "p95_ms", "max_ms")]
            print(f"{str(row['page'])[:60]:<60} {' '.join(shown)} {row['kib']:>7}")
        worst = max(float(str(row["p95_ms"])) for row in rows)
        print(f"the slowest at the 95th percentile: {worst} ms (bar {BAR_MS:.0f}); load {rows[0]['load_per_s']}/s")
        sys.exit(0 if worst < BAR_MS else 1)


if __name__ == "__main__":
    main()
