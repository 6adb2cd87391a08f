"""Quotas of clients, set and removed with Kafka's own tool.

In: a cluster, rates. Out: nothing. Touches: settings of that cluster.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from helpers.kafka.devbroker import DevCluster, Jars


def limit(cluster: DevCluster, client: str = "", **rates: int | None) -> None:
    """Set quotas.

    Args:
        cluster: whose quotas.
        client: id of the client that they hold for; empty: each client without a quota of its own.
        rates: quotas by name, such as `producer_byte_rate`; None removes one.
    """
    command = ["java", "-cp", Jars().class_path(), "kafka.admin.ConfigCommand", "--bootstrap-server", cluster.bootstrap]
    command += ["--alter", "--entity-type", "clients", *(["--entity-name", client] if client else ["--entity-default"])]
    if new := [f"{name}={rate}" for name, rate in rates.items() if rate is not None]:
        command += ["--add-config", ",".join(new)]
    if gone := [name for name, rate in rates.items() if rate is None]:
        command += ["--delete-config", ",".join(gone)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


@contextmanager
def limited(cluster: DevCluster, client: str = "", **rates: int) -> Iterator[None]:
    """Quotas for as long as the block runs, see `limit`."""
    limit(cluster, client, **rates)
    try:
        yield
    finally:
        limit(cluster, client, **dict.fromkeys(rates))
