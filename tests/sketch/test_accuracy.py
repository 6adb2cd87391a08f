"""The open domain at the size it was made for: a million items nobody listed, from what is published of them."""

from __future__ import annotations

import numpy as np
import pytest

import sketchstream as ss

pytestmark = pytest.mark.statistics
ITEMS = 1_000_000


@pytest.mark.parametrize("seed", range(5))
def test_distinct_count_of_a_million_items_is_within_three_percent(seed: int) -> None:
    counts = np.random.default_rng(seed).geometric(0.4, ITEMS)
    spec = ss.ProfileSpec(epsilon="1", domain=ss.OpenDomain(slots=1 << 20, levels=8))
    sketch = ss.Sketch.create(spec, ss.Key(bytes(range(16))))
    sketch.update(np.repeat(np.arange(ITEMS) * 7919 + seed, counts))
    profile = sketch.seal().profile()
    assert profile.distinct.value == pytest.approx(ITEMS, rel=0.03)
    for k in (2, 5):
        assert profile.at_least(k).value == pytest.approx((counts >= k).sum(), rel=0.1)
