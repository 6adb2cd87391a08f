"""What all tests share: one hypothesis profile, the same examples in every run.

In: nothing. Out: nothing. Touches: hypothesis's settings.
"""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile("commit", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("commit")
