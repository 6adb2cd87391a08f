"""One public interface for all kinds: what a user writes for one sketch works for every other.

Every case of `helpers.kind_cases` is held to each row; a new kind adds its case there, and nothing here.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
import math
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from helpers import json_schema
from helpers.commands import Run
from helpers.conformance import Case
from helpers.kind_cases import CASES
from helpers.paths import ROOT
from helpers.tally import KIND
from sketchstream import kinds
from sketchstream.audit import cases
from sketchstream.kinds import presentation
from sketchstream.kinds.forecast import plain_forecast
from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger

PUBLIC = {name: case for name, case in CASES.items() if name != "tally"}
"""All but the toy kind, whose answers are a list."""
SHARED = {"epsilon", "delta", "unit", "epsilon_publish", "delta_publish", "intrusion", "max_weight", "max_total",
          "capacity", "counted_share", "epsilon_records"}  # fmt: skip
"""Parameters of specs of several kinds."""
SAID = {"unit", "delta", "measure", "published", "published_and_one_copy", "total", "total_kept", "losses", "warning",
        "relation", "swap_factor", "no_privacy", "protects", "seen", "not_protected", "assumes"}  # fmt: skip

LOSSES = {"loss", "loss_with_intrusion", "delta", "measure", "cost", "cost_with_intrusion", "budget", "affordable"}
KEYS = {"kind", "unit", "question", "method", "level", "epsilon", "delta", "no_privacy", "layers", "labels", "values",
        "stderr", "intervals", "guarantee"}  # fmt: skip

PLAN = {"quantity", "rmse", "noise", "alternatives", "advice"}

MADE: dict[int, Any] = {}

every_kind = pytest.mark.parametrize("case", PUBLIC.values(), ids=PUBLIC)


def test_a_parameter_of_several_specs_is_described_in_the_same_words() -> None:
    """Its description begins alike in all of them; what is the kind's own follows."""
    described: dict[str, list[str]] = {}
    for kind in dict.fromkeys(case.kind for case in PUBLIC.values()):
        page = inspect.getdoc(kind.spec_type) or ""
        block = page.partition("\nArgs:\n")[2].partition("\n\nRaises:")[0]
        for entry in re.split(r"\n(?=    \w+: )", block):
            name, _, text = " ".join(entry.split()).partition(": ")
            described.setdefault(name, []).append(text)
    shared = {name: texts for name, texts in described.items() if len(set(texts)) < len(texts) or name in SHARED}
    assert set(shared) >= SHARED
    for name, texts in shared.items():
        begins = min(texts, key=len).rstrip(".")
        assert all(text.startswith(begins) for text in texts), (name, texts)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy kind, for one test."""
    monkeypatch.setattr(kinds, "_LOADED", dict(kinds._LOADED))
    kinds.register(KIND)


def pure(case: Case) -> bool:
    """Whether losses are epsilons without a delta."""
    return not isinstance(case.sketch().ledger, GaussianLedger)


def test_every_kind_has_a_case() -> None:
    assert {case.kind.name for case in PUBLIC.values()} == set(kinds.names()) - {"tally"}


@every_kind
def test_a_ledger_says_its_epsilon_at_a_delta(case: Case) -> None:
    ledger = case.sketch().ledger
    usual, small, large = ledger.epsilon(), ledger.epsilon("1e-9"), ledger.epsilon("1e-3")
    assert all(isinstance(one, float) and 0 < one < math.inf for one in (usual, small, large))
    if pure(case):
        assert usual == small == large >= ledger.loss()
        assert Fraction(usual) - ledger.loss() < Fraction(1, 10**12)
    else:
        assert usual == ledger.loss().epsilon(case.spec.delta)
        assert large < usual < small
        with pytest.raises(ss.SpecError, match=r"delta must be in \[1e-300, 0.5\], such as '1e-6', found 0.7"):
            ledger.epsilon("0.7")
    bare = case.sketch()
    bare.ledger.record_look()
    again = ss.Sketch.from_bytes(bare.to_bytes(), bare.key)
    assert again.ledger.epsilon() == usual, "stored sketches say it at the same delta"


@every_kind
def test_a_budget_is_an_epsilon_and_perhaps_a_delta(case: Case) -> None:
    key = case.sketch().key
    loss = case.sketch().ledger.epsilon()
    made = ss.Sketch.create(case.spec, key, max_epsilon="49")
    assert made.ledger.epsilon() == loss
    with pytest.raises(ss.BudgetError, match="lower epsilon or epsilon_publish, or raise the budget"):
        ss.Sketch.create(case.spec, key, max_epsilon=Fraction(loss) / 2)
    with pytest.raises(ss.SpecError, match="leave max_delta out" if pure(case) else "max_epsilon beside max_delta"):
        ss.Sketch.create(case.spec, key, max_delta="1e-6")
    for wrong in ("0", "-1", "many"):
        with pytest.raises(ss.SpecError, match="max_epsilon must be a positive rational number such as '1'"):
            ss.Sketch.create(case.spec, key, max_epsilon=wrong)
    if not pure(case):
        with pytest.raises(ss.SpecError, match=r"max_delta must be in \[1e-300, 0.5\], such as '1e-6', found 0.7"):
            ss.Sketch.create(case.spec, key, max_epsilon="49", max_delta="0.7")


@every_kind
def test_releases_and_layers_take_an_epsilon_and_perhaps_a_delta(case: Case) -> None:
    kind, spec = case.kind, case.spec
    usual = kind.accounting.asked_cost(spec, "1/2", None)
    assert usual > 0
    for wrong, found in (("0", "0"), ("-1", "-1"), ("none", "'none'")):
        with pytest.raises(ss.SpecError, match=f"epsilon of a release must be a positive rational .*found {found}"):
            kind.accounting.asked_cost(spec, wrong, None)
    with pytest.raises(ss.SpecError, match="epsilon of a release above 50 protects nobody"):
        kind.accounting.asked_cost(spec, "60", None)
    sketch = case.sketch()
    sketch.refresh("1/2")
    assert sketch.ledger.layers[-1].cost == usual
    if pure(case):
        with pytest.raises(ss.SpecError, match="pure: its loss has delta = 0, leave delta out"):
            sketch.release("1/2", "1e-6")
        return
    assert kind.accounting.asked_cost(spec, "1/2", spec.delta) == usual
    with pytest.raises(ss.SpecError, match=r"delta of a release must be in \[1e-300, 0.5\], such as '1e-6', found 0.7"):
        sketch.release("1/2", "0.7")


@every_kind
def test_losses_are_plain_data_with_the_same_keys(case: Case) -> None:
    sketch = ss.Sketch.create(case.spec, case.sketch().key, max_epsilon="49")
    data = sketch.ledger.totals()
    assert list(LOSSES - data.keys()) == []
    assert json.loads(json.dumps(data)) == data
    assert Fraction(data["delta"]) == (0 if pure(case) else case.spec.delta)
    looked = data["cost_with_intrusion"]
    assert looked == "unlimited" or 0 < Fraction(data["cost"]) <= Fraction(looked)
    assert data["budget"]
    assert data["affordable"]
    none = case.sketch().ledger.totals()
    assert none["budget"] is none["affordable"] is None
    sealed = case.sketch().seal()
    assert sealed.ledger.totals().keys() == data.keys()


@every_kind
def test_epsilons_and_deltas_of_specs_have_one_range_and_one_set_of_words(case: Case) -> None:
    for wrong, words in (
        ("0", "epsilon must be a positive rational number such as '1', '0.1' or '1/2', found 0"),
        ("-1", "epsilon must be a positive rational number such as '1', '0.1' or '1/2', found -1"),
        ("many", "epsilon must be a positive rational number such as '1', '0.1' or '1/2', found 'many'"),
        ("1e-7", "epsilon must be at least 1e-6, found 1e-7"),
        ("51", "epsilon above 50 protects nobody and is refused, found 51"),
    ):
        with pytest.raises(ss.SpecError, match=f"^{re.escape(words)}$"):
            changed(case, epsilon=wrong)
    with pytest.raises(ss.SpecError, match=r"^unit must be 'event' or 'item', found 'person'$"):
        changed(case, unit="person")
    if pure(case):
        return
    for wrong in ("0.7", "x", "-1"):
        words = r"^delta must be (0 or )?in \[1e-300, 0.5\], such as '1e-6', found '?" + wrong
        with pytest.raises(ss.SpecError, match=words):
            changed(case, delta=wrong)
    with pytest.warns(ss.NoPrivacyWarning, match="delta above 1e-3"):
        changed(case, delta="1/100")
    if case.spec.intrusion:
        with pytest.raises(ss.SpecError, match="are for the fresh noise of seal, which intrusion=False leaves out"):
            changed(case, intrusion=False, epsilon_publish="1")


def changed(case: Case, **fields: object) -> Any:
    """The spec of a case with other arguments of its constructor."""
    spec = case.spec
    names = inspect.signature(type(spec)).parameters
    publish = {"epsilon_publish", "delta_publish"}  # by default those of the state
    given = {name: getattr(spec, name) for name in names if hasattr(spec, name) and name not in publish}
    return type(spec)(**{**given, **dict(case.arguments), **fields})


@every_kind
def test_options_of_an_update_are_refused_in_the_same_words(case: Case) -> None:
    sketch = case.sketch()
    with pytest.raises(ss.ItemError, match="invalid must be 'error', 'skip' or 'noop', found 'eror'"):
        sketch.update(list(case.items), invalid="eror")  # type: ignore[arg-type]
    with pytest.raises(ss.ItemError, match=r"update takes (rows, items|items) and weights, found 1 more"):
        sketch.update(list(case.items), [1] * len(case.items), [1] * len(case.items))


@every_kind
def test_events_are_refused_in_the_same_words(case: Case) -> None:
    if case.group is not None:
        return  # groups say that the item or the group is not declared
    sketch, good = case.sketch(), list(case.items[:3])
    if case.outside is not None:
        with pytest.raises(
            ss.DomainError, match=r"^the event at position 3 is not in the domain; nothing was applied$"
        ):
            sketch.update([*good, case.outside])
    if case.bad_weight is not None:
        words = r"^the weight at position 3 is not within -[\d/.]+\.\.[\d/.]+ \(max_\w+\); nothing was applied"
        with pytest.raises(ss.WeightError, match=words):
            sketch.update([*good, good[0]], [1, 1, 1, case.bad_weight])


@every_kind
def test_weights_with_fractions_are_never_cut(case: Case) -> None:
    if case.kind.intake.decimal_weights(case.spec):
        return
    sketch, two = case.sketch(), list(case.items[:2])
    before = sketch._state.copy()
    with pytest.raises(ss.WeightError):
        sketch.update(two, [1, 0.5])
    assert (sketch._state == before).all()
    twin = case.sketch()
    twin._state[:] = before
    sketch.update(two, [1, 0.5], invalid="noop")
    twin.update(two[:1], [1])
    assert (sketch._state == twin._state).all()


@every_kind
def test_statements_have_the_same_parts(case: Case) -> None:
    sketch = case.sketch()
    assert sketch.guarantee().to_dict().keys() >= SAID
    assert sketch.seal().guarantee().to_dict().keys() >= SAID


@every_kind
def test_a_guarantee_in_one_sentence_has_one_form(case: Case) -> None:
    bound = r"is at most epsilon [\d./e+-]+" + ("" if pure(case) else r" at delta [\d.e+-]+")
    form = (
        rf"The loss of one {case.spec.unit} {bound} against readers of what is published; "
        rf"against somebody who also copied the open state once, it ({bound}|has no bound)\."
    )
    said = case.sketch().seal().guarantee().summary
    assert re.fullmatch(form, said), said
    state = case.sketch().guarantee().summary
    assert re.fullmatch(form, state), state


@every_kind
def test_unknown_methods_and_options_are_refused_in_the_same_words(case: Case) -> None:
    published = case.sketch().seal()
    asked = case.kind.answer
    ask = getattr(published if case.group is None else published.group(case.group), asked)
    with pytest.raises(ss.EstimateError, match=r"^method must be one of .*, found 'zzz'$"):
        ask("zzz")
    with pytest.raises(ss.EstimateError, match=f"{asked} of kind '{case.kind.name}' takes .*; found .*bad"):
        ask(bad=1)


def answers_of(case: Case) -> Any:
    """The answers of a sealed sketch; where there are groups, of one of them. Made once for all tests."""
    if id(case) not in MADE:
        MADE[id(case)] = made(case)
    return MADE[id(case)]


def made(case: Case) -> Any:
    """See `answers_of`."""
    sketch = case.sketch()
    case.update(sketch)
    published = sketch.seal()
    if case.kind.answer != "profile":
        return published.estimate(**dict(case.options))
    return (published if case.group is None else published.group(case.group)).profile("inverse")


def bounded(case: Case) -> Any:
    """The same, by a method that has intervals."""
    found = answers_of(case)
    return found if found.bounded else case.sketch().seal().estimate()


@every_kind
def test_answers_are_numbers_with_standard_errors(case: Case) -> None:
    found = answers_of(case)
    assert found.values.dtype == found.stderr.dtype == np.float64
    assert found.values.shape == found.stderr.shape == (len(found.values),)
    assert np.isfinite(found.values).all()
    assert found.stderr.min() >= 0
    assert found.stderr.max() > 0


@every_kind
def test_intervals_are_pairs_of_any_level(case: Case) -> None:
    found = bounded(case)
    usual, wide, narrow = found.interval(), found.interval(0.99), found.interval(level=0.05)
    assert usual.dtype == np.float64
    assert usual.shape == (len(found.values), 2)
    assert np.array_equal(usual, found.interval(0.95))
    for outer, inner in ((wide, usual), (usual, narrow)):
        assert (outer[:, 0] <= inner[:, 0]).all()
        assert (inner[:, 1] <= outer[:, 1]).all()
    unknown = np.isinf(narrow[:, 1]).all() or (narrow[1:] == narrow[1]).all()  # noise beyond all that is possible
    assert (wide != narrow).any() or unknown
    for level in (0, 1, -0.5, 2, math.nan):
        with pytest.raises(ss.EstimateError, match=r"^level must be above 0 and below 1, found"):
            found.interval(level)


@every_kind
def test_rows_say_what_each_number_is(case: Case) -> None:
    found = bounded(case)
    rows = found.rows(0.9)
    assert not isinstance(rows, list), "an iterator: rows can be many"
    table = list(rows)
    names = [*found.labels, "value", "stderr", "low", "high"]
    assert all(list(row)[: len(names)] == names for row in table)
    assert [row["value"] for row in table] == found.values.tolist()
    assert [row["stderr"] for row in table] == found.stderr.tolist()
    assert [[row["low"], row["high"]] for row in table] == found.interval(0.9).tolist()
    for name, column in found.labels.items():
        assert [row[name] for row in table] == list(column)


@every_kind
def test_plain_data_of_answers_has_the_same_keys(case: Case) -> None:
    found = bounded(case)
    data = json.loads(found.to_json(0.9))
    assert list(KEYS - data.keys()) == []
    assert data["kind"] == case.kind.name
    assert data["level"] == 0.9
    assert data["values"] == found.values.tolist()
    assert data["stderr"] == found.stderr.tolist()
    ends = [[None if math.isinf(end) else end for end in pair] for pair in found.interval(0.9).tolist()]
    assert data["intervals"] == ends
    assert {name: len(column) for name, column in data["labels"].items()} == dict.fromkeys(found.labels, len(ends))
    assert data["guarantee"].keys() >= SAID
    assert json.loads(json.dumps(found.to_dict(0.9))) == data
    assert all(Fraction(data[name]) >= 0 for name in ("epsilon", "delta"))
    assert len(data["layers"]) >= 1


@every_kind
def test_answers_that_have_no_interval_say_so_in_the_same_words(case: Case) -> None:
    found = answers_of(case)
    data, first = found.to_dict(), next(found.rows())
    if found.bounded:
        assert len(data["intervals"]) == len(found.values)
        return
    assert data["intervals"] is first["low"] is first["high"] is None
    with pytest.raises(ss.EstimateError, match="have no intervals; ask for method="):
        found.interval()


@every_kind
def test_tables_of_answers_are_their_rows(case: Case) -> None:
    found = bounded(case)
    rows = list(found.rows(0.9))
    frame, table, text = found.to_pandas(0.9), found.to_arrow(0.9), found.to_csv(0.9)
    names = list(rows[0])
    assert list(frame.columns) == table.column_names == text.split("\n", 1)[0].split(",") == names
    assert len(frame) == table.num_rows == len(rows)
    for name in ("value", "stderr", "low", "high"):
        exact = [row[name] for row in rows]
        assert frame[name].tolist() == exact
        ends = [
            number if math.isfinite(number) else None for number in exact
        ]  # files say as JSON does that one is missing
        assert table.column(name).to_pylist() == ends
        assert [float(row[name]) if row[name] else None for row in csv.DictReader(io.StringIO(text))] == ends


@every_kind
def test_answers_are_drawn_and_have_a_card(case: Case, tmp_path: Path) -> None:
    found = bounded(case)
    figure = found.plot(tmp_path / "a.png")
    assert figure.axes
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "<table" in found._repr_html_()
    assert str(found)


@every_kind
def test_a_single_number_is_an_estimate(case: Case) -> None:
    found = bounded(case)
    data = found.numbers()
    names = [
        name
        for name in presentation.presentation_of(data).numbers(data)
        if presentation.presentation_of(data).number(data, name) is not None
    ]
    assert case.kind.rows(case.spec).usual_number in names
    for name in names[:8]:
        one = found.number(name)
        assert isinstance(one, ss.Estimate)
        assert float(one) == one.value
        assert not one.low > one.high
        plain = one.to_dict()
        assert next(iter(plain)) == "value"
        assert {"value", "low", "high"} <= plain.keys() <= {"value", "stderr", "low", "high", "bound"}
        assert json.loads(json.dumps(plain)) == plain
        wide = found.number(name, 0.99)
        assert not wide.low > one.low
        assert not wide.high < one.high
    with pytest.raises(ss.EstimateError, match="number"):
        found.number("no such number")


@every_kind
def test_plain_data_follow_the_one_schema(case: Case) -> None:
    schema = json.loads((ROOT / "docs" / "answers.schema.json").read_text())
    data = json.loads(bounded(case).to_json(0.9))
    assert json_schema.faults(data, schema, schema) == []
    for name in schema["required"]:
        assert json_schema.faults({**data, name: object()}, schema, schema), name
        assert json_schema.faults({key: one for key, one in data.items() if key != name}, schema, schema), name


def test_the_schema_is_written_from_the_model() -> None:
    written = subprocess.run([sys.executable, "docs/write_schemas.py", "--check"], cwd=ROOT, check=False)
    assert written.returncode == 0, "run docs/write_schemas.py"


@every_kind
def test_plans_have_the_same_keys(case: Case) -> None:
    if case is PUBLIC["profile, items in ranked groups"]:
        with pytest.raises(ss.EstimateError, match="take more slots, more levels or a larger epsilon"):
            plain_forecast(case.spec)
        return
    plan = plain_forecast(case.spec)
    assert plan.keys() == PLAN
    assert json.loads(json.dumps(plan)) == plan
    assert 0 < plan["rmse"] < math.inf
    assert plan["noise"]["law"] == case.kind.accounting.law(case.spec)
    assert plan["alternatives"]
    for one in plan["alternatives"]:
        more = Fraction(one.get("epsilon", "0")) - case.spec.epsilon
        assert (one["rmse"] < plan["rmse"]) == (more > 0 or "intrusion" in one)
    assert plan["quantity"] in plan["advice"]
    forecast = ss.forecast(case.spec)
    assert forecast.to_dict() == plan
    assert str(forecast) == plan["advice"]


@pytest.mark.parametrize("wrong", [None, "1", ss.ClosedDomain(size=3), {"kind": "gaussian"}])
def test_only_specs_have_a_forecast(wrong: Any) -> None:
    with pytest.raises(ss.SpecError, match="spec must be one of a kind of sketch"):
        ss.forecast(wrong)


@pytest.mark.parametrize("kind", kinds.names())
def test_every_kind_is_planned_from_a_table(kind: str, tmp_path: Path, run: Run) -> None:
    audit = dict(cases.audits())[kind]
    path = tmp_path / "sketch.toml"
    path.write_text(next(iter(audit.WORKERS.values())).replace("[[sketch.columns]]", "[[columns]]"))
    told = run("plan", "--table", str(path), "--format", "json")
    assert told.code == 0, told.err
    assert json.loads(told.out).keys() == PLAN


def test_the_driver_of_users_tests_is_where_they_look_for_it() -> None:
    from sketchstream import testing
    from sketchstream.testing.driver import Driver

    assert testing.Driver is Driver


def test_rows_and_items_are_given_together_or_apart() -> None:
    spec = ss.ProjectionSpec(12, 40, 16, "1", "1e-6", max_weight=3)
    rows, items, weights = [0, 3, 11], [5, 5, 39], [1, -2, 3]
    pairs = list(zip(rows, items, strict=True))
    ways: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((pairs, weights), {}),
        ((pairs,), {"weights": weights}),
        ((rows, items, weights), {}),
        ((rows, items), {"weights": weights}),
        ((np.array(rows), np.array(items), np.array(weights)), {}),
        ((np.array(pairs), weights), {}),
        ((ss.Pairs(rows, items), weights), {}),
    ]
    sketch = ss.Sketch.create(spec)
    start = sketch._state.copy()
    sketch.update(pairs, weights)
    moved = sketch._state - start
    assert moved.any()
    for arguments, named in ways:
        before = sketch._state.copy()
        sketch.update(*arguments, **named)
        assert (sketch._state - before == moved).all()
    before = sketch._state.copy()
    sketch.update(rows, items)
    once = sketch._state - before
    sketch.update(pairs, [-1, -1, -1])
    assert (sketch._state == before).all()
    assert once.any()
    with pytest.raises(ss.ItemError, match="one row for each item"):
        sketch.update(rows, items[:2])
    with pytest.raises(ss.ItemError, match="update takes rows, items and weights, found 1 more"):
        sketch.update(rows, items, weights, weights)
