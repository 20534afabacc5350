"""A disk whose syncs take long: ``python -m bench.slow_disk MS serve ...`` runs ``lamina serve ...`` on one.

Of Lamina only the server's own process is slowed, not those that it starts to compact or to dump. For a program that is
not Python there is a library that its process loads before the C library, built when it is asked for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

from bench.runner import Skipped

_SOURCE = """
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>

static void slow(void) {
    long us = atol(getenv("SYNC_US"));
    struct timespec pause = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&pause, 0);
}

int fsync(int handle) { slow(); return syscall(SYS_fsync, handle); }
int fdatasync(int handle) { slow(); return syscall(SYS_fdatasync, handle); }
"""


def environment(folder: str, sync_ms: float) -> dict[str, str]:
    """Variables with which a program finds its disk slow. The library goes to ``folder``.

    Raises: Skipped where there is no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Skipped("needs a C compiler (cc) to slow the disk of Redis")
    library = os.path.join(folder, "slow_sync.so")
    if not os.path.exists(library):
        words = [compiler, "-shared", "-fPIC", "-O2", "-x", "c", "-", "-o", library]
        subprocess.run(words, input=_SOURCE, text=True, check=True)
    return {**os.environ, "LD_PRELOAD": os.path.abspath(library), "SYNC_US": str(round(sync_ms * 1000))}


def _slowed(sync: Callable[[int], None], seconds: float) -> Callable[[int], None]:
    def slow(handle: int) -> None:
        time.sleep(seconds)
        sync(handle)

    return slow


def main() -> None:
    seconds = float(sys.argv.pop(1)) / 1000
    os.fsync, os.fdatasync = _slowed(os.fsync, seconds), _slowed(os.fdatasync, seconds)
    from lamina.cli.main import main as lamina  # the kernel keeps the functions that it finds when it is imported

    lamina()


if __name__ == "__main__":
    main()
