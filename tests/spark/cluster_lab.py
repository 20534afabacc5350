"""A standalone cluster of Spark on this machine: a master and workers, each a process of its own, each on a loopback
address of its own (Spark never speculates between workers with the same address).

Started from the package that pip installed. All its processes end with ``stop()``, and at the latest with this process.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

import pyspark

from lamina.pipeline.starting.java import find

PATIENCE_S = 120


class Cluster:
    """Runs from the moment it is made. Use it in a ``with``, or call ``stop()``."""

    def __init__(self, workers: int = 2, *, cores: int = 1, memory: str = "1g") -> None:
        self._folder = tempfile.mkdtemp(prefix="lamina-cluster-")
        self._processes: list[subprocess.Popen[bytes]] = []
        atexit.register(self.stop)
        try:
            self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
            for number in range(workers):
                address = ("--host", f"127.0.0.{number + 2}", "--port", "0", "--webui-port", "0")
                size = ("--cores", str(cores), "--memory", memory)
                self._start(f"worker-{number}", "worker.Worker", *address, *size, self.url)
            for number in range(workers):
                self._said(f"worker-{number}", r"Successfully registered with master (\S+)")
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def worker_pids(self) -> list[int]:
        """Of the workers, in the order of their addresses."""
        return [process.pid for process in self._processes[1:]]

    def stop(self) -> None:
        """End every process of the cluster, and those that they started. Twice is fine."""
        atexit.unregister(self.stop)
        for process in reversed(self._processes):
            # Executors are in a group with their worker. It is there for as long as it was not waited for.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self._processes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, name: str, kind: str, *arguments: str) -> None:
        home = os.path.dirname(os.path.abspath(pyspark.__file__))
        environment = {
            **os.environ,
            "JAVA_HOME": find().home(),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": home,
            "SPARK_WORKER_DIR": os.path.join(self._folder, "work"),
            "SPARK_LOCAL_DIRS": os.path.join(self._folder, "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # as in conf/spark-defaults.conf
            "SPARK_NO_DAEMONIZE": "1",
        }
        environment.pop("SPARK_LOCAL_IP", None)
        with open(self._log(name), "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [os.path.join(home, "bin", "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _log(self, name: str) -> str:
        return os.path.join(self._folder, f"{name}.log")

    def _said(self, name: str, pattern: str) -> str:
        """What a process said of itself, once it has."""
        end = time.monotonic() + PATIENCE_S
        while True:
            with open(self._log(name), encoding="utf-8", errors="replace") as file:
                text = file.read()
            if found := re.search(pattern, text):
                return found[1]
            if time.monotonic() > end or any(process.poll() is not None for process in self._processes):
                raise RuntimeError(f"the {name} of the cluster did not start:\n{text[-2000:]}")
            time.sleep(0.1)
