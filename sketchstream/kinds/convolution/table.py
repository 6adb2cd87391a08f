"""`[[sketch]]` of kind `convolution`.

In: plain data of a block. Out: a `ConvolutionSpec`. Touches: the file that a .npy kernel names. Imported only when a
configuration is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from sketchstream.errors import SpecError
from sketchstream.kinds.config_tables import LinearTable, Number, TableContext
from sketchstream.kinds.convolution.fourier.spectrum import Layout
from sketchstream.kinds.convolution.mechanisms.scheme import Publish
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.spec import ClosedDomain, OpenDomain


class ConvolutionTable(LinearTable):
    """One `[[sketch]]` of kind "convolution"."""

    kind: Literal["convolution"] = "convolution"
    kernel: str | tuple[str, ...] | tuple[float, ...]
    step: str | None = None
    position: str | None = None
    length: int | None = None
    columns: dict[str, tuple[int | str, ...]] | None = None
    delta: Number = "0"
    noise: Literal["auto", "gaussian", "laplace", "laplace_pure", "counts", "tree", "toeplitz"] = "auto"
    layout: Layout | None = None
    floor: Number = "1/64"
    max_weight: int | None = None
    max_total: int | None = None
    capacity: int = 1 << 31
    publish: Publish = "state"
    counted_share: Number | None = None

    def fields(self) -> Mapping[str, str]:
        """The field of the position, or one for each column, which has its name."""
        position = {} if self.position is None else {"position": self.position}
        return position | {name: name for name in self.columns or ()}

    def listed(self) -> Mapping[str, tuple[str, ...]]:
        return {name: tuple(map(str, values)) for name, values in (self.columns or {}).items()}

    @property
    def needs_item(self) -> bool:
        """False: events are about positions."""
        return False

    def check(self, context: TableContext) -> Iterator[str]:
        """Mistakes that show in the block alone.

        An item may be in several partitions: the promise of `max_total` covers all of them together.
        """
        if self.step is not None and (self.windows is not None or self.every is not None):
            yield "step needs one window: give each length a [[sketch]] of its own, and moving sums a kernel window:W"
        if self.publish == "closed" and self.step is None:
            yield "publish = 'closed' needs step: positions close by event time"
        if self.domain is not None:
            yield "domain belongs to kinds that count items: leave it out"

    def _axis(self, context: TableContext) -> dict[str, Any]:
        axes = [name for name in ("step", "position", "columns") if getattr(self, name) is not None]
        if len(axes) != 1:
            text = ", ".join(axes) or "none"
            raise SpecError(
                'exactly one of step = "1h" (positions from event times), position = "FIELD" (from a field) and '
                f"columns = {{...}} (cells) says where an event counts, found {text}"
            )
        if (self.length is not None) != (self.position is not None):
            raise SpecError(
                "length and position belong together: a step and columns say themselves how many positions there are"
            )
        if self.step is not None:
            if context.windows is None:
                raise SpecError("step needs a window")
            step_ms, length = context.windows.positions(self.step)
            return {"length": length, "step_ms": step_ms}
        return {"length": self.length, "columns": self.columns}

    def to_spec(self, domain: ClosedDomain | OpenDomain | None, context: TableContext) -> ConvolutionSpec:
        """See `ConvolutionSpec`; layout "time" is the default for series, whose updates are then quick."""
        kernel: Any = list(self.kernel) if isinstance(self.kernel, tuple) else self.kernel
        if isinstance(kernel, str) and kernel.endswith(".npy"):
            kernel = str(context.folder / kernel)
        pure = self.columns is not None or self.delta == "0"
        layout = self.layout or ("fourier" if pure else "time")
        arguments = self.arguments(ConvolutionSpec, context) | {"kernel": kernel, "layout": layout}
        return ConvolutionSpec(**arguments | self._axis(context))


TABLE = ConvolutionTable
