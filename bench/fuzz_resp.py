"""Random and mutated commands for a real topic server: it must live, serve others meanwhile, and not grow.

    python -m bench.fuzz_resp [N=200000] [--seed SEED] [--json]

Each input is one of the commands of the door with words that suit it more or less (resp_grammar.py), every second one
with something done to it: a word changed, dropped or doubled, bytes flipped, a wrong size or count, a cut, junk, a line
in place of an array. Many go over one connection, as in fuzz_door.py, which does the same to the workq door.

Beside it a canary does plain work on a connection of its own and must be answered within a second throughout. What the
server writes to standard error is a problem, too: a command that failed, or a fault that asyncio caught. Topics are
deleted now and then, so memory has a bound. Exit 1 if there was a problem; the same seed makes the same input.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from ctypes import CDLL
from dataclasses import asdict
from typing import BinaryIO, cast

from bench.fuzz_door import HOST, INPUTS, MIB, MOST_GROWTH, MOST_WAIT_S, Canary, Fuzz, Summary, memory_mib
from bench.resp_grammar import RespGrammar, packed

STEADY = 2000
"""Inputs after which the memory is what it is compared with: by then each kind of command was seen."""
_EXPECTED = ("a web browser spoke to the RESP door", "logins were refused since the start")
_DIE_WITH_PARENT = 1


@contextlib.contextmanager
def serving(folder: str) -> Iterator[tuple[subprocess.Popen[bytes], int, str]]:
    """A server in a process of its own, its port, and the file with what it complains of."""
    libc, complaints = CDLL(None), os.path.join(folder, "stderr")
    words = [os.path.join(os.path.dirname(sys.executable), "lamina"), "serve", "--data", os.path.join(folder, "data")]
    words += ["--resp", f"{HOST}:0", "--workq", "off", "--sync", "os", "--segment-bytes", str(MIB)]
    with open(complaints, "wb") as stderr:
        process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=stderr,
            preexec_fn=lambda: libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL),
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        if f"resp on {HOST}:" not in line:
            with open(complaints) as said:
                raise RuntimeError(f"the server did not start: {line}{said.read()}")
        yield process, int(line.split(f"resp on {HOST}:")[1].split(",")[0]), complaints
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


class RespCanary(Canary):
    """Adds an entry, reads it and deletes the topic, all at once: nobody can come in between."""

    last_s = 0.0
    """What the newest answer took."""

    def _work(self, connection: socket.socket, file: object) -> None:
        song = str(uuid.uuid4()).encode()
        commands = [
            [b"MULTI"],
            [b"XADD", b"canary", b"*", b"f", song],
            [b"XREVRANGE", b"canary", b"+", b"-"],
            [b"DEL", b"canary"],
            [b"EXEC"],
        ]
        lines = [b"+OK", b"+QUEUED", b"+QUEUED", b"+QUEUED", b"*3"]
        started = time.monotonic()
        connection.sendall(b"".join(map(packed, commands)))
        got = [cast(BinaryIO, file).readline().removesuffix(b"\r\n") for _ in range(17)]
        self.last_s = time.monotonic() - started
        self.worst_s = max(self.worst_s, self.last_s)
        self.asked += 1
        size, id = got[5:7]
        lines += [size, id, b"*1", b"*2", size, id, b"*2", b"$1", b"f", b"$%d" % len(song), song, b":1"]
        assert got == lines, f"answered {got}, not {lines}"


class RespFuzz(Fuzz):
    def __init__(self, port: int, seed: int, canary: RespCanary) -> None:
        super().__init__(port, seed)
        self._grammar = RespGrammar(self._chance)
        self._canary = canary

    def _hear(self, connection: socket.socket, seconds: float) -> bool:
        """On a busy machine all take longer: whoever is not answered is given up only if the canary is."""
        return super()._hear(connection, max(seconds, 2 * self._canary.last_s) if seconds else 0)

    def _receive(self, connection: socket.socket) -> bool:
        """Take what is there. False at the end of the connection."""
        try:
            while data := connection.recv(1 << 18):
                self.summary.answers += data.count(b"\r\n")  # lines, that is: what matters is that there are some
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


def most_growth(inputs: int) -> float:
    """MiB. After few inputs it has to be little, or a leak would not be seen in a short run."""
    return min(MOST_GROWTH, 16 + inputs / 1000)


def run(inputs: int, seed: int) -> Summary:
    with tempfile.TemporaryDirectory() as folder, serving(folder) as (process, port, complaints):
        canary = RespCanary(port)
        fuzz = RespFuzz(port, seed, canary)
        summary, started, before = fuzz.summary, time.monotonic(), 0.0
        canary.start()
        try:
            while summary.inputs < inputs and process.poll() is None and not canary.problem:
                fuzz.connection(inputs - summary.inputs)
                summary.memory_mib = memory_mib(process.pid)
                if summary.inputs >= STEADY:
                    before = before or summary.memory_mib
                    summary.grown_mib = max(summary.grown_mib, summary.memory_mib - before)
        except OSError as error:
            summary.problems.append(f"a connection failed: {error!r}")
        summary.seconds = time.monotonic() - started
        canary.stop()
        summary.canary_asked, summary.canary_worst_ms = canary.asked, canary.worst_s * 1000
        with open(complaints, errors="replace") as said:
            lines = [line for line in said.read().splitlines() if not any(text in line for text in _EXPECTED)]
        summary.problems += [
            text
            for is_so, text in (
                (process.poll() is not None, f"the server ended with {process.returncode} after {fuzz.last[-300:]!r}"),
                (canary.problem, canary.problem),
                (canary.worst_s > MOST_WAIT_S, f"the canary waited {canary.worst_s:.1f} s"),
                (summary.grown_mib > most_growth(inputs), f"memory grew by {summary.grown_mib:.0f} MiB"),
                (lines, f"{len(lines)} lines on standard error: {' / '.join(lines[-8:])[:1000]}"),
            )
            if is_so
        ]
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz_resp", description="Random input for the RESP door.")
    parser.add_argument("inputs", nargs="?", type=int, default=INPUTS, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="the summary for programs")
    words = parser.parse_args()
    summary = run(words.inputs, words.seed)
    print(json.dumps(asdict(summary)) if words.json else str(summary).replace("fuzz_door", "fuzz_resp", 1))
    return 1 if summary.problems else 0


if __name__ == "__main__":
    sys.exit(main())
