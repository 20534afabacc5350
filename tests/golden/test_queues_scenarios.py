"""What stands in the scenarios of the queue stores is what our stores do with such files."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import pytest

GOLDEN = Path(os.environ.get("LAMINA_GOLDEN", Path(__file__).parents[3] / "shared" / "golden")) / "queues"
SCENARIOS = sorted(path.stem for path in GOLDEN.glob("*.json")) if GOLDEN.is_dir() else []
RUNNERS = {"000": "golden.queues_memory", "001": "golden.queues_journal"}


@pytest.mark.skipif(not SCENARIOS, reason="no scenarios of queue stores here (set LAMINA_GOLDEN)")
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_store_does_what_the_scenario_says(name: str, tmp_path: Path) -> None:
    scenario = json.loads((GOLDEN / f"{name}.json").read_text())
    importlib.import_module(RUNNERS[scenario["seed"]]).run(scenario, tmp_path)
