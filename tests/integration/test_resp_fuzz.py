"""Random and spoilt commands at the RESP door (bench/fuzz_resp.py has many more of them)."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from bench.resp_grammar import RespGrammar, packed
from lamina.server.resp.table import FACTS

ROOT = Path(__file__).parents[2]
INPUTS = 2500 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))


def test_random_inputs_harm_nobody() -> None:
    """No command fails in a way that was not foreseen, and others are served meanwhile."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.fuzz_resp", str(INPUTS), "--seed", "3", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["problems"]) == (0, [])
    assert summary["inputs"] == INPUTS
    assert summary["canary_asked"] > 20
    assert summary["answers"] > INPUTS // 4, "hardly anything was answered: the input is all junk"


def test_the_inputs_have_every_command_in_them() -> None:
    grammar = RespGrammar(random.Random(1))
    text = b"".join(grammar.input() for _ in range(20_000)).lower()
    for facts in FACTS.values():
        assert b"$%d\r\n%b\r\n" % (len(facts.name), facts.name) in text
        for below in facts.subcommands:
            assert packed([facts.name, below])[4:] in text, f"{facts.name!r} {below!r} is never tried"
