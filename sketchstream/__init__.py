"""Updatable, pan-private statistics over streams.

In: nothing. Out: the names of the public Python interface. All but the errors are loaded when they are first used, so
that importing the package stays quick. Touches: nothing.

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

from sketchstream.errors import (
    BrokerError as BrokerError,
    BudgetError as BudgetError,
    BusyError as BusyError,
    ChecksumError as ChecksumError,
    ConfigError as ConfigError,
    CorruptRecordError as CorruptRecordError,
    DataLossError as DataLossError,
    DeadlineError as DeadlineError,
    DomainError as DomainError,
    EstimateError as EstimateError,
    FencedError as FencedError,
    FormatError as FormatError,
    ItemError as ItemError,
    KeyMismatchError as KeyMismatchError,
    MergeError as MergeError,
    MissingExtraError as MissingExtraError,
    SchemaUnavailableError as SchemaUnavailableError,
    SealedError as SealedError,
    SketchstreamError as SketchstreamError,
    SnapshotsGoneError as SnapshotsGoneError,
    SpecError as SpecError,
    StoreError as StoreError,
    TruncatedError as TruncatedError,
    VersionError as VersionError,
    WeightError as WeightError,
)

__version__ = "0.1.0"

_HOMES = {
    "sketchstream.spec": ("ClosedDomain", "NoPrivacyWarning", "OpenDomain"),
    "sketchstream.kinds.groups.group_list": ("Groups",),
    "sketchstream.kinds.profile.spec": ("ProfileSpec",),
    "sketchstream.kinds.convolution.spec": ("ConvolutionSpec",),
    "sketchstream.items.key": ("Key",),
    "sketchstream.sketch": ("Sketch", "merge"),
    "sketchstream.provenance": ("Origin",),
    "sketchstream.published": ("Release", "SealedState", "Stack", "stack"),
    "sketchstream.storage": ("load",),
    "sketchstream.privacy.deployments.guarantee": ("Guarantee",),
    "sketchstream.privacy.ledgers.ledger": ("Ledger",),
    "sketchstream.query.differences": ("Difference",),
    "sketchstream.query.window_sequence": ("Window", "Windows"),
    "sketchstream_connectors.lake.table": ("backfill",),
    "sketchstream_connectors.readers": ("windows",),
    "sketchstream.kinds.answers": ("Answers",),
    "sketchstream.kinds.estimates": ("Estimate",),
    "sketchstream.kinds.workload.queries.queries": ("Workload",),
    "sketchstream.privacy.ledgers.gaussian_ledger": ("GaussianLedger",),
    "sketchstream.kinds.profile_answers": ("Profile",),
    "sketchstream.kinds.forecast": ("Forecast", "forecast"),
    "sketchstream.kinds.profile.planner": ("Plan", "plan", "smallest_plan"),
    "sketchstream.denoising.methods": ("Denoised", "denoise"),
    "sketchstream.kinds.gaussian.answers": ("GaussianEstimate", "Ranked"),
    "sketchstream.kinds.convolution.reading.series": ("Series",),
    "sketchstream.kinds.convolution.reading.answers": ("FilterAnswers",),
    "sketchstream.kinds.hierarchy.answers": ("HierarchyAnswers",),
    "sketchstream.kinds.projection.reading.answers": ("RowAnswer",),
    "sketchstream.kinds.projection.reading.rows": ("PublishedRows", "RowEstimates"),
    "sketchstream.kinds.workload.answers": ("WorkloadAnswers",),
    "sketchstream.kinds.groups.overlap": ("Overlap", "SetEstimate"),
    "sketchstream.kinds.gaussian.spec": ("GaussianSpec",),
    "sketchstream.privacy.calibration.continuous": ("calibrate", "delta_of", "epsilon_of"),
    "sketchstream.privacy.calibration.discrete": ("DiscreteCalibration", "calibrate_discrete"),
    "sketchstream.kinds.workload.spec": ("WorkloadSpec",),
    "sketchstream.kinds.workload.queries.universe": ("Column", "Universe"),
    "sketchstream.kinds.projection.spec": ("IdentityRowsWarning", "ProjectionSpec"),
    "sketchstream.kinds.hierarchy.spec": ("HierarchySpec",),
    "sketchstream.items.arrays": ("Pairs",),
    "sketchstream.privacy.hygiene": ("Hardened", "harden"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

_ERRORS = [name for name in dir() if name.endswith("Error")]

__all__ = sorted([*_HOME_OF, *_ERRORS])  # noqa: PLE0605 - made of the table and the imports above

if TYPE_CHECKING:
    from sketchstream.denoising.methods import Denoised as Denoised, denoise as denoise
    from sketchstream.items.arrays import Pairs as Pairs
    from sketchstream.items.key import Key as Key
    from sketchstream.kinds.answers import Answers as Answers
    from sketchstream.kinds.convolution.reading.answers import FilterAnswers as FilterAnswers
    from sketchstream.kinds.convolution.reading.series import Series as Series
    from sketchstream.kinds.convolution.spec import ConvolutionSpec as ConvolutionSpec
    from sketchstream.kinds.estimates import Estimate as Estimate
    from sketchstream.kinds.forecast import Forecast as Forecast, forecast as forecast
    from sketchstream.kinds.gaussian.answers import GaussianEstimate as GaussianEstimate, Ranked as Ranked
    from sketchstream.kinds.gaussian.spec import GaussianSpec as GaussianSpec
    from sketchstream.kinds.groups.group_list import Groups as Groups
    from sketchstream.kinds.groups.overlap import Overlap as Overlap, SetEstimate as SetEstimate
    from sketchstream.kinds.hierarchy.answers import HierarchyAnswers as HierarchyAnswers
    from sketchstream.kinds.hierarchy.spec import HierarchySpec as HierarchySpec
    from sketchstream.kinds.profile.planner import Plan as Plan, plan as plan, smallest_plan as smallest_plan
    from sketchstream.kinds.profile.spec import ProfileSpec as ProfileSpec
    from sketchstream.kinds.profile_answers import Profile as Profile
    from sketchstream.kinds.projection.reading.answers import RowAnswer as RowAnswer
    from sketchstream.kinds.projection.reading.rows import PublishedRows as PublishedRows, RowEstimates as RowEstimates
    from sketchstream.kinds.projection.spec import (
        IdentityRowsWarning as IdentityRowsWarning,
        ProjectionSpec as ProjectionSpec,
    )
    from sketchstream.kinds.workload.answers import WorkloadAnswers as WorkloadAnswers
    from sketchstream.kinds.workload.queries.queries import Workload as Workload
    from sketchstream.kinds.workload.queries.universe import Column as Column, Universe as Universe
    from sketchstream.kinds.workload.spec import WorkloadSpec as WorkloadSpec
    from sketchstream.privacy.calibration.continuous import (
        calibrate as calibrate,
        delta_of as delta_of,
        epsilon_of as epsilon_of,
    )
    from sketchstream.privacy.calibration.discrete import (
        DiscreteCalibration as DiscreteCalibration,
        calibrate_discrete as calibrate_discrete,
    )
    from sketchstream.privacy.deployments.guarantee import Guarantee as Guarantee
    from sketchstream.privacy.hygiene import Hardened as Hardened, harden as harden
    from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger as GaussianLedger
    from sketchstream.privacy.ledgers.ledger import Ledger as Ledger
    from sketchstream.provenance import Origin as Origin
    from sketchstream.published import (
        Release as Release,
        SealedState as SealedState,
        Stack as Stack,
        stack as stack,
    )
    from sketchstream.query.differences import Difference as Difference
    from sketchstream.query.window_sequence import Window as Window, Windows as Windows
    from sketchstream.sketch import Sketch as Sketch, merge as merge
    from sketchstream.spec import (
        ClosedDomain as ClosedDomain,
        NoPrivacyWarning as NoPrivacyWarning,
        OpenDomain as OpenDomain,
    )
    from sketchstream.storage import load as load
    from sketchstream_connectors.lake.table import backfill as backfill
    from sketchstream_connectors.readers import windows as windows


def __getattr__(name: str) -> object:
    """Import the module of a public name on first use."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'sketchstream' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List public names."""
    return [*__all__, "__version__"]
