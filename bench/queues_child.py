"""What cases of queues do in a fresh process: ``python -m bench.queues_child ORDER ...``, answered with a JSON line."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

from bench import queue_folder
from lamina.engines.queues import IS_COMPILED
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.restoring import restore
from lamina.log.files.real import RealFiles


def fill(folder: str, queues: str, messages: str) -> dict[str, float]:
    """A data folder with so many queues of so many messages each."""
    return queue_folder.write(folder, int(queues), int(messages))


def restored(folder: str) -> dict[str, float]:
    """How fast the queues of a data folder become the state again, and the memory that takes."""
    gc.collect()
    before = _memory_mib("VmRSS")
    started, used = time.perf_counter(), time.process_time()
    ttl = QueueOptions().ttl_s
    found = restore(RealFiles(), os.path.join(folder, "queues"), now=time.time_ns() // 10**9, ttl=ttl)
    seconds, used = time.perf_counter() - started, time.process_time() - used
    return {
        "records": found.records,
        "bytes": found.bytes,
        "queues": len(found.state.queues),
        "messages": found.state.messages,
        "seconds": seconds,
        "processor seconds": used,
        "peak MiB": _memory_mib("VmHWM"),
        "growth MiB": _memory_mib("VmRSS") - before,
        "is_compiled": IS_COMPILED,
    }


def _memory_mib(which: str) -> float:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(which))


ORDERS: dict[str, Callable[..., dict[str, float]]] = {"fill": fill, "restore": restored}


def ask(*words: str) -> dict[str, float]:
    """Have an order done by a fresh process. Returns what it found."""
    done = subprocess.run([sys.executable, "-m", "bench.queues_child", *words], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: ended with {done.returncode}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(ORDERS[sys.argv[1]](*sys.argv[2:])), flush=True)
