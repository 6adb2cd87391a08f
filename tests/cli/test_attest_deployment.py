"""Evidence about a whole deployment: its signed bodies, and its record for the public deployment_record.

In: windows that a worker has published from a file. Out: verdicts. Touches: temporary folders; one process, which is
the small verifier.
"""

from __future__ import annotations

import base64
import json
import math
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import sketchstream as ss
from helpers.commands import Run
from helpers.json_schema import faults
from helpers.paths import ROOT
from sketchstream.attestations import deployment_record, verify_attestation
from sketchstream.errors import ConfigError
from sketchstream.privacy.deployments.deployment import Deployment
from sketchstream.provenance import Origin

HOUR = 3_600_000
START = 1_357_002_000_000 // HOUR * HOUR
CONFIG = """[input]
file = "e.jsonl"
item = "user"
item_type = "int"
time = "ts"
quorum = 1
quorum_time = "1ms"
close_at_end = true
[output]
directory = "sealed"
[[sketch]]
name = "people"
window = "1h"
unit = "item"
modulus = 8
epsilon = "1/2"
epsilon_publish = "1/3"
domain = { size = 40 }
[[sketch]]
name = "clicks"
window = "2h"
UNIT
epsilon = "1/5"
domain = { size = 40 }
"""
OPERATOR = """name = "Reach of pages"
data_curators = ["Example Ltd."]
intended_use = "Planning"
data_product_region = "Germany"
data_product_sector = "Technology"
registry_authors = ["A. Author"]
justification = "Chosen by `sketchstream size`."
"""
TEXT, TEXTS = {"type": "string"}, {"type": "array", "items": {"type": "string"}}


def fields(required: str = "", **properties: Any) -> dict[str, Any]:
    """An object with these fields and no others."""
    return {
        "type": "object", "additionalProperties": False, "required": required.split(), "properties": properties
    }  # fmt: skip


def texts(names: str, **more: Any) -> dict[str, Any]:
    return {**dict.fromkeys(names.split(), TEXT), **more}


def one_of(*words: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(words)}


