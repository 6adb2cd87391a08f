"""`[[sketch]]` of kind `gaussian`.

In: plain data of a block. Out: a `GaussianSpec`. Touches: nothing. Imported only when a configuration is read.
"""

from __future__ import annotations

from typing import Literal

from sketchstream.errors import SpecError
from sketchstream.kinds.gaussian.spec import GaussianSpec
from sketchstream.kinds.tables import Around, DomainTable, Number, SketchTable
from sketchstream.spec import ClosedDomain, OpenDomain

TOTAL_SHARE = "1/40"
"""Default of `total_share` for unit "event": what quality is judged by."""


class GaussianTable(SketchTable):
    """One `[[sketch]]` of kind "gaussian"."""

    kind: Literal["gaussian"] = "gaussian"
    domain: DomainTable
    delta: Number
    epsilon_publish: Number | None = None
    delta_publish: Number | None = None
    intrusion: bool = True
    max_weight: Number | None = None
    max_total: Number | None = None
    max_per_slot: Number | None = None
    fraction_bits: int = 0
    total_share: Number | None = None
    counted: bool | None = None
    epsilon_records: Number | None = None

    def to_spec(self, domain: ClosedDomain | OpenDomain | None, around: Around) -> GaussianSpec:
        """See `GaussianSpec`."""
        if isinstance(domain, OpenDomain):
            msg = "kind 'gaussian' needs a closed domain: size (ids 0..size-1) or items_file (a list)"
            raise SpecError(msg)
        share = self.total_share
        if share is None:
            share = TOTAL_SHARE if self.unit == "event" else "0"
        return GaussianSpec(
            self.epsilon,
            self.delta,
            self.unit,
            domain or ClosedDomain(size=1),
            max_weight=self.max_weight,
            max_total=self.max_total,
            max_per_slot=self.max_per_slot,
            fraction_bits=self.fraction_bits,
            epsilon_publish=self.epsilon_publish,
            delta_publish=self.delta_publish,
            intrusion=self.intrusion,
            total_share=share,
            counted=self.counted,
            epsilon_records=self.records_noise(self.epsilon_records, around),
        )


TABLE = GaussianTable
