"""Promises of folding in another process: the same dump, errors that come back, and an end when nobody waits."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lamina.engines.queues.fold_worker import Stopper, fold_elsewhere
from lamina.engines.queues.folding import FoldStopped, fold
from lamina.engines.queues.restoring import RestoreRefused
from lamina.errors import DiskError
from lamina.log.files.real import RealFiles
from lamina.testing import MemoryFiles
from queues_store_lab import FOLDER, NOW, TTL, StoreLab, create, file_of, message, random_records

WORKER = [sys.executable, "-P", "-m", "lamina.engines.queues.fold_worker"]


def real_store(folder: Path, *records: bytes) -> str:
    (folder / "smp-server-store-0.log").write_bytes(file_of(*records))
    return str(folder)


def test_the_other_process_folds_as_this_one_does(tmp_path: Path) -> None:
    records = random_records(random.Random(7), 200)
    folder = real_store(tmp_path, *records)
    report = fold_elsewhere(RealFiles(), folder, 0, now=NOW, ttl=TTL)
    there = (tmp_path / "smp-server-store-0.dump").read_bytes()
    here = MemoryFiles({f"{FOLDER}/smp-server-store-0.log": file_of(*records)})
    assert fold(here, FOLDER, 0, now=NOW, ttl=TTL).messages == report.messages
    assert here.contents()[f"{FOLDER}/smp-server-store-0.dump"] == there


def test_the_other_process_tells_why_it_could_not(tmp_path: Path) -> None:
    folder = real_store(tmp_path, create("a"), b"?", create("b"))
    with pytest.raises(RestoreRefused) as refused:
        fold_elsewhere(RealFiles(), folder, 0, now=NOW, ttl=TTL)
    assert (refused.value.kind, refused.value.record) == ("bad_record", 2)
    with pytest.raises(DiskError):
        fold_elsewhere(RealFiles(), folder + "/nowhere", 0, now=NOW, ttl=TTL)


def test_stopping_kills_the_other_process_and_leaves_nothing(tmp_path: Path) -> None:
    folder = real_store(tmp_path, create("a"))
    (tmp_path / "smp-server-store-0.dump.saving").write_bytes(b"what it had written")
    stopper = Stopper()
    stopper.stop()
    with pytest.raises(FoldStopped):
        fold_elsewhere(RealFiles(), folder, 0, now=NOW, ttl=TTL, stopper=stopper)
    assert [path.name for path in tmp_path.iterdir()] == ["smp-server-store-0.log"]


def test_the_other_process_ends_with_the_one_that_asked(tmp_path: Path) -> None:
    messages = [message("a", f"m{number}", body=bytes(3000)) for number in range(4000)]
    folder = real_store(tmp_path, create("a"), *messages)
    task = {"folder": folder, "number": 0, "now": NOW, "ttl": TTL}
    result = subprocess.run(
        WORKER,
        input=json.dumps(task).encode() + b"\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["smp-server-store-0.log"]


def test_the_dumper_of_a_real_folder_can_be_cancelled_from_another_thread(tmp_path: Path) -> None:
    lab = StoreLab(RealFiles(), str(tmp_path))
    lab.do(create("a"), *(message("a", f"m{number}", body=bytes(3000)) for number in range(2000)))

    def cancel(name: str) -> None:
        thread = threading.Thread(target=dumper.cancel)
        thread.start()
        thread.join()

    dumper = lab.make_dumper(step=cancel)
    with pytest.raises(FoldStopped):
        dumper.dump()
    assert not [name for name in lab.names() if name.endswith(".saving")]
    lab.engine.close()


def test_the_other_process_ends_in_order_while_its_input_is_open(tmp_path: Path) -> None:
    folder = real_store(tmp_path, create("a"))
    pipe = subprocess.PIPE
    with subprocess.Popen(WORKER, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(json.dumps({"folder": folder, "number": 0, "now": NOW, "ttl": TTL}).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["report"]["queues"] == 1
        assert process.wait(60) == 0
        assert process.stderr.read() == b""
