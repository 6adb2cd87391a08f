"""What the `[[sketch]]` of every linear kind has, and how it becomes the arguments of a spec.

In: plain data of a block. Out: arguments of the kind's spec. Touches: nothing. Imported only when a configuration is
read.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

from sketchstream.kinds.linear.spec import LinearSpec
from sketchstream.kinds.tables import Number, SketchTable, TableContext


class LinearTable(SketchTable):
    """One `[[sketch]]` of a linear kind. A key with the name of an argument of the spec is that argument."""

    delta: Number
    epsilon_publish: Number | None = None
    delta_publish: Number | None = None
    intrusion: bool = True
    epsilon_records: Number | None = None

    def arguments(self, made: type[LinearSpec], around: TableContext) -> dict[str, Any]:
        """Arguments of the spec that the block gives under their own names, with the noise that quality needs.

        Args:
            made: class of the spec.
            around: the input.

        Raises:
            SpecError: noise of a number of records that cannot be.
        """
        taken = signature(made).parameters
        found = {name: getattr(self, name) for name in type(self).model_fields if name in taken}
        if "counted_share" in found:
            found["counted_share"] = self.counted_noise(found["counted_share"], around)
        return found | {"epsilon_records": self.records_noise(self.epsilon_records, around)}
