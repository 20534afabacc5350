"""Real processes, really killed: nothing acknowledged is lost under any policy, over many crashes of one folder."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import pytest

from lamina.log import Log, Reader

ROUNDS = 8 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))

WRITER = """
import sys
from lamina.log import Level, Log, LogOptions, sync
folder, policy, start = sys.argv[1], sync.parse(sys.argv[2]), int(sys.argv[3])
log = Log.open(folder, options=LogOptions(sync=policy, segment_bytes=20_000))
number = start
while True:
    size = number * 37 % 400
    log.append(b"%d:" % number + b"x" * size, until=policy.level)
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
    number += 1
"""


def number_of(payload: bytes) -> int:
    number, _, rest = payload.partition(b":")
    assert rest == b"x" * (int(number) * 37 % 400), "an altered record"
    return int(number)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["always", "interval:5", "os"])
def test_nothing_acknowledged_is_lost_over_many_kills(tmp_path, policy: str) -> None:
    rng = random.Random(policy)
    folder = str(tmp_path)
    start = 0
    for _ in range(ROUNDS):
        command = [sys.executable, "-c", WRITER, folder, policy, str(start)]
        acknowledged = start - 1
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            goal = start + rng.randint(1, 300)
            for line in writer.stdout:
                acknowledged = int(line)
                if acknowledged >= goal:
                    writer.send_signal(signal.SIGKILL)
                    break
            acknowledged = max([acknowledged, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        found = [number_of(record.payload) for record in Reader(folder).read()]
        assert found == list(range(len(found)))
        assert len(found) > acknowledged
        start = len(found)
    with Log.open(folder) as log:
        assert len(list(log.reader.read())) == start


FOLLOWER = """
import sys
from lamina.log import Reader
for record in Reader(sys.argv[1]).read().follow(timeout=20):
    number = int(record.payload.partition(b":")[0])
    print(number, flush=True)
    if number >= int(sys.argv[2]):
        break
"""


def test_a_reader_in_another_process_follows_through_rotations_and_a_crash_of_the_writer(tmp_path) -> None:
    folder = str(tmp_path)
    goal = 600
    follower = subprocess.Popen([sys.executable, "-c", FOLLOWER, folder, str(goal)], stdout=subprocess.PIPE, text=True)
    start = 0
    while start <= goal:
        writer = subprocess.Popen([sys.executable, "-c", WRITER, folder, "os", str(start)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        for _ in range(300):
            writer.stdout.readline()
        writer.kill()
        writer.wait()
        writer.stdout.close()
        start = len(list(Reader(folder).read()))
    seen, _ = follower.communicate(timeout=60)
    assert [int(line) for line in seen.split()] == list(range(goal + 1))
