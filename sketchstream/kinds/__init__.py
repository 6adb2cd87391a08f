"""The kinds of sketches: one package each, and the registry by which the engine finds them.

In: a spec, or the name of a kind. Out: its `Kind`. Touches: nothing. A kind's package is imported when a sketch of it
is first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sketchstream.errors import FormatError, SpecError
from sketchstream.kinds.capabilities import Adding, Closing, Continuing, Deferring, Grouping, Listing, Summarising
from sketchstream.kinds.expansion import require_readable
from sketchstream.privacy.losses.history import LayerEntry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    import numpy.typing as npt

    from sketchstream.array_types import State
    from sketchstream.image import Add
    from sketchstream.kinds.interface import Kind, Spec
    from sketchstream.privacy.ledgers.sketch_history import SketchHistory
    from sketchstream.spec import Item

_HOMES = {
    "profile": "sketchstream.kinds.profile.kind",
    "gaussian": "sketchstream.kinds.gaussian.kind",
    "workload": "sketchstream.kinds.workload.kind",
    "convolution": "sketchstream.kinds.convolution.kind",
    "projection": "sketchstream.kinds.projection.kind",
    "hierarchy": "sketchstream.kinds.hierarchy.kind",
}
"""Module of each kind; its `KIND` is the kind."""
_LOADED: dict[str, Kind[Any]] = {}


def names() -> tuple[str, ...]:
    """Names of all kinds."""
    return tuple({**dict.fromkeys(_HOMES), **dict.fromkeys(_LOADED)})


def module_of_kind(name: str, module: str) -> str | None:
    """Full name of a module of a kind's package; None if the package has no such module.

    Args:
        name: name of the kind.
        module: "table", whose `TABLE` is the model of its `[[sketch]]`; "pictures", whose `PRESENTATION` says how
            its answers are shown; "oracle", for its audit (`sketchstream.audit.kinds.linear`).
    """
    home = _HOMES.get(name) or type(by_name(name)).__module__
    full_name = f"{home.rpartition('.')[0]}.{module}"
    return full_name if find_spec(full_name) is not None else None


def by_name(name: object) -> Kind[Any]:
    """The kind of that name.

    Raises:
        SpecError: there is no kind of that name.
    """
    if isinstance(name, str):
        if name in _LOADED:
            return _LOADED[name]
        if name in _HOMES:
            kind: Kind[Any] = import_module(_HOMES[name]).KIND
            return _LOADED.setdefault(name, kind)
    raise SpecError(f"there is no kind of sketch {name!r:.40}; this version knows {', '.join(names())}")


def kind_of(spec: object) -> Kind[Any]:
    """The kind of a spec.

    Raises:
        SpecError: this is not a spec.
    """
    name = getattr(type(spec), "kind", None)
    if not isinstance(name, str):
        raise SpecError(f"spec must be one of a kind of sketch, such as ProfileSpec, found {type(spec).__name__}")
    return by_name(name)


def read_spec(data: Mapping[str, Any], items: Sequence[Item] | None = None) -> Any:
    """The spec, of whatever kind, that its `to_dict` described.

    Args:
        data: what `to_dict` gave.
        items: items of a listed domain.

    Raises:
        SpecError: these data describe no spec that this version knows.
    """
    return by_name(data.get("kind")).read_spec(data, items)


def read_published_spec(data: Mapping[str, Any]) -> Any:
    """Read a spec that a stranger may have published, like `read_spec`: nothing is expanded beyond a reader's limits.

    Raises:
        FormatError: reading it would take too much memory or time, or it is not in the one form in which it is
            written.
        SpecError: these data describe no spec that this version knows.
    """
    kind = by_name(data.get("kind"))
    require_readable(kind.expansion(data))
    spec = kind.read_spec(data)
    if not _identical(spec.to_dict(), data):
        raise FormatError(
            "the spec is not written as this version writes it: it has other fields, or values of other types"
        )
    return spec


def _identical(first: Any, other: Any) -> bool:
    """Whether plain data are equal in values and types: True is not 1, and a list is equal to a tuple."""
    if isinstance(first, Mapping) and isinstance(other, Mapping):
        return first.keys() == other.keys() and all(_identical(value, other[name]) for name, value in first.items())
    if isinstance(first, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(first) == len(other) and all(map(_identical, first, other))
    return type(first) is type(other) and bool(first == other)


def groups_of(spec: object) -> tuple[str, ...]:
    """Names of the groups of a spec; empty without groups."""
    kind = kind_of(spec)
    return kind.groups(spec) if isinstance(kind, Grouping) else ()


def deferred_addition(spec: object) -> Add | None:
    """Function that adds deferred events of a spec; None if they cannot be deferred."""
    kind = kind_of(spec)
    return kind.defers(spec) if isinstance(kind, Deferring) else None


def add_states(spec: object, states: Sequence[State]) -> State:
    """The sum of states of one spec, in a new array; wrapping, unless its kind has another group."""
    kind = kind_of(spec)
    if isinstance(kind, Adding):
        return kind.add(spec, states)
    total: State = states[0].copy()
    for state in states[1:]:
        total += state
    return total


def with_noise(spec: object, state: State, cost: Fraction) -> State:
    """A copy of the state with one more layer of noise; the state itself does not change.

    Nothing is left of a copy whose noise was interrupted.
    """
    fresh: State = state.copy()
    try:
        kind_of(spec).draw(spec, fresh, cost)
    except BaseException:
        fresh.fill(0)
        raise
    return fresh


def view_of_state(spec: object, state: State, cost: Fraction, *, final: bool) -> npt.NDArray[Any]:
    """What a release or the seal shows of the state, noise of this cost included: all, or the summary of its kind."""
    kind = kind_of(spec)
    if isinstance(kind, Summarising):
        return kind.view(spec, state, cost, final=final)
    return with_noise(spec, state, cost)


def layer_entry(spec: Spec, lineage: bytes, cost: Fraction) -> LayerEntry:
    """The ledger's account of a layer."""
    accounting = kind_of(spec).accounting
    return LayerEntry(lineage, accounting.law(spec), cost, accounting.unit_weight(spec))


