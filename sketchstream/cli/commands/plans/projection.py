"""`sketchstream plan --kind projection`: the best number of columns, expected errors, and whether to project at all.

In: the spec of the sketch, and the expected distances of rows. Out: expected errors. Touches: nothing; no data
and no sketch are read.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

import click

from sketchstream.cli import options, show

if TYPE_CHECKING:
    from sketchstream.kinds.projection.forecast import RowsPlan

COLUMNS: Final = ("k", "standard error", "relative", "memory", "")


@click.command()
@click.option("--rows", "users", type=click.IntRange(min=1), required=True, help="Rows (users).")
@click.option("--features", type=click.IntRange(min=1), required=True, help="Features of a row.")
@click.option("--epsilon", required=True, help='Privacy of the state: "1", "0.1", "1/2".')
@click.option("--delta", required=True, help='Delta of the state, such as "1e-6".')
@click.option(
    "--squared-distance",
    type=click.FloatRange(min=0, min_open=True),
    required=True,
    help="Squared distance of two typical rows.",
)
@click.option("-k", type=click.IntRange(min=1), help="Columns.  [default: the best of 8, 16, ... 4096]")
@options.unit()
@click.option("--max-weight", help="Unit event: largest absolute weight.  [default: 1]")
@click.option("--max-total", help="Unit item, a promise: the absolute weights of one row add up to at most this.")
@click.option("--max-norm", help="Unit item, a promise: the L2 norm of a row is at most this.")
@click.option("--max-features", type=click.IntRange(min=1), help="With --max-norm, a promise: features of a row.")
@options.choice(
    "--family", ("gaussian", "rademacher", "srht"), "Distribution of the matrix.", "gaussian", name="matrix"
)
@options.choice("--matrix-seed", ("public", "secret"), "Whether the matrix is known.", "public")
@options.fraction_bits(30)
@options.publication
@click.option("--parts", type=click.IntRange(min=1), default=1, show_default=True, help="Partitions that are merged.")
@options.result_format()
def command(squared_distance: float, k: int | None, parts: int, form: show.Format, **given: Any) -> None:
    r"""Compute the expected error of squared distances for every number of columns, and without a projection.

    Rows without a projection are those of `matrix = "identity"`, under the same promise. Nothing is drawn and no
    data are read.

    \b
    Examples:
      sketchstream plan --kind projection --rows 105 --features 441 --epsilon 1 --delta 1e-6 --squared-distance 1e6
      sketchstream plan --kind projection --rows 1000 --features 100000 --epsilon 1 --delta 1e-6 \
          --unit item --max-norm 1 --matrix-seed secret --squared-distance 1e4 --format json
    """
    from sketchstream.kinds.forecast import plain_forecast
    from sketchstream.kinds.projection.forecast import plan
    from sketchstream.kinds.projection.spec import IdentityRowsWarning, ProjectionSpec

    arguments = {name: value for name, value in given.items() if value is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentityRowsWarning)  # the plan reports it with numbers
        spec = ProjectionSpec(k=k or 8, **arguments)
    sized = plan(spec, squared_distance, parts=parts, candidates=None if k is None else (k,))

    def data() -> dict[str, Any]:
        tried = [{"k": str(size.k), "rmse": size.distance} for size in sized.tried]
        return plain_forecast(sized.spec, lambda _: ("squared distance", sized.best.distance), tried) | sized.to_dict()

    if show.print_data(form, data, list(sized.rows()[0]), sized.rows):
        _print(sized)


def _print(sized: RowsPlan) -> None:
    from sketchstream.stream.windows.units import spell_bytes

    spec, best = sized.spec, sized.best
    rows = [
        (str(size.k), size.distance, size.k, "best" if size.k == best.k and len(sized.tried) > 1 else "")
        for size in sized.tried
    ]
    mark = "more accurate" if best.identity_better else ""
    rows.append(("no projection", best.identity, spec.features.size, mark))
    cells = [
        (name, f"{error:,.4g}", f"{error / sized.distance2:.1%}", spell_bytes(8 * spec.users.size * width), mark)
        for name, error, width, mark in rows
    ]
    show.print_table(COLUMNS, cells)
    click.echo()
    for sentence in sized.sentences():
        click.echo(sentence)
