"""What the `[[sketch]]` of every linear kind has.

In: plain data of a block. Out: arguments of the kind's spec. Touches: nothing. Imported only when a configuration is
read.
"""

from __future__ import annotations

from sketchstream.kinds.config_tables import Number, SketchTable


class LinearTable(SketchTable):
    """One `[[sketch]]` of a linear kind. A key with the name of an argument of the spec is that argument."""

    delta: Number
    epsilon_publish: Number | None = None
    delta_publish: Number | None = None
    intrusion: bool = True
    epsilon_records: Number | None = None
