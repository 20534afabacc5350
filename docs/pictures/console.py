"""Makes the pictures of the console anew: ``python docs/pictures/console.py``. It takes ten minutes, Playwright and
Debian's Chromium, and shows a small shop (shop.py) on a server that was killed once."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from shop import Shop

from lamina.cli.demo_server import HOST, Server, free_ports

HERE = Path(__file__).resolve().parent
MOST_BYTES = 250_000
WIDTH = 1280
# Small files, a limit that one topic has passed, and no cleaning meanwhile: so that all there can be is in the picture.
_FLAGS = ("--segment-bytes", "262144", "--clean-ms", "86400000", "--retain", "orders=bytes:1MiB")


def take(folder: Path, seconds: float) -> Iterator[Path]:
    """The server is killed in the middle of ``seconds``."""
    with tempfile.TemporaryDirectory() as at:
        data, (http,) = Path(at) / "shop", free_ports(1)
        server = Server(data, "--http", f"{HOST}:{http}", *_FLAGS, sync=())
        with server, Shop(server.client, pace=1.5):
            time.sleep(seconds / 2)
            _run("pipeline", "export", "--data", data, "--to", Path(at) / "exported", "--consumer", "nightly-export")
            server.kill()
            time.sleep(seconds / 20)
            server.start()
            time.sleep(seconds / 2)
            with _looking(f"http://{HOST}:{http}") as page:
                for name, path, height, is_ready in SHOTS:
                    page.set_viewport_size({"width": WIDTH, "height": height})
                    page.goto(path)
                    _until(page, is_ready)
                    page.wait_for_timeout(500)
                    file = folder / f"console-{name}.png"
                    page.screenshot(path=file)
                    if file.stat().st_size > MOST_BYTES:
                        raise SystemExit(f"{file.name} has {file.stat().st_size} bytes")
                    yield file


SHOTS = (
    ("overview", "/?range=15m", 1000, "document.getElementById('pulse').textContent === 'live'"),
    (
        "log",
        "/log/one?name=topics/orders",
        960,
        "document.getElementById('pulse').textContent === 'live' && !/being found out/.test(document.body.innerText)",
    ),
    ("jobs", "/jobs/dead?name=mail", 960, "document.querySelectorAll('.job-group').length > 1"),
    ("topics", "/topics/one?name=orders", 800, "document.getElementById('pulse').textContent === 'live'"),
)
"""Name, address, height, and when it is as it should be."""


def _until(page: Page, is_so: str) -> None:
    """By asking again and again: the pages let nobody put a function into them."""
    end = time.monotonic() + 60
    while not page.evaluate(is_so):
        if time.monotonic() > end:
            raise SystemExit(f"{page.url} never came to {is_so}")
        page.wait_for_timeout(200)


def _run(*words: object) -> None:
    command = [sys.executable, "-m", "lamina", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603


@contextmanager
def _looking(url: str) -> Iterator[Page]:
    looks: dict[str, Any] = {"color_scheme": "light", "base_url": url}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser.new_context(**looks).new_page()
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=HERE, type=Path)
    parser.add_argument("--seconds", type=float, default=600.0, help="of traffic")
    given = parser.parse_args()
    for made in take(given.folder, given.seconds):
        sys.stdout.write(f"{made}\n")
