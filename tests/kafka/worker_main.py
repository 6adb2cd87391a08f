"""A worker as a process, for the tests of this folder: `python worker_main.py CONFIG`; SIGTERM ends it in order."""

from __future__ import annotations

import faulthandler
import logging
import signal
import sys

from sketchstream.stream.config import Config
from sketchstream.stream.partition import Rules
from sketchstream_connectors.kafka_worker import open_worker


def main() -> int:
    faulthandler.enable()
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=logging.INFO)
    config = Config.load(sys.argv[1])
    rules = Rules(
        sketches=config.sketches,
        key=config.load_key(),
        lateness_ms=config.input.lateness,
        max_ahead_ms=config.input.max_ahead,
        partitioner="murmur2" if config.checked else None,
        fingerprint=config.fingerprint,
    )
    worker = open_worker(config, rules)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
