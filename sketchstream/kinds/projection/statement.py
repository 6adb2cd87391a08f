"""The guarantee of a sketch of kind `projection`: what is its own in it.

In: a spec. Out: sentences of its `Guarantee`. Touches: nothing.
Source: docs/theory/projection.md, sections 2 to 4; docs/theory/gaussian_ledger.md.
"""

from __future__ import annotations

from typing import Final

from sketchstream.kinds.projection.spec import ProjectionSpec

PUBLIC: Final = (
    "the users and features of the domain, k, the bounds of weights, and the class of the matrix: all are public"
)
"""What of this kind is not protected."""


def protects(spec: ProjectionSpec) -> tuple[str, ...]:
    """Sentences on the unit, with the promise that bounds it.

    Args:
        spec: of the sketch.
    """
    return _protected(spec), _relation(spec)


def _protected(spec: ProjectionSpec) -> str:
    """The unit, with the promise that bounds it."""
    if spec.unit == "event":
        return f"one event: one user, one feature, an absolute weight of at most {spec.max_weight}; or its absence"
    promises = []
    if spec.max_total is not None:
        promises.append(f"their absolute weights add up to at most {spec.max_total}")
    if spec.max_norm is not None:
        norm = f"the sums of absolute weights by feature have an L2 norm of at most {spec.max_norm}"
        limit = "" if spec.max_features is None else f", on at most {spec.max_features} features"
        promises.append(norm + limit)
    return f"all events of one user in this sketch, if {', and '.join(promises)}"


def _relation(spec: ProjectionSpec) -> str:
    """Neighbours, and what replacing costs."""
    if spec.unit == "event":
        return (
            "that it happened at all (its weight against 0); replacing it by another event of the same user multiplies "
            "mu by at most 2, by an event of another user by at most the square root of 2"
        )
    return (
        "that the user was there at all (the row against zeros); replacing the row by another one within the same "
        "bounds multiplies mu by at most 2"
    )


def assumes(spec: ProjectionSpec) -> tuple[str, ...]:
    """Sentences on the assumptions of the proof.

    Args:
        spec: of the sketch.
    """
    lines = [
        "AES-256: this is computational differential privacy up to the cipher; the samplers are exact",
        "parameters, lists of users and features, and a public seed were not chosen from the data",
    ]
    if spec.unit == "item":
        lines.append(
            "the promise on the weights of a user, over all partitions of the sketch together: its source keeps it, "
            "the engine keeps no count of users that could check it"
        )
    if spec.matrix == "identity":
        return tuple(lines)
    if spec.matrix_seed == "public":
        lines.append(
            "nothing about the matrix: the numbers hold for this one, and for rows chosen with knowledge of it"
        )
    else:
        lines += [
            "the hash key: nobody who produces data, or chooses them, has it; the matrix depends on it",
            "the stream does not react to what is published of this sketch, nor to a copy of its open state: both show "
            "something of the matrix",
            "no other sketch of this spec, name, revision and window is made with this key",
            "BLAKE2b: the matrix comes from a keyed hash, which stands for a random function",
        ]
    return tuple(lines)
