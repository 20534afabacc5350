"""``make screenshots``: every screen in light, in dark, and at the width of a telephone, to be looked at."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from browser.tabs import Tab, launched
from browser.ways import WAYS
from integration.console_samples import SAMPLES
from integration.console_server import Browser, ConsoleServer, fill, record_runs
from integration.crawling import page_of, walk
from lamina.client.connecting import Remote
from lamina.server.http.console.pages import all_pages

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 400, "height": 850}},
}
_OF_A_KIND = 2


def take(folder: Path, seconds: float, only: str) -> Iterator[Path]:
    """``seconds`` of traffic come first, so that there is something to plot."""
    program = shutil.which("chromium")
    if program is None:
        sys.exit("Chromium is not installed (Debian: apt install chromium)")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, ConsoleServer(Path(data) / "data") as server:
        with server.remote() as lm:
            filled = fill(lm)
            record_runs(server.folder)
            _live(lm, seconds)
        shown = {at: name for at, name in _screens(server).items() if re.search(only, name)}
        with launched(program) as chromium:
            for look, options in LOOKS.items():
                tab = Tab(chromium, server.url, **options)
                for at, name in shown.items():
                    tab.go(at)
                    tab.page.wait_for_timeout(150)
                    path = folder / f"{name}.{look}.png"
                    tab.page.screenshot(path=path, full_page=True)
                    yield path
                for name in ("topics.trim", "jobs.purge"):  # what an action looks like before it is done
                    if name in WAYS and re.search(only, "confirm"):
                        tab.go(WAYS[name].page(filled))
                        tab.press(name, SAMPLES[name](filled), WAYS[name].hidden(filled))
                        tab.page.screenshot(path=folder / f"confirm.{name}.{look}.png", full_page=True)
                        yield folder / f"confirm.{name}.{look}.png"
                tab.close()


def _live(lm: Remote, seconds: float) -> None:
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        number += 1
        many = 5 + number % 20
        lm.topic("orders").publish_many({"item": f"coffee {number}"} for _ in range(many))
        lm.jobs.add_many("reports.daily", (b"%d" % number for _ in range(many)))
        for job in lm.jobs.lease_many("reports.daily", most=many - 1):
            job.complete(b"ok") if number % 7 else job.fail(b"not today")
        lm.store.put(1, b"stock/%03d" % (number % 40), b"%d" % number)
        time.sleep(0.05)


def _screens(server: ConsoleServer) -> dict[str, str]:
    """Address and name of the picture, of a few of each kind of page."""
    visitor = Browser(server)

    def look(at: str) -> tuple[int, str, str]:
        got = visitor.get(at)
        return got.status, got.headers.get("content-type", ""), got.text

    pages, many, found = all_pages(), dict[str, int](), dict[str, str]()
    for at in walk(look, most=120).pages:
        page = page_of(at, pages)
        if page is None:
            continue
        number = many[page.path] = many.get(page.path, 0) + 1
        if number <= _OF_A_KIND:
            found[at] = (page.path.strip("/").replace("/", ".") or "overview") + ("" if number == 1 else f".{number}")
    found["/jobs/none"] = "error"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=".screenshots", type=Path)
    parser.add_argument("--seconds", type=float, default=30.0, help="of traffic beforehand")
    parser.add_argument("--only", default="", help="pages whose name has this in it (a regular expression)")
    given = parser.parse_args()
    for path in take(given.folder, given.seconds, given.only):
        print(path)


if __name__ == "__main__":
    main()
