"""What only some kinds can do: a kind derives from the class of each ability that it has.

In: specs, and states of kinds with the ability. Out: the ability, or None for kinds without it. Touches: nothing beyond
what `sketchstream.kinds.interface` says of kinds.

Callers ask with the functions of `sketchstream.kinds`, or with `isinstance`, and never by the name of a kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    from sketchstream.array_types import State
    from sketchstream.image import Add
    from sketchstream.kinds.groups.group_list import Groups
    from sketchstream.kinds.profile_answers import Profile
    from sketchstream.spec import Unit


class Grouping(ABC):
    """Sketches may consist of groups, each of which has its own answers."""

    @abstractmethod
    def groups(self, spec: Any) -> tuple[str, ...]:
        """Names of the groups; none for specs without groups."""

    @abstractmethod
    def blocks(self, spec: Any) -> int:
        """Number of blocks in a state, each with the slots of the domain: one for each group."""

    @abstractmethod
    def group(self, part: Any, name: str) -> Any:
        """What was published of one group.

        Args:
            part: what was published.
            name: name of the group.

        Raises:
            EstimateError: there are no groups, or none of that name.
        """

    @abstractmethod
    def overlap(self, published: Any, groups: Sequence[str] | None = None) -> Any:
        """What groups have in common, for specs that publish it."""


class Deferring(ABC):
    """Events can be kept in a list while an image of the state is read.

    For specs that defer, `apply` of the index takes `image`, the `StateImage` that is being read: events of counters
    that it has read are applied in place, others later.
    """

    @abstractmethod
    def defers(self, spec: Any) -> Add | None:
        """Function that adds deferred events; None if events of this spec cannot be deferred."""


class Adding(ABC):
    """States add up in a group of the kind's own; states of other kinds add up as integers that wrap."""

    @abstractmethod
    def add(self, spec: Any, states: Sequence[State]) -> State:
        """The sum of states of one spec, in a new array."""


class Closing(ABC):
    """Positions of a series can be published when they close, before the seal."""

    @abstractmethod
    def closes(self, spec: Any) -> int | None:
        """Milliseconds of a position; None if this spec publishes nothing before its seal."""

    @abstractmethod
    def closed(self, spec: Any, state: State, first: int, stop: int) -> State:
        """A copy of what is published of positions that no later event can change.

        Args:
            spec: spec of the sketch.
            state: (slots,) integers of `spec.dtype`.
            first: first position; at 0 the copy includes all that no event ever changes.
            stop: position after the last.
        """

    @abstractmethod
    def closed_answers(self, parts: Sequence[Sequence[Any]], positions: int, before: Any) -> Any:
        """Answers at positions that have closed, from each partition's instalments; `before`: see `Continuing`."""


class Continuing(ABC):
    """Answers may reach back into the window before: `estimate` takes `before`, what was published of it."""

    @abstractmethod
    def continues(self, spec: Any) -> bool:
        """Whether answers of this spec reach back into the window before."""

    @abstractmethod
    def reaches_back(self, spec: Any, name: str, window: tuple[int, int]) -> bool:
        """Whether a number of an answer may hold noise of the window before.

        Args:
            spec: spec of the sketch.
            name: name of the number, as `sketchstream.kinds.presentation` knows it.
            window: [start, end), ms since 1970, of the answer.
        """


class Scoped(ABC):
    """States depend on where in a deployment the sketch belongs, and may be addable within one such place only."""

    @abstractmethod
    def require_addable(self, spec: Any, origins: Sequence[Any]) -> None:
        """Refuse to add states of these origins if only one of them allows it.

        Raises:
            MergeError: these states cannot be added.
        """


class Reconstructing(ABC):
    """What was published gives a profile: `answer` is "profile", and `usual_number` of `rows` one of its numbers."""

    @abstractmethod
    def profile(
        self, published: Any, method: str, max_count: int | None, norm: float | None, beta: float, **extra: object
    ) -> Profile:
        """The profile of what was published; see `sketchstream.published.Release.profile`."""

    @abstractmethod
    def gain(self, spec: Any, epsilons: Sequence[float]) -> float:
        """Factor by which inverting the noise can amplify an error, at the worst frequency.

        Args:
            spec: spec of the sketch.
            epsilons: parameter of each layer of noise.
        """

    @abstractmethod
    def wrapped(self, spec: Any, means: Sequence[float]) -> tuple[list[float], str] | None:
        """Shares of the items whose counts wrap where counts are heavy-tailed; None: counts never wrap.

        Args:
            spec: spec of the sketch.
            means: mean counts of the items that occur.

        Returns:
            The share at each mean, and what happens to answers at the first.
        """


class Sizable(ABC):
    """The sketch for given errors can be found."""

    @abstractmethod
    def fewest_items(
        self, *, numbers: Sequence[str], target: float, unit: Unit, parts: int, groups: Groups | None
    ) -> Any:
        """The fewest items of which a sketch tells all numbers with this relative error, and that sketch.

        Args:
            numbers: names of the numbers that matter.
            target: largest relative error, one standard deviation.
            unit: unit of privacy.
            parts: number of partitions.
            groups: groups, each with answers of that error; None: none.

        Returns:
            `spec`, its `plan` and `memory`, and `block`, which writes it as a part of a configuration.
        """


class SlotsOfItems:
    """Answers name items.

    What is published then says by which rule the items of a partition have slots, and `estimate` takes `kept`, a mask
    of them for each part.
    """


class Listing(ABC):
    """Specs hold lists besides that of the domain's items."""

    @abstractmethod
    def names(self, spec: Any) -> dict[str, Any]:
        """See `sketchstream.kinds.options_of_lists`."""


class Summarising(ABC):
    """Releases show a summary of the state, such as a histogram, and the seal may show more than they do."""

    @abstractmethod
    def view(self, spec: Any, state: State, cost: Fraction, *, final: bool) -> npt.NDArray[Any]:
        """What a release of this cost shows of the state, or, if it is final, the seal: noise included."""

    @abstractmethod
    def view_header(self, spec: Any) -> dict[str, Any]:
        """Further header fields of a release."""
