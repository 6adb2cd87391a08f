"""Sketches, releases, ledgers and guarantees as cards for notebooks.

In: those objects. Out: HTML. Touches: nothing. An open sketch shows only public fields of its header, no counters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from sketchstream.pictures import charts, report
from sketchstream.pictures.numbers import draw_chart

MAX_ROWS: Final = 20
"""Most rows of a ledger that a card shows."""


def sketch(title: str, sketch_or_state: Any) -> str:
    """Card of an open or closed sketch, or of a sealed state: public parameters."""
    return report.card(title, tables=[_facts(_sketch_rows(sketch_or_state))], note=sketch_or_state.guarantee().summary)


def release(published: Any, *, histogram: bool) -> str:
    """Card of a release: its parameters, and the published numbers, which contain noise.

    Args:
        published: the release.
        histogram: whether these numbers are a histogram, which is drawn.
    """
    rows = [*_sketch_rows(published), ("loss to this publication alone", published.loss)]
    return report.card(
        "Release at seal" if published.final else "Release, the sketch stayed open",
        tables=[_facts(rows)],
        charts=[draw_chart(lambda: _published_chart(published))] if histogram else [],
        note=f"{published.guarantee().summary} .{published.kind.answer}() takes the noise out of these numbers.",
    )


def stack(published: Any) -> str:
    """Card of a stack: the parameters of its parts."""
    rows = [("parts", f"{len(published.parts):,}"), *published.kind.facts(published.spec, published.slots)]
    return report.card("Stack", tables=[_facts(rows)], note=published.guarantee().summary)


def ledger(account: Any) -> str:
    """Card of a ledger: layers, views and their costs."""
    columns = ("what", f"cost ({account.symbol})", f"an event after it ({account.symbol})")
    rows = [
        (" ".join(filter(None, (row["part"], row["what"]))), row["cost"], row["an event after it"])
        for row in account.rows()
    ]
    caption = "Layers and views" if len(rows) <= MAX_ROWS else f"Layers and views, the last {MAX_ROWS} of {len(rows):,}"
    return report.card(
        "Ledger", tables=[report.ReportTable(caption, columns, rows[-MAX_ROWS:])], note=account.sentences()[-1]
    )


def guarantee(statement: Any) -> str:
    """Card of a guarantee: its numbers, and folded sentences."""
    fields = statement.to_dict()
    rows = [
        (readers, fields[name])
        for readers, name in (
            ("readers of what is published", "published"),
            ("readers who also copied the open state once", "published_and_one_copy"),
            ("readers of all sketches and windows of a day", "total"),
            ("readers of everything that is kept", "total_kept"),
        )
        if name in fields
    ]
    lists = [
        ("Protected", statement.protects),
        ("How much, at most", statement.seen),
        ("Not protected", statement.not_protected),
        ("Assumed", statement.assumes),
    ]
    measure = " (epsilon)" if fields["measure"] == "epsilon" else ""
    table = report.ReportTable(f"Most that one {statement.unit} loses{measure}", ("against", "at most"), rows)
    return report.card("Guarantee", tables=[table], lists=lists, note=statement.summary)


def _facts(rows: Iterable[tuple[str, str]]) -> report.ReportTable:
    return report.ReportTable("Public parameters", ("what", "value"), list(rows))


def _sketch_rows(described: Any) -> list[tuple[str, str]]:
    """Public fields of the header of a sketch."""
    rows: list[tuple[str, str]] = described.kind.facts(described.spec, described.slots)
    rows.append(("noise layers", f"{len(described.layers)}"))
    origin = described.origin
    if origin.name:
        rows.append(("sketch", origin.name))
    if origin.window is not None:
        start, end = (str(np.datetime64(at, "ms").astype("datetime64[m]")).replace("T", " ") for at in origin.window)
        rows.append(("window (UTC)", f"{start} to {end}"))
    if origin.partition is not None:
        rows.append(("partition", str(origin.partition)))
    return rows


def _published_chart(published: Any) -> charts.Chart:
    """Histogram of published counters, all levels together."""
    edges, numbers = published.edges, published.noised.sum(axis=0).astype(np.float64)
    if published.form == "bins":
        numbers = np.cumsum(numbers[::-1])[::-1]
    inside = edges >= 1
    noise = 3 / float(published.cost)  # about two standard deviations of the publication
    last = int(np.flatnonzero(numbers[inside] > noise).max(initial=4)) + 1
    k, value = edges[inside][:last], numbers[inside][:last]
    return charts.reach_chart(
        charts.CountsCurve(k, value, value, value),
        "What was published",
        "counters at k or above",
        "Noisy counters, not items: noise and collisions are still in them.",
    )
