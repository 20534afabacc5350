"""Everything works without the compiled module, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = (
    "test_writer.py",
    "test_disk_errors.py",
    "test_recovery.py",
    "test_reader.py",
    "test_rewrite.py",
    "test_index.py",
)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LAMINA_PURE": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_the_environment_chooses_the_python_functions() -> None:
    assert run("-c", "from lamina.log import kernel; print(kernel.NAME)").stdout.strip() == "python"


def test_the_kernel_keeps_its_promises_in_python_alone() -> None:
    files = [f"tests/unit/{name}" for name in TESTS]
    result = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files)
    assert result.returncode == 0, result.stdout[-3000:]
