"""Sends events of made-up users to a topic, keyed by user, for `docker/compose.yaml`.

In: an address of brokers, a topic. Out: JSON events. Touches: the cluster.
"""

from __future__ import annotations

import argparse
import json
import random
import time


def event(draw: random.Random, users: int, now_ms: int) -> tuple[bytes, bytes]:
    """Key and value of one event; few users are seen often, many once."""
    user = f"user-{int(users * draw.random() ** 3)}"
    return user.encode(), json.dumps({"user_id": user, "ts": now_ms}).encode()


def main() -> None:
    """Send until ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("brokers")
    parser.add_argument("topic")
    parser.add_argument("--per-second", type=float, default=200.0)
    parser.add_argument("--users", type=int, default=50_000)
    options = parser.parse_args()
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=options.brokers, linger_ms=50)
    draw = random.Random()
    began, sent = time.monotonic(), 0
    while True:
        key, value = event(draw, options.users, time.time_ns() // 1_000_000)
        producer.send(options.topic, key=key, value=value)
        sent += 1
        time.sleep(max(0.0, began + sent / options.per_second - time.monotonic()))


if __name__ == "__main__":
    main()
