"""The one verifier over a whole data folder: what is well is found well, and what a start would miss is said, in the
same words by ``log verify`` and ``doctor``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import lamina
from lamina.cli.doctor_folder import look
from lamina.cli.log import log
from lamina.errors import LaminaError
from lamina.log import consumers, control, mark
from lamina.log.files.real import RealFiles
from lamina.server.security import users
from lamina.server.security.gate import Gate
from lamina.server.security.rights import Right
from lamina.testing import MemoryFiles, PowerLoss
from lamina.verify import DAMAGE, NOTE, SPARE, Finding, verify

FILES = RealFiles()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with something of everything, closed in order."""
    folder = tmp_path_factory.mktemp("model") / "data"
    with lamina.open(folder) as opened:
        for number in range(20):
            opened.jobs.add("mail", b"%d" % number * 20)
            opened.topic("orders").publish({"number": str(number)})
            opened.log("mine").append(b"%d" % number * 20)
        queue = opened.queues.create()
        sender = opened.queue(queue.sid)
        for number in range(5):
            sender.send(b"message %d" % number * 10)
        opened.queues.dump()
        sender.send(b"after the dump")
        with opened.store.session() as session:
            session.put(1, b"a", b"b")
    consumers.save(FILES, str(folder / "jobs"), "reader", 1, (1 << 63) - 1)
    with users.changing(str(folder)) as known:
        known["ann"] = users.User("ann", (Right.parse("jobs:write:mail.*"),), b"d" * 32)
    return folder


