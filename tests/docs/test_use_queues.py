"""The page about queues does as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import redis

from integration.lamina_server import LaminaServer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "use-queues.md"


def blocks() -> tuple[list[str], list[str]]:
    """Those for inside a program, and those for a server."""
    inside, beside = PAGE.read_text().split("## With a server")
    return tuple(re.findall(r"```python\n(.*?)```", part, re.DOTALL) for part in (inside, beside))  # type: ignore[return-value]


def test_the_python_of_the_page_about_queues_does_as_it_says(tmp_path: Path) -> None:
    script = "\n".join(blocks()[0])
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert re.findall(r"b'(\w*)'", result.stdout) == ["tea", "", "coffee", "coffee", "milk", "sugar"]
    assert "None\n" in result.stdout
    assert "QueueStats(queues=1, messages=1, expired=0)\ndump 0: 1 queues, 1 messages" in result.stdout
    assert "<NewQueue " in result.stdout


def test_the_python_for_a_server_does_as_it_says(tmp_path: Path) -> None:
    with LaminaServer(tmp_path / "data") as server:
        script = "\n".join([*blocks()[1][:2], "print(rid.decode(), flush=True)", *blocks()[1][2:]])
        command = [sys.executable, "-u", "-c", script.replace("port=6380", f"port={server.port}")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            *said, rid, one, two = list(islice(client.stdout, 5))
            assert [*said, one, two] == [
                "received b'tea'\n",
                "and then b'coffee'\n",
                "working on b'coffee'\n",
                "working on b'milk'\n",
            ]
            with redis.Redis(port=server.port, single_connection_client=True) as other:
                assert other.execute_command("Q.AUTH", rid.strip(), "what the recipient knows")
                assert other.execute_command("Q.INFO", rid.strip())
                assert other.execute_command("L.DUMP", "queues")
                assert other.execute_command("Q.DEL", rid.strip())
            assert client.wait(10) == 0
