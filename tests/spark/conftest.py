"""Sessions of Spark for the tests: one per process that runs tests, started when the first test needs it."""

from __future__ import annotations

from collections.abc import Iterator
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
    made = session(master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    yield made
    made.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The URL of a master with two workers, each with one core and an address of its own.

    A process has one session: run what uses the cluster in a process of its own.
    """
    with Cluster() as made:
        yield made.url
