"""Random and mutated input for a real workq server: it must live, serve others meanwhile, and not grow.

    python -m bench.fuzz_door [N=200000] [--seed SEED] [--json]

Each input is a command made by the grammar below, mostly with something done to it: a word changed, dropped or doubled,
bytes flipped, a wrong size, a cut, junk. Many go over one connection, a few at a time and in pieces of any size; when
the server hangs up, or after a while, comes the next connection. Some read no answer, some leave in the middle.

Beside it a canary does plain work on a connection of its own and must be answered within a second throughout. What the
server writes to standard error is a problem, too: a fault that asyncio caught. Jobs and queues come from small pools,
so memory has a bound. Exit 1 if there was a problem; the same seed makes the same input.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

INPUTS = 200_000
PER_CONNECTION = 60
MOST_SILENT = 1  # sends without an answer; then a command waits for long, or all goes into its payload
MOST_GROWTH = 64  # MiB
MOST_WAIT_S = 1.0
HOST = "127.0.0.1"
CRLF = b"\r\n"
MIB = 1 << 20
_ANSWER = re.compile(rb"^[+-][A-Z]", re.MULTILINE)

# -- the grammar ---------------------------------------------------------------------------------------------------

IDS = [b"%08x-0000-4000-8000-%012x" % (number, number) for number in range(150)]
NAMES = [b"q%d" % number for number in range(8)] + [b"n" * 255, b"-_.9Z"]
SMALL = [b"0", b"0", b"0", b"0", b"1", b"5"]
COMMANDS: dict[bytes, str] = {  # i id, n name, t ttr, l ttl, w wait, s size, o offset, m limit, @ time, : state
    b"add": "intls",
    b"schedule": "intl@s",
    b"run": "intws",
    b"lease": "nw",
    b"complete": "is",
    b"fail": "is",
    b"bury": "is",
    b"delete": "i",
    b"result": "iw",
    b"touch": "it",
    b"release": "iw",
    b"redrive": "nm",
    b"pause": "n",
    b"resume": "n",
    b"inspect": "",
}
INSPECTS = [b"server", b"queue %n", b"queues %o %m", b"jobs %n %o %m", b"scheduled-jobs %n %o %m", b"job %i"]
INSPECTS += [b"state %n %: %o %m"]
FLAGS = [b"-priority=%d", b"-max-attempts=%d", b"-max-fails=%d", b"-backoff=%d", b"-unique=k%d", b"-max=%d", b"-x=%d"]
ODD = [
    *(b"", b"-", b"=", b"-=", b"-a=", b"-a", b"--", b"+", b"+1", b"-1", b"-0", b"00000000000000000000000000000001"),
    *(b"1e3", b"0x10", b"1_0", b"4294967296", b"18446744073709551616", b"9" * 400, b"2147483648", b"-2147483649"),
    *(b"1048575", b"1048577", b"86400001", b"\xff\xfe", b"\x00", b"\r", b"\t", b"add", b"inspect", b"{}", b"n" * 256),
    *(b"6ba7b810-9dad-11d1-80b4-00c04fd430c4", b"urn:uuid:12345678-1234-4234-8234", b"0" * 32, b"9999-12-31T23:59:59Z"),
    *(b"0001-01-01T00:00:00Z", b"2099-02-30T00:00:00Z", b"{00000001-0000-4000-8000-000000000001}", "ü€".encode()),
]
STATES = [b"ready", b"scheduled", b"leased", b"completed", b"failed"]


class Grammar:
    """Makes inputs."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.words: dict[str, Callable[[], bytes]] = {
            "i": lambda: chance.choice(IDS),
            "n": lambda: chance.choice(NAMES),
            "t": lambda: chance.choice([b"1", b"20", b"1000", b"86400000"]),
            "l": lambda: chance.choice([b"1", b"500", b"60000", b"2592000000"]),
            "w": lambda: chance.choice(SMALL),
            "o": lambda: chance.choice([b"0", b"0", b"3", b"4294967295"]),
            "m": lambda: chance.choice([b"1", b"10", b"100"]),
            "@": self._time,
            ":": lambda: chance.choice(STATES),
        }

    def input(self) -> bytes:
        kind = self.chance.random()
        if kind < 0.04:
            return self.junk()
        command = self.command()
        for _ in range(0 if kind < 0.45 else self.chance.choice([1, 1, 1, 2, 4])):
            command = self.mutated(command)
        return command

    def command(self) -> bytes:
        word = self.chance.choice(list(COMMANDS))
        if word == b"inspect":
            text = self.chance.choice(INSPECTS)
            for letter, make in self.words.items():
                while (place := b"%" + letter.encode()) in text:
                    text = text.replace(place, make(), 1)
            return b"inspect " + text + CRLF
        payload = self._payload()
        arguments = [b"%d" % len(payload) if each == "s" else self.words[each]() for each in COMMANDS[word]]
        if word == b"lease" and self.chance.random() < 0.3:
            arguments[:0] = self.chance.choices(NAMES, k=self.chance.choice([1, 5, 40]))
        while self.chance.random() < 0.2:
            arguments.append(self.chance.choice(FLAGS) % self.chance.choice([0, 1, 3, 255, -5]))
        line = b" ".join([word, *arguments]) + CRLF
        return line + payload + CRLF if COMMANDS[word].endswith("s") else line

    def _payload(self) -> bytes:
        kind = self.chance.random()
        if kind < 0.1:
            return b"lease q0 0\r\ndelete %b\r\n" % IDS[0]
        size = self.chance.choice([0, 1, 30, 300]) if kind < 0.98 else self.chance.choice([4096, 70_000])
        return self.chance.randbytes(size)

    def _time(self) -> bytes:
        ahead = self.chance.choice([-3600, -1, 0, 1, 60, 10**8])
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_800_000_000 + ahead)).encode()

    def junk(self) -> bytes:
        kind = self.chance.randrange(5)
        if kind == 0:
            return self.chance.randbytes(self.chance.choice([1, 10, 1000]))
        if kind == 1:
            return b"x" * self.chance.choice([5_000, 200_000]) + self.chance.choice([CRLF, CRLF, CRLF, b"\n", b""])
        if kind == 2:
            return self.chance.choice([b"\n", CRLF, b"\r", b" \r\n", b"\0\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
        if kind == 3:
            return b"lease " + b"a " * 3000 + b"5\r\n"
        return b"add %b q0 1 1 %d\r\n" % (self.chance.choice(IDS), self.chance.choice([10**9, MIB + 1, -1]))

    def mutated(self, data: bytes) -> bytes:
        chance = self.chance
        line, end, rest = data.partition(CRLF)
        words = line.split(b" ")
        at = chance.randrange(len(words))
        kind = chance.randrange(11)
        if kind <= 2:
            words[at] = chance.choice(ODD)
        elif kind == 3:
            del words[at]
        elif kind == 4:
            words.insert(at, chance.choice([words[at], *ODD]))
        elif kind == 5:
            words[at] = words[at].swapcase() if chance.random() < 0.5 else words[at] + chance.choice(ODD)
        elif kind == 6:
            words.insert(at, chance.choice(FLAGS) % chance.randrange(300))
        elif kind == 7:
            return self._with_hurt_bytes(data)
        elif kind == 8:
            return data[: chance.randrange(len(data) + 1)]
        elif kind == 9:
            end = chance.choice([b"\n", b"\r", b"", b"\r\r\n", b"\n\r"])
        else:
            rest = rest[: chance.randrange(len(rest) + 1)] + chance.randbytes(chance.choice([0, 1, 5]))
        return b" ".join(words) + end + rest

    def _with_hurt_bytes(self, data: bytes) -> bytes:
        hurt = bytearray(data or b" ")
        for _ in range(self.chance.choice([1, 1, 3])):
            hurt[self.chance.randrange(min(len(hurt), 200))] = self.chance.randrange(256)
        return bytes(hurt)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The same bytes, split anywhere."""
        at, most = 0, self.chance.choice([7, 300, 5000, 1 << 20, 1 << 20])
        while at < len(data):
            size = self.chance.randint(1, most)
            yield data[at : at + size]
            at += size
            most = max(most, len(data) // 50)


# -- the server ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(folder: str) -> Iterator[tuple[subprocess.Popen[bytes], int, str]]:
    """A server in a process of its own, its port, and the file with what it complains of."""
    libc, complaints = ctypes.CDLL(None), os.path.join(folder, "stderr")
    words = [os.path.join(os.path.dirname(sys.executable), "lamina"), "workq-server", "-listen", f"{HOST}:0"]
    words += ["-cmdlog-path", os.path.join(folder, "jobs"), "-cmdlog-sync", "os", "-cmdlog-clean-int", "500"]
    words += ["-cmdlog-seg-size", str(4 * MIB)]
    with open(complaints, "wb") as stderr:
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=stderr, preexec_fn=lambda: libc.prctl(1, signal.SIGKILL)
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        if f"{HOST}:" not in line:
            with open(complaints) as said:
                raise RuntimeError(f"the server did not start: {line}{said.read()}")
        yield process, int(line.split(f"{HOST}:")[1].split(",")[0]), complaints
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def memory_mib(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


class Canary(threading.Thread):
    """Does plain work and notes the longest wait for an answer."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._is_over = threading.Event()
        self.asked = 0
        self.worst_s = 0.0
        self.problem = ""

    def run(self) -> None:
        try:
            with socket.create_connection((HOST, self._port), timeout=30) as connection:
                file = connection.makefile("rb")
                while not self._is_over.wait(0.01):
                    self._work(connection, file)
        except (OSError, AssertionError) as error:
            self.problem = f"canary: {error!r}"

    def _work(self, connection: socket.socket, file: object) -> None:
        id = str(uuid.uuid4()).encode()
        add = b"add %b canary 60000 60000 4\r\nsing\r\n" % id
        leased = b"+OK 1\r\n%b canary 60000 4\r\nsing\r\n" % id
        steps = [(add, b"+OK\r\n"), (b"lease canary 1000\r\n", leased), (b"delete %b\r\n" % id, b"+OK\r\n")]
        for command, expected in steps:
            started = time.monotonic()
            connection.sendall(command)
            got = file.read(len(expected))  # type: ignore[attr-defined]
            self.worst_s = max(self.worst_s, time.monotonic() - started)
            self.asked += 1
            assert got == expected, f"{command!r} was answered {got!r}"

    def stop(self) -> None:
        self._is_over.set()
        self.join(35)


# -- the run -------------------------------------------------------------------------------------------------------


@dataclass
class Summary:
    inputs: int = 0
    connections: int = 0
    hung_up: int = 0
    answers: int = 0
    seconds: float = 0.0
    canary_asked: int = 0
    canary_worst_ms: float = 0.0
    memory_mib: float = 0.0
    grown_mib: float = 0.0
    seed: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        verdict = "; ".join(self.problems) or "no problem"
        return (
            f"fuzz_door: {self.inputs} inputs over {self.connections} connections in {self.seconds:.0f} s, "
            f"{self.hung_up} hung up on, {self.answers} answers; canary asked {self.canary_asked}, "
            f"worst {self.canary_worst_ms:.0f} ms; memory {self.memory_mib:.0f} MiB, grown by {self.grown_mib:.0f} MiB "
            f"at most; seed {self.seed}: {verdict}"
        )


class Fuzz:
    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._chance = random.Random(seed)
        self._grammar = Grammar(self._chance)
        self.summary = Summary(seed=seed)
        self.last = b""
        """What the newest connection was sent."""

    def connection(self, most: int) -> None:
        """Up to ``most`` inputs over a new connection, until the server hangs up or it is enough."""
        left = min(most, self._chance.randint(1, 2 * PER_CONNECTION))
        reads, leaves = self._chance.random() < 0.9, self._chance.random() < 0.1
        self.last, silent = b"", 0
        self.summary.connections += 1
        with socket.create_connection((HOST, self._port), timeout=30) as connection:
            connection.setblocking(False)
            while left > 0:
                inputs = [self._grammar.input() for _ in range(min(left, self._chance.choice([1, 1, 2, 8])))]
                left -= len(inputs)
                self.summary.inputs += len(inputs)
                self.last += b"".join(inputs)
                heard = self.summary.answers
                if not self._say(connection, b"".join(inputs), reads=reads):
                    self.summary.hung_up += 1
                    return
                silent = silent + 1 if heard == self.summary.answers else 0
                if silent > MOST_SILENT and reads:
                    return
            if leaves:
                return
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            self._hear(connection, 0.02 if reads else 0)

    def _say(self, connection: socket.socket, data: bytes, *, reads: bool) -> bool:
        """False if the server hung up."""
        return all(self._send(connection, piece, reads=reads) for piece in self._grammar.pieces(data)) and (
            not reads or self._hear(connection, 0.004)
        )

    def _hear(self, connection: socket.socket, seconds: float) -> bool:
        """Wait for answers, but not long: a command may wait itself. False if the server hung up."""
        return not select.select([connection], [], [], seconds)[0] or self._receive(connection)

    def _send(self, connection: socket.socket, piece: bytes, *, reads: bool) -> bool:
        """False if the server hung up. Who does not read gives up when nothing can be sent any more."""
        end = time.monotonic() + (5 if reads else 0.02)
        while piece:
            if reads and not self._receive(connection):
                return False
            try:
                piece = piece[connection.send(piece) :]
            except BlockingIOError:
                if time.monotonic() > end:
                    return True
                time.sleep(0.001)
            except OSError:
                return False
        return True

    def _receive(self, connection: socket.socket) -> bool:
        """Take what is there. False at the end of the connection."""
        try:
            while data := connection.recv(1 << 18):
                self.summary.answers += len(_ANSWER.findall(data))
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


def run(inputs: int, seed: int) -> Summary:
    with tempfile.TemporaryDirectory() as folder, serving(folder) as (process, port, complaints):
        fuzz, canary = Fuzz(port, seed), Canary(port)
        summary, started, before = fuzz.summary, time.monotonic(), 0.0
        canary.start()
        try:
            while summary.inputs < inputs and process.poll() is None and not canary.problem:
                fuzz.connection(inputs - summary.inputs)
                summary.memory_mib = memory_mib(process.pid)
                before = before or summary.memory_mib
                summary.grown_mib = max(summary.grown_mib, summary.memory_mib - before)
        except OSError as error:
            summary.problems.append(f"a connection failed: {error!r}")
        summary.seconds = time.monotonic() - started
        canary.stop()
        summary.canary_asked, summary.canary_worst_ms = canary.asked, canary.worst_s * 1000
        with open(complaints, errors="replace") as said:
            lines = said.read().splitlines()
        summary.problems += [
            text
            for is_so, text in (
                (process.poll() is not None, f"the server ended with {process.returncode} after {fuzz.last[-300:]!r}"),
                (canary.problem, canary.problem),
                (canary.worst_s > MOST_WAIT_S, f"the canary waited {canary.worst_s:.1f} s"),
                (summary.grown_mib > MOST_GROWTH, f"memory grew by {summary.grown_mib:.0f} MiB"),
                (lines, f"{len(lines)} lines on standard error: {' / '.join(lines[-4:])[:400]}"),
            )
            if is_so
        ]
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz_door", description="Random input for the workq door.")
    parser.add_argument("inputs", nargs="?", type=int, default=INPUTS, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="the summary for programs")
    words = parser.parse_args()
    summary = run(words.inputs, words.seed)
    print(json.dumps(asdict(summary)) if words.json else summary)
    return 1 if summary.problems else 0


if __name__ == "__main__":
    sys.exit(main())