def options_of_lists(spec: Spec) -> dict[str, Any]:
    """Options of `estimate` that name what the lists of a spec hold; published bytes have digests only.

    Args:
        spec: spec with the lists at hand, as a configuration has them.
    """
    kind, items = kind_of(spec), getattr(spec.domain, "items", None)
    return kind.names(spec) if isinstance(kind, Listing) else {} if items is None else {"items": items}


def view_header(spec: object) -> dict[str, Any]:
    """Further header fields of a release; none, unless the kind has some."""
    kind = kind_of(spec)
    return kind.view_header(spec) if isinstance(kind, Summarising) else {}


def closing_kind(spec: object) -> Closing | None:
    """The kind of a spec that publishes positions when they close; None for other specs."""
    kind = kind_of(spec)
    return kind if isinstance(kind, Closing) and kind.closes(spec) is not None else None


def closing_step(spec: object) -> int | None:
    """Milliseconds of a position that is published when it closes; None for specs that publish none."""
    kind = closing_kind(spec)
    return None if kind is None else kind.closes(spec)


def continuing_kind(spec: object) -> Continuing | None:
    """The kind of a spec whose answers reach back into the window before; None for other specs."""
    kind = kind_of(spec)
    return kind if isinstance(kind, Continuing) and kind.continues(spec) else None


def initial_ledger(spec: Spec) -> SketchHistory:
    """The ledger that a sketch of this spec will begin with."""
    return kind_of(spec).accounting.ledger(spec, b"")


def register(kind: Kind[Any]) -> None:
    """Add a kind that is not part of this package; the command line and bytes know it from then on.

    Args:
        kind: kind whose name is not taken.

    Raises:
        SpecError: the name is taken.
    """
    if kind.name in _HOMES or _LOADED.get(kind.name, kind) is not kind:
        raise SpecError(f"there is a kind of sketch {kind.name!r} already; choose another name")
    _LOADED[kind.name] = kind
