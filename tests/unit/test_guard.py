"""The guard over the suite (lamina.testing.Guard, loop_guard.py) finds what it is there for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.lamina_server import LaminaServer
from lamina.engines import loops
from lamina.log import ALWAYS, OS
from lamina.log.files.real import RealFiles
from lamina.server.resp import dispatch
from lamina.server.resp.session import Args, Session
from lamina.testing import MemoryFiles
from loop_guard import GUARD
from resp_lab import Lab, in_loop


@pytest.fixture(autouse=True)
def _nothing_found_before() -> Iterator[None]:
    GUARD.take()
    yield
    GUARD.take()


def _of_server(call: object) -> object:
    """As if a module of the server had it."""
    call.__module__ = "lamina.server.of_a_test"  # type: ignore[attr-defined]
    return call


async def _run(call: object) -> list[str]:
    asyncio.get_running_loop().call_soon(_of_server(call))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return GUARD.take()


@pytest.mark.parametrize("files", [MemoryFiles(), RealFiles()], ids=["memory", "real"])
@in_loop
async def test_a_look_at_the_disk_on_the_loop_of_a_server_is_found(files: MemoryFiles | RealFiles) -> None:
    (found,) = await _run(lambda: files.list("" if isinstance(files, MemoryFiles) else "/"))
    assert found.startswith("list ") and "test_guard.py" in found


@in_loop
async def test_a_callback_that_works_for_long_is_found() -> None:
    def work() -> None:
        end = time.thread_time() + 0.1
        while time.thread_time() < end:
            pass

    (found,) = await _run(work)
    assert "ms of processor time" in found


@in_loop
async def test_what_others_do_on_the_same_loop_is_not() -> None:
    asyncio.get_running_loop().call_soon(lambda: MemoryFiles().list(""))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert GUARD.take() == []


@pytest.mark.may_hold_up_the_loop
@in_loop
async def test_a_command_that_reads_a_file_at_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(OS)

    def reads(session: Session, args: Args) -> bytes:
        lab.disk.list("")
        return b"+OK\r\n"

    monkeypatch.setitem(dispatch.HANDLERS, b"ping", reads)
    lab.caller().send("PING")
    assert len(GUARD.take()) == 1
    await lab.settle()


@in_loop
async def test_the_round_that_commits_is_let_through() -> None:
    lab = Lab(ALWAYS)
    caller = lab.caller()
    await caller.ask("XADD a * f v")
    GUARD.take()
    synced = lab.log("a").stats.syncs
    await caller.ask("XADD a * f v")
    assert lab.log("a").stats.syncs == synced + 1 and GUARD.take() == []


def test_servers_that_tests_start_are_watched(tmp_path: Path) -> None:
    report = tmp_path / "found"
    env = {"LAMINA_GUARD": str(report), "LAMINA_GUARD_BUDGET_S": "0"}
    server = LaminaServer(tmp_path / "data", env=env)
    with server, server.client():
        server.stop()
    assert "ms of processor time" in report.read_text()


def test_what_must_wait_is_broken_off_on_a_loop_and_nowhere_else() -> None:
    loops.must_wait()
    with loops.at_once():
        with pytest.raises(loops.MustWait):
            loops.must_wait()
        with loops.may_wait():
            loops.must_wait()
        assert loops.is_at_once()
    assert not loops.is_at_once()


_runs: list[None] = []


@in_loop
async def test_a_test_in_which_a_callback_took_long_once_is_run_again() -> None:
    _runs.append(None)
    if len(_runs) == 1:  # fails, and nobody sees it
        GUARD._note("somebody took 40.0 ms of processor time", with_stack=False)
