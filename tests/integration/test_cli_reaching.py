"""Every command that asks a server reaches one with users, in the same ways; and jobs also one that is not ours."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from click.testing import CliRunner, Result

from contract.ways import AllDoors
from integration.workq_server import HOST
from lamina.cli.tree import lamina as tree
from lamina.errors import BadOption, LaminaError, NotAllowed

ASKING = (
    ["jobs", "ls"],
    ["topics", "ls"],
    ["queues", "dump", "--json"],
    ["top", "--once", "--every", "100ms", "--json"],
)
IDS = [" ".join(words[:2]) for words in ASKING]


def run(*words: object, **surroundings: str) -> Result:
    names = ("LAMINA_URL", "LAMINA_TOKEN", "LAMINA_PASSWORD")
    return CliRunner().invoke(tree, [str(word) for word in words], env={**dict.fromkeys(names), **surroundings})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AllDoors, str]]:
    folder = tmp_path_factory.mktemp("secured") / "data"
    made = run("user", "add", "ops", "--allow", "*:admin", "--data", folder, "--json")
    token = json.loads(made.output)["token"]
    with AllDoors(folder) as server:
        yield server, token


@pytest.mark.parametrize("words", ASKING, ids=IDS)
def test_a_url_and_a_token_are_enough(secured: tuple[AllDoors, str], words: list[str]) -> None:
    server, token = secured
    url = server.url.replace("//", "//ops@")
    assert run(*words, LAMINA_URL=url, LAMINA_TOKEN=token).exit_code == 0
    assert run(*words, "--url", url.replace("ops@", f"ops:{token}@")).exit_code == 0
    refused = run(*words, LAMINA_URL=url, LAMINA_TOKEN=token[:-1])
    assert isinstance(refused.exception, NotAllowed) and "token" in refused.exception.hint
    assert isinstance(run(*words, LAMINA_URL=server.url).exception, NotAllowed)


@pytest.mark.parametrize("words", ASKING[:3], ids=IDS[:3])
def test_one_door_and_a_user_are_enough(secured: tuple[AllDoors, str], words: list[str]) -> None:
    server, token = secured
    door = server.workq if words[0] == "jobs" else server.resp
    assert run(*words, "--server", f"{HOST}:{door}", "--user", "ops", "--token", token).exit_code == 0
    assert isinstance(run(*words, "--server", f"{HOST}:{door}", "--user", "ops").exception, BadOption)


def test_top_takes_one_way_of_saying_where(secured: tuple[AllDoors, str]) -> None:
    assert isinstance(run("top", "--once", "--url", secured[0].url, "--resp", "x:1").exception, BadOption)


def test_who_speaks_without_tls_to_a_door_that_has_it_learns_what_to_try() -> None:
    """Such a door can only hang up."""
    with socket.create_server((HOST, 0)) as door:

        def hang_up() -> None:
            door.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        done = run("topics", "ls", "--server", f"{HOST}:{door.getsockname()[1]}")
        assert isinstance(done.exception, LaminaError) and "laminas://" in done.exception.hint


@pytest.mark.parametrize("refusal", [b"-CLIENT-ERROR Invalid command args\r\n", b"-CLIENT-ERROR Unknown inspect\r\n"])
def test_jobs_of_a_server_that_is_not_ours_show_what_it_tells(refusal: bytes) -> None:
    with socket.create_server((HOST, 0)) as door:

        def answer() -> None:
            with suppress(OSError):  # the door is closed when the test is over
                while True:
                    client = door.accept()[0]
                    with client, client.makefile("rb") as lines:
                        for line in lines:
                            if line.startswith(b"inspect queues 0 "):
                                client.sendall(b"+OK 1\r\nmail 2\r\nready-len 3\r\nscheduled-len 1\r\n")
                            else:
                                client.sendall(b"+OK 0\r\n" if line.startswith(b"inspect queues") else refusal)

        threading.Thread(target=answer, daemon=True).start()
        done = run("jobs", "ls", "--json", "--server", f"{HOST}:{door.getsockname()[1]}")
    assert done.exit_code == 0, done.exception
    assert json.loads(done.output) == {"name": "mail", "ready": 3, "scheduled": 1}
