"""The Python that Spark starts its workers with: this one, so that versions agree and lamina is there.

Spark puts its own zip file of pyspark before everything that is installed, and a zip file has no compiled modules: each
kind of worker compiles pyspark anew when it starts, half a second, and a first read needs four kinds. On this machine
the same pyspark is installed unpacked. So the program that Spark is given here takes the zip files out of PYTHONPATH
and goes on as this Python; the daemon is that of worker_daemon.py.
"""

from __future__ import annotations

import glob
import os
import shlex
import site
import sys

from lamina.errors import StorageError
from lamina.pipeline.starting import cache


def for_workers(*, is_here: bool) -> str:
    """The program. ``is_here``: all workers run on this machine, and as this user."""
    import pyspark

    home = os.path.dirname(os.path.abspath(pyspark.__file__))
    zips = [os.path.join(home, "python", "lib", "pyspark.zip"), *_packed(home)]
    # Anything but a plain install of pip is left to Spark: there the zip files may be the only pyspark.
    is_installed = os.path.dirname(home) in (*site.getsitepackages(), site.getusersitepackages())
    is_of_pip = os.environ.get("SPARK_HOME", home) == home and all(map(os.path.exists, zips))
    if not (is_here and is_installed and is_of_pip):
        return sys.executable
    try:
        return cache.program("python", _stand_in(zips))
    except StorageError:
        return sys.executable  # slower, and right


def _packed(home: str) -> list[str]:
    return sorted(glob.glob(os.path.join(glob.escape(home), "python", "lib", "py4j-*-src.zip")))


def _stand_in(zips: list[str]) -> str:
    return f"""#!/bin/sh
# Made by lamina (lamina/pipeline/interpreter.py): the Python below, with pyspark as it is installed.
zips={shlex.quote(":".join(zips))}:
PYTHONPATH=${{PYTHONPATH#"$zips"}}
export PYTHONPATH
if [ "$1 $2" = "-m pyspark.daemon" ]; then
  shift 2
  set -- -m lamina.pipeline.starting.worker_daemon "$@"
fi
exec {shlex.quote(sys.executable)} "$@"
"""
