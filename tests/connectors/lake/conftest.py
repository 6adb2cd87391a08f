"""A session of Spark for the tests that need one.

In: nothing. Out: a fixture. Touches: a JVM, for as long as the tests run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[None]:
    """A local session on two cores, for all tests of Spark; a real JVM."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = session.config("spark.sql.shuffle.partitions", "2").config("spark.sql.session.timeZone", "Asia/Kolkata")
    started = session.getOrCreate()
    yield
    started.stop()
