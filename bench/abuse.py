"""``python -m bench.abuse``: what others feel while one client misbehaves, and how much memory that takes.

Each case has a server of its own. A client publishes and adds jobs at a steady pace: first undisturbed, then while the
abuse is done to another server beside it, then while it is done to its own. The 99th percentile of the last counts,
against that of the first; the one between is what the machine is to blame for. So does the memory of the server.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bench.abusers import ALL
from lamina.cli.demo_server import Server, free_ports
from lamina.client.connecting import Remote
from lamina.errors import LaminaError

_PACE_S: Final = 0.01
_FEW_HANDLES: Final = 600
_UNDER_WAY_S: Final = 2.0


def measure(case: str, seconds: float, size: float, folder: Path, *, beside: bool = True) -> dict[str, object]:
    """One case. ``beside``: also find out what the machine is to blame for."""
    server, http = _server(case, folder / "data")
    with server:
        with server.client() as lm:
            _pace(lm, 0.5)
            before = _pace(lm, seconds)
            elsewhere = _beside(case, lm, seconds, size, folder) if beside else before
            rss = most = memory(server.pid)
            during: list[float] = []
            with _abused(case, server, http, size) as abuser:
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    during += _pace(lm, min(0.5, seconds))
                    most = max(most, memory(server.pid))
                is_ended = abuser.poll() is not None
            after = _pace(lm, 0.5)
        server.stop()
    return {
        "case": case,
        "p99_before_ms": _p99(before),
        "p99_beside_ms": _p99(elsewhere),
        "p99_during_ms": _p99(during),
        "ratio": round(_p99(during) / _p99(before), 2),
        "ratio_to_beside": round(_p99(during) / _p99(elsewhere), 2),
        "p99_after_ms": _p99(after),
        "commands": len(during),
        "rss_mib": round(rss / 2**20, 1),
        "rss_most_mib": round(most / 2**20, 1),
        "abuser_ended": is_ended,
    }


def _server(case: str, data: Path) -> tuple[Server, int]:
    """One, and the port of its HTTP door."""
    under = [] if case != "no_handles" else ["prlimit", f"--nofile={_FEW_HANDLES}:{_FEW_HANDLES}"]
    (http,) = free_ports(1)
    return Server(data, "--http", f"127.0.0.1:{http}", sync=(), under=under), http


def _beside(case: str, lm: Remote, seconds: float, size: float, folder: Path) -> list[float]:
    """How long each command of ``lm`` takes while another server is abused."""
    server, http = _server(case, folder / "beside")
    with server:
        with _abused(case, server, http, size):
            found = _pace(lm, seconds)
        server.stop()
    return found


@contextmanager
def _abused(case: str, server: Server, http: int, size: float) -> Iterator[subprocess.Popen[bytes]]:
    """While the block runs, from when the abuse is under way."""
    ports = (str(server.workq), str(server.resp), str(http))
    abuser = subprocess.Popen([sys.executable, "-m", "bench.abusers", case, *ports, str(size)], stdin=subprocess.PIPE)
    try:
        time.sleep(_UNDER_WAY_S * min(size, 1))
        yield abuser
    finally:
        assert abuser.stdin is not None
        abuser.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            abuser.wait(20)
        abuser.kill()
        abuser.wait()


def _pace(lm: Remote, seconds: float) -> list[float]:
    """How long each command took."""
    found: list[float] = []
    end = time.monotonic() + seconds
    topic = lm.topic("paced")
    while (now := time.monotonic()) < end:
        begun = time.perf_counter()
        if len(found) % 2:
            topic.publish({"n": len(found)})
        else:
            lm.jobs.add("paced", b"x", ttl=60)
        found.append(time.perf_counter() - begun)
        time.sleep(max(0.0, now + _PACE_S - time.monotonic()))
    return found


def _p99(times: list[float]) -> float:
    return round(statistics.quantiles(times, n=100)[98] * 1000, 2) if len(times) > 1 else 0.0


def memory(pid: int) -> int:
    """Bytes that the process has."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.abuse", description=__doc__)
    parser.add_argument("--case", action="append", choices=list(ALL))
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--size", type=float, default=1.0, help="1: the whole abuse, less: a sample")
    asked = parser.parse_args()
    is_right = True
    for case in asked.case or ALL:
        with tempfile.TemporaryDirectory(prefix="lamina-abuse-") as folder:
            try:
                found = measure(case, asked.seconds, asked.size, Path(folder))
            except LaminaError as error:
                found, is_right = {"case": case, "error": str(error)}, False
        print(json.dumps(found), flush=True)
    return 0 if is_right else 1


if __name__ == "__main__":
    raise SystemExit(main())
