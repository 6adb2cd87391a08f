"""Sketches, releases, ledgers and guarantees as cards for notebooks.

In: those objects. Out: HTML. Touches: nothing. An open sketch shows only public fields of its header, no counters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from sketchstream.pictures import charts, report
from sketchstream.pictures.numbers import drawn

ROWS: Final = 20
"""Rows of a ledger that a card shows."""


def sketch(title: str, found: Any) -> str:
    """Card of an open or closed sketch, or of a sealed state: public parameters."""
    return report.card(title, tables=[_facts(_sketch_rows(found))], note=found.guarantee().summary)


def release(found: Any, *, histogram: bool) -> str:
    """Card of a release: its parameters, and the published numbers, which contain noise.

    Args:
        found: the release.
        histogram: whether these numbers are a histogram, which is drawn.
    """
    rows = [*_sketch_rows(found), ("loss to this publication alone", found.loss)]
    return report.card(
        "Release at seal" if found.final else "Release, the sketch stayed open",
        tables=[_facts(rows)],
        charts=[drawn(lambda: _published_chart(found))] if histogram else [],
        note=f"{found.guarantee().summary} .{found.kind.answer}() takes the noise out of these numbers.",
    )


def stack(found: Any) -> str:
    """Card of a stack: the parameters of its parts."""
    rows = [("parts", f"{len(found.parts):,}"), *found.kind.facts(found.spec, found.slots)]
    return report.card("Stack", tables=[_facts(rows)], note=found.guarantee().summary)


def ledger(found: Any) -> str:
    """Card of a ledger: layers, views and their costs."""
    columns = ("what", f"cost ({found.said})", f"an event after it ({found.said})")
    rows = [
        (" ".join(filter(None, (row["part"], row["what"]))), row["cost"], row["an event after it"])
        for row in found.rows()
    ]
    caption = "Layers and views" if len(rows) <= ROWS else f"Layers and views, the last {ROWS} of {len(rows):,}"
    return report.card(
        "Ledger", tables=[report.ReportTable(caption, columns, rows[-ROWS:])], note=str(found).splitlines()[-1]
    )


def guarantee(found: Any) -> str:
    """Card of a guarantee: its numbers, and folded sentences."""
    said = found.to_dict()
    rows = [
        (readers, said[name])
        for readers, name in (
            ("readers of what is published", "published"),
            ("readers who also copied the open state once", "published_and_one_copy"),
            ("readers of all sketches and windows of a day", "total"),
            ("readers of everything that is kept", "total_kept"),
        )
        if name in said
    ]
    lists = [
        ("Protected", found.protects),
        ("How much, at most", found.seen),
        ("Not protected", found.lost),
        ("Assumed", found.assumes),
    ]
    measure = " (epsilon)" if said["measure"] == "epsilon" else ""
    table = report.ReportTable(f"Most that one {found.unit} loses{measure}", ("against", "at most"), rows)
    return report.card("Guarantee", tables=[table], lists=lists, note=found.summary)


def _facts(rows: Iterable[tuple[str, str]]) -> report.ReportTable:
    return report.ReportTable("Public parameters", ("what", "value"), list(rows))


def _sketch_rows(found: Any) -> list[tuple[str, str]]:
    """Public fields of the header of a sketch."""
    rows: list[tuple[str, str]] = found.kind.facts(found.spec, found.slots)
    rows.append(("noise layers", f"{len(found.layers)}"))
    origin = found.origin
    if origin.name:
        rows.append(("sketch", origin.name))
    if origin.window is not None:
        start, end = (str(np.datetime64(at, "ms").astype("datetime64[m]")).replace("T", " ") for at in origin.window)
        rows.append(("window (UTC)", f"{start} to {end}"))
    if origin.partition is not None:
        rows.append(("partition", str(origin.partition)))
    return rows


def _published_chart(found: Any) -> charts.Chart:
    """Histogram of published counters, all levels together."""
    edges, numbers = found.edges, found.noised.sum(axis=0).astype(np.float64)
    if found.form == "bins":
        numbers = np.cumsum(numbers[::-1])[::-1]
    inside = edges >= 1
    noise = 3 / float(found.cost)  # about two standard deviations of the publication
    last = int(np.flatnonzero(numbers[inside] > noise).max(initial=4)) + 1
    k, value = edges[inside][:last], numbers[inside][:last]
    return charts.reach_chart(
        charts.CountsCurve(k, value, value, value),
        "What was published",
        "counters at k or above",
        "Noisy counters, not items: noise and collisions are still in them.",
    )
