"""A projection on a real broker: four partitions add up, a worker is killed, no topic or log has a row."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.kafka.app import AT_ONCE, MINUTE, App
from sketchstream.published import SealedState, read_published
from sketchstream.sketch import merge

pytestmark = pytest.mark.kafka
BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE
SHOPS = [f"marked-shop-{i}" for i in range(6)]
GOODS = [f"marked-good-{j}" for j in range(50)]
SKETCH = """kind = "projection"
epsilon = 8
delta = "1e-6"
row = "shop"
rows = { items_file = "shops.txt" }
domain = { items_file = "goods.txt" }
k = 48
matrix = "rademacher"
max_weight = 4
fraction_bits = 2
"""


def test_partitions_add_up_to_the_exact_rows_and_noise(kafka: str, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "shops.txt").write_text("\n".join(SHOPS) + "\n")
    (tmp_path / "app" / "goods.txt").write_text("\n".join(GOODS) + "\n")
    app = App(
        kafka, tmp_path / "app", key=True, sketch=SKETCH,
        input=f'item_type = "text"\nitem = "u"\nweight = "w"\ntime = "ts"\n{AT_ONCE}\nidle = "off"',
    )  # fmt: skip
    try:
        load, random = app.load(), np.random.default_rng(3)
        truth = np.zeros((6, 50), np.int64)
        worker = app.start(options=("--log-level", "debug"))
        for number in range(12_000):
            shop, good, quarters = int(random.integers(0, 6)), int(random.integers(0, 12)), int(random.integers(1, 19))
            value = {"u": GOODS[good], "shop": SHOPS[shop], "w": quarters / 4, "ts": BASE + number % 50_000}
            if number % 100 == 0:
                value["shop"] = "stranger"
            load._producer.produce(
                app.topic, json.dumps(value).encode(), GOODS[good].encode(), load.place(GOODS[good]),
                on_delivery=load._delivered, timestamp=value["ts"],
            )  # fmt: skip
            load._producer.poll(0)
            if number % 100 and quarters <= 16:
                truth[shop, good] += quarters
            if number == 6000:
                load.flush()
                app.wait_running(worker)
                worker.kill()
                app.start(options=("--log-level", "debug"))
        load.flush()
        load.close_windows(BASE + 3 * MINUTE)
        app.wait_published(BASE + MINUTE)
        parts = [read_published(entry.body) for entry in app.check_publications() if entry.window[0] == BASE]
        assert len(parts) == 4
        assert all(isinstance(part, SealedState) for part in parts)
        found: Any = merge(parts).estimate()
        assert found.spec.k == 48
        exact = truth @ app.config.sketches[0].spec.projection_matrix().all_rows.astype(np.int64)
        rest, scale = (found.cells - exact).astype(float), math.sqrt(found.variance)
        assert np.abs(rest).max() < 6 * scale
        assert abs((rest**2).mean() / scale**2 - 1) < 6 * (2 / rest.size) ** 0.5
        share, error = (rest * exact).sum() / (exact.astype(float) ** 2).sum(), scale / np.linalg.norm(exact)
        assert error < 4e-3  # so events that are lost, or there twice, show
        assert abs(share) < 6 * error
        shown = (
            b"".join(entry.body for entry in app.entries())
            + "".join(one.log.read_text() for one in app.workers).encode()
        )
        assert b"marked-shop" not in shown
        assert b"marked-good" not in shown
    finally:
        app.close()