SHAPE = fields(
    "url_slug status tier deployment",
    url_slug=TEXT,
    status=one_of("Draft"),
    tier={"type": "integer", "enum": [1, 2, 3]},
    deployment=fields(
        "basic",
        basic=fields(
            "name data_curators description intended_use data_product_type data_product_region publication_date",
            **texts(
                "name description intended_use data_product_region",
                data_curators=TEXTS,
                data_product_type=one_of("Summary statistics", "Dataset"),
                data_product_sector=one_of(*deployment_record.SECTORS),
                publication_date=TEXT,
            ),
        ),
        dp_variant=fields(
            **texts(
                "data_domain unprotected_quantities",
                variant_name=one_of("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
            )
        ),
        privacy_loss=fields(
            **texts("privacy_unit privacy_unit_details privacy_parameters_details"),
            privacy_parameters=fields(epsilon={"type": "number"}, delta={"type": "number"}, rho={"type": "number"}),
        ),
        deployment_model=fields(
            **texts("model_name_details actors release_type_details access_type_details"),
            model_name=one_of("Local", "Central", "Shuffle", "Federated", "Varies"),
            release_type=one_of("One release", "Many releases"),
            data_source_type=one_of("Static", "Dynamic"),
            access_type=one_of("Interactive", "Non-interactive"),
        ),
        accounting=fields(**texts("post_processing composition")),
        implementation=fields(**texts("preprocessing_and_hyperparameter_tuning mechanisms justification")),
        administrative=fields("registry_authors", **texts("sources notes", registry_authors=TEXTS)),
    ),
)
"""Fields and words of the registry's schema of July 2026, without its explanations."""


@pytest.fixture
def published(run: Run, tmp_path: Path) -> Callable[[str], Path]:
    """Run a worker over four hours; gives the folder."""

    def count(unit: str = 'unit = "item"\nmodulus = 8') -> Path:
        events = [{"ts": START + hour * HOUR + 60_000 + n, "user": n % 30} for hour in range(4) for n in range(50)]
        (tmp_path / "e.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in events))
        (tmp_path / "c.toml").write_text(CONFIG.replace("UNIT", unit))
        (tmp_path / "operator.toml").write_text(OPERATOR)
        assert run("keygen", "--signing", "-o", "k.pem").code == 0
        done = run("worker", "-c", "c.toml", "--log-level", "error")
        assert done.code == 0, done.err
        return tmp_path

    return count


def attest(run: Run, *more: str) -> Any:
    return run("attest", "-c", "c.toml", "--bodies", "bodies", "-o", "d.json", "--signing-key-file", "k.pem", *more)


def verified(folder: Path, files: list[Path]) -> subprocess.CompletedProcess[str]:
    script = ROOT / "sketchstream" / "attestations" / "verify_attestation.py"
    command = [sys.executable, str(script), "d.json", "k.pem.pub", *map(str, files)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_deployment_is_signed_with_all_its_bodies(run: Run, published: Callable[..., Path]) -> None:
    folder = published()
    done = attest(run, "--format", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"file": "d.json", "files": 7, "sketches": 7}
    files = sorted((folder / "bodies").iterdir())
    assert len(files) == 7
    accepted = verified(folder, files)
    assert accepted.returncode == 0, accepted.stderr
    assert accepted.stdout.count("ok: release") == 7
    dropped = verified(folder, files[1:])
    assert dropped.returncode == 1
    assert "not what was signed" in dropped.stderr
    payload = json.loads(base64.b64decode(json.loads((folder / "d.json").read_text())["payload"]))
    said = payload["predicate"]["deployment"]
    assert {one["sketch"] for one in said["positions"]} == {"people", "clicks"}
    ledger = json.loads(run("ledger", "-c", "c.toml", "--format", "json").out)
    assert said["ledger"]["total"] == ledger["total"]
    assert {one["loss"] for one in payload["predicate"]["sketches"]} == {"1/3", "1/5"}


def test_a_stretch_of_a_deployment_is_signed(run: Run, published: Callable[..., Path]) -> None:
    folder = published()
    first = "2013-01-01T02:00Z"
    done = attest(run, "--from", first, "--to", "2013-01-01T04:00Z", "--format", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["files"] == 3, "two windows of one hour, one of two"
    assert verified(folder, sorted((folder / "bodies").iterdir())).returncode == 0


def test_a_deployment_that_was_published_twice_is_refused(run: Run, published: Callable[..., Path]) -> None:
    """A second publication of one window, under another name: the statement is not made, and no bodies are left."""
    folder = published()
    body = next(one for one in (folder / "sealed").rglob("*.sealed") if "people" in str(one))
    other = ss.Sketch.create(ss.load(body).spec, origin=ss.load(body).origin).seal()
    copies = {"a": body.read_bytes(), "b": other.to_bytes()}
    with pytest.raises(ss.SketchstreamError, match="cannot be attested together: two states were published"):
        verify_attested(copies)


def verify_attested(bodies: dict[str, bytes]) -> None:
    from sketchstream.attestations import attestation

    found = attestation.statement_of(bodies)
    verify_attestation.check_bodies(bodies, json.loads(json.dumps(found)))


@pytest.mark.parametrize("unit", ["item", "event", "gaussian"])
def test_the_record_for_the_registry_has_its_shape_and_never_less_than_the_loss(
    run: Run, published: Callable[..., Path], unit: str
) -> None:
    blocks = {
        "item": 'unit = "item"\nmodulus = 8',
        "event": 'unit = "event"',
        "gaussian": 'kind = "gaussian"\nunit = "item"\nmax_total = 9\ndelta = "1e-6"',
    }
    folder = published(blocks[unit])
    done = attest(run, "--registry", "record.yaml", "--operator", "operator.toml")
    assert done.code == 0, done.err
    record = json.loads((folder / "record.yaml").read_text())
    assert faults(record, SHAPE, SHAPE) == []
    assert record["deployment"]["basic"]["publication_date"] == "2013-01-01"
    loss = record["deployment"]["privacy_loss"]
    ledger = json.loads(run("ledger", "-c", "c.toml", "--format", "json").out)
    if unit == "item":
        day = max(Fraction(one["item"]) for one in ledger["days"].values())
        assert day <= Fraction(loss["privacy_parameters"]["epsilon"]) <= day * Fraction(1000001, 1000000)
        assert "one item" in loss["privacy_unit"]
        assert record["deployment"]["dp_variant"]["variant_name"] == "Pure DP"
    elif unit == "event":
        event = Fraction(ledger["total"]["event"])
        assert event <= Fraction(loss["privacy_parameters"]["epsilon"]) <= event * Fraction(1000001, 1000000)
        assert loss["privacy_unit"] == "One event", "a sketch of unit event bounds no item"
    else:
        days = [one["item_together"]["epsilon"] for one in ledger["days"].values()]
        assert loss["privacy_parameters"] == {"epsilon": max(days), "delta": 1e-6}
        assert record["deployment"]["dp_variant"]["variant_name"] == "Approximate DP"
    assert "envelopes" in record["deployment"]["dp_variant"]["unprotected_quantities"]
    assert record["tier"] == 3


def test_a_loss_without_bound_is_no_record() -> None:
    spec = ss.ProfileSpec("1", domain=ss.ClosedDomain(size=4), publish="state", intrusion=False)
    one = ss.Sketch.create(spec, origin=Origin("s", window=(0, HOUR), partition=0))
    two = ss.Sketch.from_bytes(one.to_bytes())
    copied = Deployment.of([one.seal(), two.seal()])
    assert copied.total().event == math.inf
    operator = {name: ["x"] if kind is list else "x" for name, kind in deployment_record.NEEDED.items()}
    with pytest.raises(ConfigError, match="has no bound"):
        deployment_record.record(copied, {"s": spec}, operator)
    with pytest.raises(ConfigError, match="nothing was published"):
        deployment_record.record(Deployment(()), {}, operator)


def test_a_record_states_losses_of_items_only_where_every_sketch_bounds_them() -> None:
    operator = {name: ["x"] if kind is list else "x" for name, kind in deployment_record.NEEDED.items()}
    specs = {unit: ss.ProfileSpec("1", unit, domain=ss.ClosedDomain(size=4)) for unit in ("item", "event")}  # type: ignore[arg-type]
    bodies = {
        name: ss.Sketch.create(spec, origin=Origin(name, window=(0, HOUR), partition=0)).seal()
        for name, spec in specs.items()
    }
    told = {
        units: deployment_record.record(Deployment.of([bodies[unit] for unit in units]), specs, operator)
        for units in (("item",), ("item", "event"), ("event",))
    }
    details = {units: made["deployment"]["privacy_loss"]["privacy_parameters_details"] for units, made in told.items()}
    assert "item 1, " in details["item",]
    assert "bound" not in details["item",]
    for units in (("item", "event"), ("event",)):
        assert "item 1" not in details[units]
        assert "no bound on what an item loses" in details[units]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "name is missing"),
        (OPERATOR + 'publicher = "x"\n', "unknown key 'publicher'"),
        (OPERATOR.replace('["A. Author"]', '"A. Author"'), "registry_authors must be a list of texts"),
        (OPERATOR.replace('"Planning"', "3"), "intended_use must be a text"),
        (OPERATOR.replace("Technology", "Shoes"), "data_product_sector must be one of"),
        ("name = = 1", "not valid TOML"),
    ],
)
def test_what_operators_say_is_checked(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "o.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        deployment_record.read_operator(tmp_path / "o.toml")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "either sketch files or -c"),
        (("-c", "c.toml"), "-c needs --bodies"),
        (("s.sealed", "--from", "2013-01-01T00:00Z"), "belong to -c"),
        (("-c", "c.toml", "--bodies", "b", "--registry", "r.yaml"), "--registry needs --operator"),
        (("-c", "c.toml", "--bodies", "."), "exists; name a new folder"),
        (("-c", "c.toml", "--bodies", "no/where"), "is not a directory"),
        (("-c", "c.toml", "--bodies", "b"), "nothing is sealed"),
        (("-c", "c.toml", "--bodies", "b", "--from", "2013-01-02T00:00Z", "--to", "2013-01-01T00:00Z"), "before --to"),
    ],
)
def test_options_that_do_not_fit_are_told(run: Run, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    (tmp_path / "c.toml").write_text(CONFIG.replace("UNIT", 'unit = "item"'))
    (tmp_path / "s.sealed").write_text("")
    (tmp_path / "sealed").mkdir()
    assert run("keygen", "--signing", "-o", "k.pem").code == 0
    assert said in run("attest", *options, "-o", "d.json", "--signing-key-file", "k.pem").complaint
    assert not (tmp_path / "b").exists()
    assert not (tmp_path / "d.json").exists()
