"""The upkeep of jobs: when it begins."""

from __future__ import annotations

import threading

import pytest

from lamina.engines.jobs import upkeep
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.upkeep import Upkeep
from lamina.testing import ManualClock, MemoryFiles


def test_what_is_dead_goes_soon_behind_a_start_however_seldom_it_is_cleaned_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that is killed before the first cleaning, again and again, would keep everything."""
    monkeypatch.setattr(upkeep, "_SOON_S", 0.0)
    monkeypatch.setattr(upkeep, "_EVERY_S", 0.001)
    engine = JobEngine.open("jobs", files=MemoryFiles(), clock=ManualClock(), threaded=False)
    cleaned = threading.Event()
    seldom = Upkeep(engine, clean_ms=3_600_000)
    monkeypatch.setattr(seldom, "clean", cleaned.set)
    seldom.start()
    try:
        assert cleaned.wait(30)
    finally:
        seldom.stop()
        engine.close()
