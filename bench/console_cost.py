"""``python -m bench.console_cost``: what the console costs a server that is busy, while it is open in five tabs.

The same server under the same load, in rounds: without the console, with it, without it ... What counts is the ratio
of neighbours, so that a machine that gets slower is not to blame on the console. Bar: it costs under 3 %.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.console_load import TABS, Console, Load, quiet_end, tabs
from lamina.cli.demo_server import HOST

BAR: Final = 0.97
_WARM_S: Final = 2.0
_SETTLE_S: Final = 0.5


def measure(folder: Path, rounds: int, seconds: float, *, sync: str, is_real: bool = False) -> dict[str, object]:
    """``is_real``: the tabs are those of Chromium, which needs much of the machine for itself."""
    looked = _chromium if is_real else tabs
    without: list[float] = []
    with_it: list[float] = []
    cpu: dict[str, list[float]] = {"without": [], "with": []}
    with Console(folder / "data", "--retain", "*=bytes:256MiB", sync=sync) as server, Load(server) as load:
        time.sleep(min(_WARM_S, seconds))
        for number in range(rounds):
            for is_open in (False, True) if number % 2 else (True, False):  # who is first takes turns
                with ExitStack() as opened:
                    if is_open:
                        opened.enter_context(looked(server.http))
                    time.sleep(_SETTLE_S)
                    began, before = server.cpu_s(), load.done
                    rate = load.rate(seconds)
                    used = (server.cpu_s() - began) / max(load.done - before, 1) * 1e6
                    (with_it if is_open else without).append(rate)
                    cpu["with" if is_open else "without"].append(used)
    ratios = [yes / no for yes, no in zip(with_it, without, strict=True)]
    return {
        "without_per_s": round(statistics.median(without)),
        "with_per_s": round(statistics.median(with_it)),
        "ratio": round(statistics.median(ratios), 4),
        "ratio_of_medians": round(statistics.median(with_it) / statistics.median(without), 4),
        "lowest_ratio": round(min(ratios), 4),
        "noise": round(_noise(without), 4),
        "cpu_us_per_command_without": round(statistics.median(cpu["without"]), 2),
        "cpu_us_per_command_with": round(statistics.median(cpu["with"]), 2),
        "rounds": rounds,
        "seconds": seconds,
        "tabs": list(TABS),
        "chromium": is_real,
    }


def _noise(rates: list[float]) -> float:
    """How far rounds without the console are from each other: what a ratio cannot be finer than."""
    return statistics.stdev(rates) / statistics.mean(rates) if len(rates) > 1 else 0.0


@contextmanager
def _chromium(port: int) -> Iterator[None]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for path in TABS:
            browser.new_page().goto(f"http://{HOST}:{port}{path}")
        yield
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.console_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="of both kinds")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each")
    parser.add_argument("--sync", default="os", help="always, os, interval: os is where the processor counts most")
    parser.add_argument("--chromium", action="store_true", help="five tabs of a real browser")
    parser.add_argument("--dir", help="where the data is kept meanwhile")
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder, quiet_end():
        found = measure(Path(folder), given.rounds, given.seconds, sync=given.sync, is_real=given.chromium)
        if given.json:
            Path(given.json).write_text(json.dumps(found, indent=1) + "\n")
        print(f"without the console {found['without_per_s']:>9} commands/s")
        print(f"open in 5 tabs      {found['with_per_s']:>9} commands/s")
        print(f"ratio               {found['ratio']:>9}  (bar {BAR}, noise {found['noise']})")
        print(
            f"processor, us a command: {found['cpu_us_per_command_without']} without, "
            f"{found['cpu_us_per_command_with']} with"
        )
        sys.exit(0 if float(str(found["ratio"])) >= BAR else 1)


if __name__ == "__main__":
    main()
