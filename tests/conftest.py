"""What all tests share: a numba cache of their own, quiet warnings about deliberate epsilons, fixed hypothesis profiles.

In: nothing. Out: fixtures. Touches: the environment of this process.
"""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile("commit", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("commit")
