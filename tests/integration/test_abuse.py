"""One client misbehaves: the others are served, and little memory is taken for it. A sample of ``bench.abuse``."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bench.abuse import measure
from bench.abusers import ALL

IS_CAMPAIGN = bool(os.environ.get("LAMINA_CAMPAIGN"))
SAMPLE = ["huge_bulk", "never_reads_resp", "no_handles", "slow_http"]


@pytest.mark.parametrize("case", ALL if IS_CAMPAIGN else SAMPLE)
def test_others_are_served_and_memory_is_bounded(case: str, tmp_path: Path) -> None:
    if case == "no_handles" and shutil.which("prlimit") is None:
        pytest.skip("prlimit is not installed")
    if case == "slow_http":
        pytest.importorskip("uvicorn")
    found = measure(case, 4.0 if IS_CAMPAIGN else 0.5, 1.0 if IS_CAMPAIGN else 0.1, tmp_path, beside=False)
    assert found["commands"] and not found["abuser_ended"]
    assert float(str(found["rss_most_mib"])) < float(str(found["rss_mib"])) + 200
