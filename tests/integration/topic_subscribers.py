"""Many subscribers of one topic in one process, as light as can be: run it with PORT KEY SUBSCRIBERS ENTRIES.

Each waits with XREAD BLOCK from ``$`` on, and goes on from the last id it has seen. It is right if what it gets is
numbered 0, 1, 2 and so on. It says ``waiting`` when all have asked, and at the end, as JSON, what each has got.

Some take few at a time and some many. Every tenth stops asking after its first answer until another has got
everything: by then it has fallen far behind.
"""

from __future__ import annotations

import hashlib
import json
import re
import select
import socket
import sys
import time

HOST = "127.0.0.1"
COUNTS = (20, 100, 1000)
LAZY = 10
STALL_S = 60.0
HEAD = 5  # lines of an answer in front of the first entry: *1 *2 $ key *N
EACH = 8  # of an entry: *2 $ id *2 $ name $ value, and no value has a line end
_ENTRY = re.compile(rb"\*2\r\n\$\d+\r\n(\d+-\d+)\r\n\*2\r\n\$1\r\nn\r\n\$\d+\r\n(\d+):[^\r\n]*\r\n")
_COUNT = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r\n]+\r\n\*(\d+)\r\n")


class Subscriber:
    """One connection."""

    def __init__(self, number: int, port: int, key: bytes) -> None:
        self.is_lazy = number % LAZY == 0
        self.got = 0
        self.digest = hashlib.sha256()
        self.problem = ""
        self._key, self._count = key, COUNTS[number % len(COUNTS)]
        self._last, self._data = b"$", b""
        self.socket = socket.create_connection((HOST, port), timeout=STALL_S)

    def ask(self) -> None:
        """For what comes behind the last entry it has."""
        words = (b"XREAD", b"COUNT", b"%d" % self._count, b"BLOCK", b"0", b"STREAMS", self._key, self._last)
        self.socket.sendall(b"*8\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))

    def hear(self) -> bool:
        """True if an answer is whole. What it says is counted, and ``problem`` says what is wrong with it."""
        data = self.socket.recv(1 << 18)
        if not data:
            self.problem = f"hung up on after {self.got}"
            return True
        self._data += data
        head = _COUNT.match(self._data)
        if head is None:
            self.problem = f"after {self.got}: {self._data[:200]!r}" if self._data.count(b"\n") >= HEAD else ""
            return bool(self.problem)
        if self._data.count(b"\n") < HEAD + EACH * int(head[1]):
            return False
        entries = _ENTRY.findall(self._data, head.end())
        numbers = [int(number) for _, number in entries]
        expected = list(range(self.got, self.got + int(head[1])))
        if numbers != expected or not 0 < len(entries) <= self._count:
            self.problem = f"got {numbers[:5]} to {numbers[-5:]}, not {expected[:1]} to {expected[-1:]}"
        self.digest.update(b"".join(id for id, _ in entries))
        self.got += len(entries)
        self._last, self._data = entries[-1][0] if entries else self._last, b""
        return True


def main(port: int, key: bytes, subscribers: int, entries: int) -> None:
    all_of_them = {each.socket.fileno(): each for each in (Subscriber(n, port, key) for n in range(subscribers))}
    held: list[Subscriber] = []
    missing = subscribers
    with select.epoll() as poll:
        for handle, each in all_of_them.items():
            poll.register(handle, select.EPOLLIN)
            each.ask()
        _until_all_wait(port, subscribers)
        print("waiting", flush=True)
        while missing and (ready := poll.poll(STALL_S)):
            for handle, _ in ready:
                each = all_of_them[handle]
                if not each.hear():
                    continue
                if each.problem or each.got >= entries:
                    poll.unregister(handle)
                    missing -= 1
                    for other in held:
                        other.ask()
                    held = []
                elif each.is_lazy and missing == subscribers:
                    held.append(each)
                else:
                    each.ask()
    problems = {number: each.problem for number, each in enumerate(all_of_them.values()) if each.problem}
    counts = sorted({each.got for each in all_of_them.values()})
    ids = sorted({each.digest.hexdigest() for each in all_of_them.values()})
    print(json.dumps({"problems": problems, "counts": counts, "ids": ids}))


def _until_all_wait(port: int, subscribers: int) -> None:
    end = time.monotonic() + STALL_S
    with socket.create_connection((HOST, port), timeout=STALL_S) as asker:
        said = b""
        while b"blocked_clients:%d\r\n" % subscribers not in said:
            if time.monotonic() > end:
                raise SystemExit(f"they do not all wait: {said!r}")
            time.sleep(0.005)
            asker.sendall(b"INFO clients\r\n")
            said = asker.recv(1 << 16)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2].encode(), int(sys.argv[3]), int(sys.argv[4]))
