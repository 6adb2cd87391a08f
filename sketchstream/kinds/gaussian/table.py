"""`[[sketch]]` of kind `gaussian`.

In: plain data of a block. Out: a `GaussianSpec`. Touches: nothing. Imported only when a configuration is read.
"""

from __future__ import annotations

from typing import Literal

from sketchstream.errors import SpecError
from sketchstream.kinds.config_tables import DomainTable, LinearTable, Number, TableContext
from sketchstream.kinds.gaussian.spec import GaussianSpec
from sketchstream.spec import ClosedDomain, OpenDomain

TOTAL_SHARE = "1/40"
"""Default of `total_share` for unit "event": what quality is judged by."""


class GaussianTable(LinearTable):
    """One `[[sketch]]` of kind "gaussian"."""

    kind: Literal["gaussian"] = "gaussian"
    domain: DomainTable
    max_weight: Number | None = None
    max_total: Number | None = None
    max_per_slot: Number | None = None
    fraction_bits: int = 0
    total_share: Number | None = None
    counted: bool | None = None

    def to_spec(self, domain: ClosedDomain | OpenDomain | None, context: TableContext) -> GaussianSpec:
        if isinstance(domain, OpenDomain):
            raise SpecError("kind 'gaussian' needs a closed domain: size (ids 0..size-1) or items_file (a list)")
        arguments = self.arguments(GaussianSpec, context) | {"domain": domain or ClosedDomain(size=1)}
        if self.total_share is None:
            arguments["total_share"] = TOTAL_SHARE if self.unit == "event" else "0"
        return GaussianSpec(**arguments)


TABLE = GaussianTable
