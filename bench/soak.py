"""``python -m bench.soak --minutes 10``: a mixed load for a long time, and kill -9 of the server every twenty seconds.

Says whether anything that was acknowledged is lost or came back, how the memory of the server and the room on the disk
went, and exits with 1 if something was lost. Flat and bounded: the median of the last third against that of the first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from lamina.cli.demo_server import Server
from lamina.cli.load import NAME, Load

FLAGS: Final = [
    *("--segment-bytes", str(4 << 20), "--clean-ms", "5000", "--retain", f"{NAME}=acknowledged"),
    *("--store-option", "compact_every_s=10", "--store-option", "compact_dead_ratio=0.5"),
    *("--queue", "dump_every_s=15", "--history-s", "15"),
]
_LOOK_BEFORE_S: Final = 1.0


def soak(minutes: float, kill_every_s: float, data: Path) -> dict[str, object]:
    """Runs for so long. Returns what came out."""
    cycles: list[dict[str, float]] = []
    end = time.monotonic() + minutes * 60
    with Server(data, *FLAGS) as server:
        load = Load(server.client)
        with load.running():
            while time.monotonic() < end:
                time.sleep(kill_every_s - _LOOK_BEFORE_S)
                cycle = {
                    "cycle": len(cycles) + 1,
                    "acknowledged": sum(load.counts().values()),
                    "rss_mib": round(_rss(server.pid) / 2**20, 1),
                    "disk_mib": round(_room(data) / 2**20, 1),
                }
                time.sleep(_LOOK_BEFORE_S)
                server.kill()
                server.start()
                cycle["back_in_s"] = round(server.took_s, 2)
                cycles.append(cycle)
                print(json.dumps(cycle), flush=True)
        verdicts = load.settle()
        server.stop()
    found = {
        "minutes": minutes,
        "kills": len(cycles),
        "breaks": load.breaks,
        "problems": load.problems[:20],
        "verdicts": [verdict.as_dict() for verdict in verdicts],
        "is_right": all(verdict.is_right for verdict in verdicts) and not load.problems,
    }
    return {
        **found,
        **{f"{what}_growth": _growth([cycle[what] for cycle in cycles]) for what in ("rss_mib", "disk_mib")},
    }


def _growth(figures: list[float]) -> float | None:
    third = len(figures) // 3
    if not third:
        return None
    return round(statistics.median(figures[-third:]) / statistics.median(figures[:third]), 2)


def _rss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def _room(folder: Path) -> int:
    """Files may go while it looks."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kill-every", type=float, default=20, metavar="SECONDS")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lamina-soak-") as folder:
        found = soak(asked.minutes, asked.kill_every, Path(folder) / "data")
    print(json.dumps(found, indent=1))
    return 0 if found["is_right"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
