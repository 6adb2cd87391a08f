"""How long a stranger waits for the first answer about live traffic: a broker, a producer, `topics create`, a worker.

    python bench/first_answer.py [--per-second 100]

In: a broker of our own (`make jars`), made-up events with the time at which they are sent. Out: seconds from the start
of the worker, and of the traffic, to the first published window, and to the answer that `profile` prints. Touches: a
temporary folder, Java processes of its own. The configuration is what `sketchstream init --window 1m` writes.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path[:] = [one for one in sys.path if Path(one).resolve() != Path(__file__).parent]  # bench/kafka.py is not kafka
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.kafka.devbroker import DevCluster  # noqa: E402
from sketchstream.config.draft import Draft  # noqa: E402

SKETCH = """[[sketch]]
name = "people"
window = "1m"
unit = "item"
epsilon = "4"
epsilon_publish = "1"
domain = { slots = 8192, levels = 8 }
"""
PATIENCE_S = 300.0


def send(servers: str, per_second: float, ended: threading.Event) -> None:
    """Events of some thousand users until it is ended."""
    from kafka import KafkaProducer

    producer, draw = KafkaProducer(bootstrap_servers=servers, linger_ms=50), random.Random(1)
    while not ended.wait(1 / per_second):
        user = f"user-{int(5000 * draw.random() ** 3)}"
        value = json.dumps({"user_id": user, "ts": time.time_ns() // 1_000_000}).encode()
        producer.send("events", key=user.encode(), value=value)
    producer.close()


def main() -> None:
    """Time it once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-second", type=float, default=100.0)
    options = parser.parse_args()
    with DevCluster(1) as cluster, tempfile.TemporaryDirectory() as name:
        from kafka import KafkaAdminClient

        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        admin.create_topics({"events": {"num_partitions": 2, "replication_factor": 1}})
        admin.wait_for_topics(["events"])
        folder = Path(name)
        kafka = {"bootstrap.servers": cluster.bootstrap, "group.id": "first"}
        text = Draft("user_id", "ts", "key", topic="events", kafka=kafka, wait_s=10).text(SKETCH)
        text = text.replace('partitioned_by = "item"', 'partitioned_by = "item"\npartitioner = "murmur2"')
        (folder / "c.toml").write_text(text)
        program = [sys.executable, "-m", "sketchstream.cli"]
        for words in (["keygen", "-o", "key"], ["topics", "create", "-c", "c.toml"]):
            subprocess.run([*program, *words], cwd=folder, check=True, capture_output=True)
        ended, began = threading.Event(), time.monotonic()
        with (folder / "log").open("w") as log:
            worker = subprocess.Popen([*program, "worker", "-c", "c.toml"], cwd=folder, stdout=log, stderr=log)
        traffic = threading.Thread(target=send, args=(cluster.bootstrap, options.per_second, ended))
        traffic.start()
        try:
            while "event=published" not in (folder / "log").read_text():
                if time.monotonic() - began > PATIENCE_S or worker.poll() is not None:
                    sys.exit((folder / "log").read_text())
                time.sleep(0.2)
            print(f"first window published after {time.monotonic() - began:.0f} s", flush=True)
            read = [*program, "profile", "-c", "c.toml", "--all"]
            print(subprocess.run(read, cwd=folder, check=True, capture_output=True, text=True).stdout)
            print(f"answer read after {time.monotonic() - began:.0f} s")
        finally:
            ended.set()
            worker.terminate()
            traffic.join()
            worker.wait()


if __name__ == "__main__":
    main()
