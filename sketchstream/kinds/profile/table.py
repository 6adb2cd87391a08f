"""`[[sketch]]` of kind `profile`.

In: plain data of a block. Out: a `ProfileSpec`. Touches: nothing. Imported only when a configuration is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.kinds.tables import Around, DomainTable, Number, SketchTable
from sketchstream.spec import ClosedDomain, OpenDomain


class ProfileTable(SketchTable):
    """One `[[sketch]]` of kind "profile"."""

    kind: Literal["profile"] = "profile"
    domain: DomainTable
    max_count: int | None = None
    epsilon_publish: Number | None = None
    publish: Literal["histogram", "state"] = "histogram"
    intrusion: bool | None = None
    modulus: int | None = None
    max_weight: int = 1
    bits: int = 32
    total_share: Number | None = None
    counted: bool | None = None
    max_total: int | None = None
    epsilon_records: Number | None = None

    def check(self, around: Around) -> Iterator[str]:
        """A sketch against how the topic is partitioned."""
        yield from super().check(around)
        if around.partitioned_by == "none" and self.unit == "event" and self.publish != "state":
            yield (
                "input.partitioned_by = 'none' needs publish = 'state' (with intrusion = true or false): partitions "
                "that share items can only be merged"
            )

    def to_spec(self, domain: ClosedDomain | OpenDomain | None, around: Around) -> ProfileSpec:
        """See `ProfileSpec`."""
        return ProfileSpec(
            epsilon=self.epsilon,
            unit=self.unit,
            domain=domain or OpenDomain(1024),
            max_count=self.max_count,
            modulus=self.modulus,
            max_weight=self.max_weight,
            publish=self.publish,
            epsilon_publish=self.epsilon_publish,
            intrusion=self.intrusion,
            bits=self.bits,
            total_share=self.total_share,
            counted=self._counted(around),
            max_total=self.max_total,
            epsilon_records=self.records_noise(self.epsilon_records, around),
        )

    def _counted(self, around: Around) -> bool | None:
        """Whether events are counted apart from their weights: by default where records carry weights."""
        if self.counted is None and around.weights and self.unit == "event":
            return None if self.total_share in ("0", "0.0") else True
        return self.counted


TABLE = ProfileTable
