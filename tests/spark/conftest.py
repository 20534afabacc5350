"""Sessions of Spark for the tests: one per process that runs tests, started when the first test needs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from lamina.pipeline.starting.session import session
from spark.cluster_lab import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on this machine, with two cores."""
    # No class cache: it is made in the background, which a machine that runs tests has no time for.
    conf = {"spark.sql.shuffle.partitions": "2", "spark.lamina.classCache": "false"}
    made = session(master="local[2]", conf=conf)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The URL of a master with two workers, each with one core and an address of its own.

    A process has one session: run what uses the cluster in a process of its own.
    """
    with Cluster() as made:
        yield made.url


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them in one process, where tests are run by several: each of those would start sessions and clusters."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.xdist_group("spark"))
