"""Scenarios of the store in memory: files built from what the scenario says is in them, restored, and dumped.

The scenarios are about files of lines; ours are the same records in frames, under the same names.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64decode
from pathlib import Path
from typing import Any

import pytest

from golden.queue_words import KNOWN_IN_MEMORY, OUR_CHOICE, known
from lamina.engines.queues import codec, store_files
from lamina.engines.queues.message import Message, Queue
from lamina.engines.queues.restoring import Restored, RestoreRefused, restore
from lamina.engines.queues.state import State
from lamina.log import kernel
from lamina.log.files.real import RealFiles
from lamina.log.formats import QUEUE_STORE
from queues_store_lab import StoreLab

_FIRST_NS = 1_600_000_000 * 10**9


def run(scenario: dict[str, Any], folder: Path) -> None:
    """Check one scenario in ``folder``, which is empty."""
    _build(scenario, folder)
    before = _contents(folder)
    assert sorted(before) == sorted(scenario["files_present"])
    if scenario["outcome"] == "refused":
        _check_refused(scenario, folder)
        assert _contents(folder) == before, "a refusal changed something"
    else:
        found = _restore(scenario, folder)
        _check_found(scenario, found)
    if scenario.get("files_after_next_dump") is not None:
        _check_next_dump(scenario, folder)


# -- building --------------------------------------------------------------------------------------------------------


def _build(scenario: dict[str, Any], folder: Path) -> None:
    moment = _FIRST_NS
    for name in sorted(scenario["logical"], key=_order):
        described = scenario["logical"][name]
        payloads = [_payload(record) for record in described["records"]]
        torn = described["torn_tail_bytes"]
        if ".dump" in name and not torn:
            queues = sum(record["op"] == "CREATE" for record in described["records"])
            payloads.append(codec.end(queues, len(payloads) - queues))
        data = QUEUE_STORE.header + kernel.encode_many(moment, payloads)
        moment += len(payloads)
        if torn:
            data += kernel.encode_many(moment, [b"\x96" + bytes(torn)])[:torn]
        (folder / name).write_bytes(data)
        moment += 1000


def _order(name: str) -> tuple[int, str]:
    """In the order of time: a log, then the dump that covers it."""
    return int(name.split("-")[-1].split(".")[0]), {"log": "0"}.get(name.rpartition(".")[2], "1")


def _payload(record: dict[str, Any]) -> bytes:
    op = record["op"]
    if op == "UNREADABLE":
        return record["text"].encode() or b"?"
    rid = _id(record["rid"])
    if op == "CREATE":
        is_off = record.get("status", "active") == "off"
        return codec.create(Queue(rid, _key(record["rk"]), _id(record["sid"]), _key(record["sk"]), is_off))
    if op == "MSG":
        return codec.message(rid, Message(_id(record["id"]), record["ts"], b"", b64decode(record["body_b64"])))
    if op == "ACK":
        return codec.ack(rid, _id(record["id"]))
    if op == "SECURE":
        key = _key(record["key"])
        assert key is not None
        return codec.secure(rid, key)
    return {"SUSPEND": codec.suspend, "DELETE": codec.delete}[op](rid)


def _id(text: str) -> bytes:
    return urlsafe_b64decode(text)


def _key(text: str | None) -> bytes | None:
    return urlsafe_b64decode(text) if text else None


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# -- checking --------------------------------------------------------------------------------------------------------


def _restore(scenario: dict[str, Any], folder: Path, *, force: bool = False) -> Restored:
    ttl = scenario["message_ttl_seconds"]
    return restore(RealFiles(), str(folder), now=scenario["now"], ttl=ttl, force=force)


def _check_found(scenario: dict[str, Any], found: Restored) -> None:
    assert found.load_order == scenario["load_order"]
    expected = [(each["file"], _known(each["reason"])) for each in scenario["ignored"]]
    assert sorted((file, _known(reason)) for file, reason in found.ignored) == sorted(expected)
    _check_warnings(scenario, found)
    assert _shown(found.state) == _expected_queues(scenario["queues"])
    assert found.next_number == scenario["next_log"]
    assert found.expired == len(scenario.get("expired", []))


def _check_warnings(scenario: dict[str, Any], told: Restored | RestoreRefused) -> None:
    expected = [_place(each["kind"], each["file"], each.get("record")) for each in scenario["warnings"]]
    shown = [_place(each.kind, each.file, each.record) for each in told.warnings]
    assert sorted(shown, key=str) == sorted(expected, key=str)


def _known(word: str) -> str:
    return known(word, KNOWN_IN_MEMORY)


def _place(kind: str, file: str, record: int | None) -> tuple[str, str, int | None]:
    return _known(kind), file, None if _known(kind) == OUR_CHOICE else record


def _check_refused(scenario: dict[str, Any], folder: Path) -> None:
    with pytest.raises(RestoreRefused) as refused:
        _restore(scenario, folder)
    _check_warnings(scenario, refused.value)
    assert scenario["warnings"][-1]["file"] in str(refused.value)
    forced = scenario["forced"]
    found = _restore(scenario, folder, force=True)
    assert found.load_order == forced["load_order"]
    assert found.next_number == forced["next_log"]
    assert _shown(found.state) == _expected_queues(forced["queues"])


def _shown(state: State) -> dict[bytes, tuple[object, ...]]:
    for queue in state.queues.values():
        assert state.senders[queue.sid] is queue
    return {
        rid: (queue.sid, queue.skey, "off" if queue.is_off else "active", [each.id for each in queue.messages])
        for rid, queue in state.queues.items()
    }


def _expected_queues(queues: dict[str, Any]) -> dict[bytes, tuple[object, ...]]:
    return {
        _id(queue["rid"]): (
            _id(queue["sid"]),
            _key(queue["sender_key"]),
            queue["status"],
            [_id(each["id"]) for each in queue["messages"]],
        )
        for queue in queues.values()
    }


def _check_next_dump(scenario: dict[str, Any], folder: Path) -> None:
    lab = StoreLab(RealFiles(), str(folder))
    assert store_files.log_name(scenario["next_log"]).name in lab.names()
    before = lab.seen()
    report = lab.dumper.dump()
    assert report is not None
    assert report.number == scenario["next_dump"]
    assert lab.names() == scenario["files_after_next_dump"]
    lab.engine.close()
    again = StoreLab(RealFiles(), str(folder))
    assert again.seen() == before
    again.engine.close()
