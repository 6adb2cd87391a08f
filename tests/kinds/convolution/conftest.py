"""What the tests of kind convolution share: a seeded source of words, and slow twins."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.noise.words import Seeded


@pytest.fixture(name="seeded")
def _seeded() -> Any:
    return Seeded