@pytest.fixture
def data(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "data"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def found(folder: Path, kind: str | None = None) -> list[Finding]:
    """What is of this kind; looking has changed nothing."""
    before = contents(folder)
    verdict = verify(str(folder))
    assert contents(folder) == before
    return [finding for finding in verdict.findings if kind is None or finding.kind == kind]


def newest(folder: Path, pattern: str) -> Path:
    return max(path for path in folder.glob(pattern) if path.is_file() and path.suffix != ".index")


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def asked(*words: object) -> Result:
    return CliRunner().invoke(log, [str(word) for word in words], standalone_mode=False)


def test_a_folder_with_something_of_everything_is_well(data: Path) -> None:
    verdict = verify(str(data))
    assert verdict.findings == [] and verdict.is_sound
    assert verdict.logs == 5 and verdict.files > 5 and verdict.records >= 60


def test_log_verify_takes_a_whole_data_folder(data: Path) -> None:
    result = asked("verify", data)
    assert result.return_value == 0 and "5 logs" in result.stdout and "no damage" in result.stdout
    flip(newest(data / "store", "pwal_*"), 30)
    flip(newest(data / "topics/orders", "*.dat"), 60)
    result = asked("verify", data, "--json")
    said = json.loads(result.stdout)
    assert result.return_value == 6 and not said["is_sound"]
    assert {each["part"] for each in said["findings"] if each["kind"] == DAMAGE} == {"store", "topics/orders"}


def test_one_bit_in_the_newest_dump_is_damage_to_all_who_look_and_is_never_repaired(data: Path) -> None:
    queues = data / "queues"
    for path in queues.glob("*.dump"):
        flip(path, path.stat().st_size // 3)
    dump = newest(queues, "*.dump")
    for log_file in queues.glob("smp-server-store-0.log*"):
        log_file.unlink()  # so that there is no way round it
    (damage,) = [each for each in found(data, DAMAGE) if each.file == dump.name]
    assert "never repaired in part" in damage.do
    (said,) = [each for each in look(str(data), deep=True) if dump.name in each.text]
    assert said.text == damage.text and said.do == damage.do and said.level == "problem"
    assert damage.text in asked("verify", queues).stdout and asked("verify", queues).return_value == 6
    before = contents(queues)
    assert asked("repair", queues, "--yes").return_value == 6
    assert {path: data for path, data in contents(queues).items() if path in before} == before
    with pytest.raises(LaminaError, match=r"\.dump"), lamina.open(data) as opened:
        assert opened.queues


def test_a_dump_that_a_start_can_go_round_is_not_needed(data: Path) -> None:
    dump = newest(data / "queues", "*.dump")
    flip(dump, dump.stat().st_size // 3)
    assert found(data, DAMAGE) == []
    assert {each.file for each in found(data, SPARE)} == {dump.name}
    assert asked("verify", data).return_value == 5
    with lamina.open(data) as opened:
        assert opened.queues.stats().messages == 6


@pytest.mark.parametrize("left", [None, 0, 8, 20])
@pytest.mark.parametrize("deep", [False, True])
def test_the_log_after_the_newest_dump_is_missed_by_all_who_look(data: Path, left: int | None, deep: bool) -> None:
    path = newest(data / "queues", "*.log")
    path.unlink() if left is None else path.write_bytes(path.read_bytes()[:left])
    (damage,) = found(data, DAMAGE)
    assert damage.file == path.name
    assert damage.text in [each.text for each in look(str(data), deep=deep) if each.level == "problem"]
    with pytest.raises(LaminaError, match=path.name), lamina.open(data) as opened:
        assert opened.queues


def test_a_missing_log_of_queues_is_damage_also_to_a_quick_look(data: Path) -> None:
    queues = data / "queues"
    newest(queues, "*.dump").unlink()
    path = queues / "smp-server-store-1.log"
    path.unlink()
    assert f"{path.name}, byte 0: the log is missing" in [each.text for each in found(data, DAMAGE)]
    quick = [each.text for each in look(str(data)) if each.level == "problem"]
    assert f"{path.name}, byte 0: the log is missing" in quick


@pytest.mark.parametrize("name", ["jobs/000000001.log.index", "topics/orders/checkpoint"])
def test_a_hint_is_never_damage_by_itself(data: Path, name: str) -> None:
    path = data / name
    for broken in (b"", path.read_bytes()[:-3], bytes(len(path.read_bytes()))):
        path.write_bytes(broken)
        assert [(each.kind, each.file) for each in found(data)] == [(NOTE, path.name)]
    assert asked("verify", data).return_value == 0
    with lamina.open(data) as opened:
        assert opened.topic("orders").stats().length == 20


def test_a_position_that_cannot_be_read_is_told_with_its_file(data: Path) -> None:
    flip(data / "jobs/consumers/reader", 30)
    (finding,) = found(data)
    assert (finding.kind, finding.part, finding.file) == (SPARE, "jobs", "consumers/reader")


def test_a_layout_of_journals_that_says_nothing_is_damage(data: Path) -> None:
    root = data / "queues/messages"
    root.mkdir()
    (root / "layout").write_text("parts=five")
    (finding,) = found(data, DAMAGE)
    assert finding.file == "messages/layout"
    (root / "layout").write_text("parts=0 chars=2\n")
    assert [each.file for each in found(data, DAMAGE)] == ["messages/layout"]


# -- control files ----------------------------------------------------------------------------------------------------


def damages(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    yield "removed", None
    for size in range(len(data)):
        yield f"cut to {size}", data[:size]
    for at in range(len(data)):
        for bit in range(8):
            yield f"bit {bit} of {at} flipped", data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
    for at in range(0, len(data), 512):
        yield f"zeroed at {at}", data[:at] + bytes(len(data[at : at + 512])) + data[at + 512 :]


def opened(files: MemoryFiles) -> object:
    """What a server would go by: the layout, and who may do what; or how it refuses."""
    try:
        layout = mark.check(files, "data")
        gate = Gate("data", files=files)
        return layout, {name: gate.user(name) for name in gate.names}
    except LaminaError as error:
        return error


@pytest.mark.parametrize("name", [mark.NAME, control.USERS])
def test_a_control_file_is_whole_or_refused_whatever_becomes_of_it(model: Path, name: str) -> None:
    names = (mark.NAME, control.USERS, control.USERS_LOCK)
    whole = {f"data/{each}": (model / each).read_bytes() for each in names} | {"data/jobs/append.lock": b""}
    expected = opened(MemoryFiles(whole))
    refused = 0
    for what, data in damages(whole[f"data/{name}"]):
        files = MemoryFiles({path: each for path, each in whole.items() if path != f"data/{name}" or data is not None})
        if data is not None:
            files.write(f"data/{name}", data)
        said = control.look(files, "data")
        outcome = opened(files)
        if isinstance(outcome, LaminaError):
            refused += 1
            assert any(each.is_damage and each.file == name for each in said), f"{what}: refused, and nobody said so"
        elif outcome != expected:
            assert said, f"{what}: something else is served, and nobody said so"
            assert outcome == (0, expected[1]), f"{what}: other users are served"  # type: ignore[index]
        else:
            assert not any(each.is_damage for each in said), f"{what}: nothing is wrong, and {said} says so"
    assert refused > 100


def test_users_that_are_gone_open_the_server_to_nobody(model: Path) -> None:
    for gone in ((control.USERS,), (control.USERS, mark.NAME)):
        names = {mark.NAME, control.USERS, control.USERS_LOCK} - set(gone)
        files = MemoryFiles({f"data/{name}": (model / name).read_bytes() for name in names})
        with pytest.raises(LaminaError, match=r"users\.json.*missing") as caught:
            Gate("data", files=files)
        assert "lamina user add" in caught.value.hint
        with users.changing("data", files) as known:
            known["bob"] = users.User("bob", (), b"e" * 32)
        assert Gate("data", files=files).names == ["bob"]


def test_a_folder_without_users_and_one_of_an_earlier_lamina_open_as_before() -> None:
    files = MemoryFiles({"data/lamina.json": b'{"format": 2}\n'})
    assert not Gate("data", files=files).is_needed
    with users.changing("data", files) as known:
        known["ann"] = users.User("ann", (), b"d" * 32)
    unsealed = json.loads(files.contents()["data/users.json"])
    del unsealed["crc32c"]
    files.write("data/users.json", json.dumps(unsealed).encode())
    assert Gate("data", files=files).names == ["ann"]
    assert json.loads(files.contents()["data/lamina.json"]) == {"format": 2, "users": True}
    assert control.look(files, "data") == []


def test_a_power_cut_while_users_are_added_refuses_nobody_and_loses_none() -> None:
    disk = PowerLoss({"data/lamina.json": b'{"format": 2}\n'})
    for name in ("ann", "bob"):
        with users.changing("data", disk) as known:
            known[name] = users.User(name, (), b"d" * 32)
        disk.note(name)
    seen = set()
    for state in disk.states():
        gate = Gate("data", files=state.files)
        names = [] if not gate.is_needed else gate.names
        assert set(state.notes) <= set(names), f"{state.label}: users that were added are gone"
        assert not [each for each in control.look(state.files, "data") if each.is_damage], state.label
        seen.add(tuple(names))
    assert seen == {(), ("ann",), ("ann", "bob")}
