"""Instalments: words of a state at positions that have closed, published before the seal publishes them again.

In: a sketch of a kind that publishes as it goes (`Closing`); bytes. Out: an `Instalment`, its bytes. Touches: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sketchstream import wire
from sketchstream.errors import FormatError
from sketchstream.kinds import closing_kind
from sketchstream.privacy.deployments.copies import CopiedPositions
from sketchstream.privacy.ledgers.sketch_history import SketchHistory
from sketchstream.privacy.losses.history import View
from sketchstream.provenance import (
    Layer,
    Origin,
    checked_identifier,
    header_of,
    pack_published,
    require_accounted,
    spec_of,
    well_formed,
)
from sketchstream.spec import checked_int


@dataclass(frozen=True, eq=False, kw_only=True)
class Instalment:
    """Words of a state at positions that have closed; the seal publishes the same words again.

    Args:
        spec: specification of the sketch.
        layers: noise layers in its state.
        seal_id: 16 random bytes that identify this publication.
        origin: place of the sketch in a deployment.
        ledger: the sketch's history, its publication included.
        words: (n,) integers of `spec.dtype`, as `Closing.closed` gives them.
        first: first position.
        stop: position after the last.
    """

    spec: Any
    layers: tuple[Layer, ...]
    seal_id: bytes
    origin: Origin
    ledger: SketchHistory = field(repr=False)
    words: npt.NDArray[Any] = field(repr=False)
    first: int
    stop: int

    @property
    def positions(self) -> CopiedPositions:
        """The words that it shows."""
        return CopiedPositions(self.first, self.stop, lambda first, stop: self.words.tobytes())

    def to_bytes(self) -> bytes:
        """The published bytes."""
        header = header_of("instalment", self.spec, self.layers, int(self.words.size), self.ledger, self.origin)
        return pack_published({**header, "first": self.first, "stop": self.stop, "seal_id": self.seal_id}, self.words)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the instalment in these bytes.

        Raises:
            FormatError: the bytes are not an instalment.
        """
        header, body = wire.unpack(data)
        if header["kind"] != "instalment" or body is None:
            raise FormatError(f"expected the bytes of closed positions, found {header['kind']!r:.40}")
        with well_formed():
            spec, kind = spec_of(header)
            first, stop = (
                checked_int(header[name], name, least, 1 << 40) for name, least in (("first", 0), ("stop", 1))
            )
            shows = closing_kind(spec)
            if shows is None:
                raise FormatError("specs of these positions publish nothing before the seal")
            blank = shows.closed(spec, np.zeros(kind.index(spec, None, None).slots, spec.dtype), first, stop)
            if first >= stop or (body.dtype, body.shape) != (blank.dtype, blank.shape):
                raise FormatError("the words are not those of the positions that their header says")
            layers = tuple(Layer.from_dict(layer) for layer in header["layers"])
            ledger = kind.accounting.read_ledger(spec, header["ledger"])
            require_accounted(spec, layers, ledger, (), View("publication", None))
            origin = Origin.from_dict(header)
        seal_id = checked_identifier(header["seal_id"])
        return cls(
            spec=spec, layers=layers, seal_id=seal_id, origin=origin, ledger=ledger, words=body, first=first, stop=stop
        )
