"""Updatable, pan-private statistics over streams.

In: nothing. Out: the names of the public Python interface, loaded when they are first used, so that importing the
package stays quick. Touches: nothing.

Examples:
    >>> import sketchstream as ss
    >>> spec = ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=1000))
    >>> sketch = ss.Sketch.create(spec)
    >>> sketch.update([1, 2, 2, 3, 3, 3])
    >>> profile = sketch.seal().profile()
    >>> len(profile.fractions) == spec.max_count + 1
    True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "sketchstream.spec": ("ClosedDomain", "NoPrivacyWarning", "OpenDomain"),
    "sketchstream.kinds.groups.group_list": ("Groups",),
    "sketchstream.kinds.profile.spec": ("ProfileSpec",),
    "sketchstream.kinds.convolution.spec": ("ConvolutionSpec",),
    "sketchstream.items.hashing": ("Key",),
    "sketchstream.sketch": ("Sketch", "merge"),
    "sketchstream.published": ("Origin", "Release", "SealedState", "Stack", "stack"),
    "sketchstream.storage": ("load",),
    "sketchstream.privacy.deployments.guarantee": ("Guarantee",),
    "sketchstream.privacy.ledgers.ledger": ("Ledger",),
    "sketchstream.query.window_sequence": ("Window", "Windows"),
    "sketchstream_connectors.lake.table": ("backfill",),
    "sketchstream_connectors.readers": ("windows",),
    "sketchstream.kinds.answers": ("Answers",),
    "sketchstream.kinds.estimates": ("Estimate",),
    "sketchstream.kinds.profile_answers": ("Profile",),
    "sketchstream.kinds.profile.planner": ("Plan", "plan", "required"),
    "sketchstream.denoising.methods": ("Denoised", "denoise"),
    "sketchstream.kinds.gaussian.answers": ("GaussianEstimate",),
    "sketchstream.kinds.convolution.reading.series": ("Series",),
    "sketchstream.kinds.convolution.reading.answers": ("FilterAnswers",),
    "sketchstream.kinds.hierarchy.answers": ("HierarchyAnswers",),
    "sketchstream.kinds.projection.reading.questions": ("RowAnswer",),
    "sketchstream.kinds.projection.reading.rows": ("PublishedRows",),
    "sketchstream.kinds.workload.answers": ("WorkloadAnswers",),
    "sketchstream.kinds.groups.overlap": ("Overlap",),
    "sketchstream.kinds.gaussian.spec": ("GaussianSpec",),
    "sketchstream.privacy.calibration.continuous": ("calibrate", "delta_of", "epsilon_of"),
    "sketchstream.privacy.calibration.discrete": ("DiscreteCalibration", "calibrate_discrete"),
    "sketchstream.kinds.workload.spec": ("WorkloadSpec",),
    "sketchstream.kinds.workload.queries.universe": ("Column", "Universe"),
    "sketchstream.kinds.projection.spec": ("ProjectionSpec",),
    "sketchstream.kinds.hierarchy.spec": ("HierarchySpec",),
    "sketchstream.items.arrays": ("Pairs",),
    "sketchstream.privacy.hygiene": ("Hardened", "harden"),
    "sketchstream.errors": (
        "BrokerError",
        "BudgetError",
        "ChecksumError",
        "ConfigError",
        "DataLossError",
        "DomainError",
        "EstimateError",
        "FencedError",
        "FormatError",
        "ItemError",
        "KeyMismatchError",
        "MergeError",
        "MissingExtraError",
        "SealedError",
        "SketchstreamError",
        "SpecError",
        "StoreError",
        "TruncatedError",
        "VersionError",
        "WeightError",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Answers",
    "BrokerError",
    "BudgetError",
    "ChecksumError",
    "ClosedDomain",
    "Column",
    "ConfigError",
    "ConvolutionSpec",
    "DataLossError",
    "Denoised",
    "DiscreteCalibration",
    "DomainError",
    "Estimate",
    "EstimateError",
    "FencedError",
    "FilterAnswers",
    "FormatError",
    "GaussianEstimate",
    "GaussianSpec",
    "Groups",
    "Guarantee",
    "Hardened",
    "HierarchyAnswers",
    "HierarchySpec",
    "ItemError",
    "Key",
    "KeyMismatchError",
    "Ledger",
    "MergeError",
    "MissingExtraError",
    "NoPrivacyWarning",
    "OpenDomain",
    "Origin",
    "Overlap",
    "Pairs",
    "Plan",
    "Profile",
    "ProfileSpec",
    "ProjectionSpec",
    "PublishedRows",
    "Release",
    "RowAnswer",
    "SealedError",
    "SealedState",
    "Series",
    "Sketch",
    "SketchstreamError",
    "SpecError",
    "Stack",
    "StoreError",
    "TruncatedError",
    "Universe",
    "VersionError",
    "WeightError",
    "Window",
    "Windows",
    "WorkloadAnswers",
    "WorkloadSpec",
    "backfill",
    "calibrate",
    "calibrate_discrete",
    "delta_of",
    "denoise",
    "epsilon_of",
    "harden",
    "load",
    "merge",
    "plan",
    "required",
    "stack",
    "windows",
]

if TYPE_CHECKING:
    from sketchstream.denoising.methods import Denoised, denoise
    from sketchstream.errors import (
        BrokerError,
        BudgetError,
        ChecksumError,
        ConfigError,
        DataLossError,
        DomainError,
        EstimateError,
        FencedError,
        FormatError,
        ItemError,
        KeyMismatchError,
        MergeError,
        MissingExtraError,
        SealedError,
        SketchstreamError,
        SpecError,
        StoreError,
        TruncatedError,
        VersionError,
        WeightError,
    )
    from sketchstream.items.arrays import Pairs
    from sketchstream.items.hashing import Key
    from sketchstream.kinds.answers import Answers
    from sketchstream.kinds.convolution.reading.answers import FilterAnswers
    from sketchstream.kinds.convolution.reading.series import Series
    from sketchstream.kinds.convolution.spec import ConvolutionSpec
    from sketchstream.kinds.estimates import Estimate
    from sketchstream.kinds.gaussian.answers import GaussianEstimate
    from sketchstream.kinds.gaussian.spec import GaussianSpec
    from sketchstream.kinds.groups.group_list import Groups
    from sketchstream.kinds.groups.overlap import Overlap
    from sketchstream.kinds.hierarchy.answers import HierarchyAnswers
    from sketchstream.kinds.hierarchy.spec import HierarchySpec
    from sketchstream.kinds.profile.planner import Plan, plan, required
    from sketchstream.kinds.profile.spec import ProfileSpec
    from sketchstream.kinds.profile_answers import Profile
    from sketchstream.kinds.projection.reading.questions import RowAnswer
    from sketchstream.kinds.projection.reading.rows import PublishedRows
    from sketchstream.kinds.projection.spec import ProjectionSpec
    from sketchstream.kinds.workload.answers import WorkloadAnswers
    from sketchstream.kinds.workload.queries.universe import Column, Universe
    from sketchstream.kinds.workload.spec import WorkloadSpec
    from sketchstream.privacy.calibration.continuous import calibrate, delta_of, epsilon_of
    from sketchstream.privacy.calibration.discrete import DiscreteCalibration, calibrate_discrete
    from sketchstream.privacy.deployments.guarantee import Guarantee
    from sketchstream.privacy.hygiene import Hardened, harden
    from sketchstream.privacy.ledgers.ledger import Ledger
    from sketchstream.published import Origin, Release, SealedState, Stack, stack
    from sketchstream.query.window_sequence import Window, Windows
    from sketchstream.sketch import Sketch, merge
    from sketchstream.spec import ClosedDomain, NoPrivacyWarning, OpenDomain
    from sketchstream.storage import load
    from sketchstream_connectors.lake.table import backfill
    from sketchstream_connectors.readers import windows


def __getattr__(name: str) -> object:
    """Import the module of a public name on first use."""
    home = _HOME_OF.get(name) or _home_of_spec(name)
    if home is None:
        msg = f"module 'sketchstream' has no attribute {name!r}"
        raise AttributeError(msg)
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def _home_of_spec(name: str) -> str | None:
    """Module of the spec of a registered kind that has no line above: `spec` of the package of that name."""
    if not name.endswith("Spec"):
        return None
    homes: tuple[str, ...] = import_module("sketchstream.kinds").homes_of_specs()
    return next((home for home in homes if name == f"{home.split('.')[-2].capitalize()}Spec"), None)


def __dir__() -> list[str]:
    """List public names."""
    return [*__all__, "__version__"]
