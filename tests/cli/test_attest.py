"""A signed statement of published files: the small verifier accepts honest ones and refuses what was tampered with."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import Run
from helpers.paths import ROOT
from sketchstream import ClosedDomain, GaussianSpec, Key, ProfileSpec, ProjectionSpec, Sketch, published, wire
from sketchstream.attestations import attestation, verify_attestation
from sketchstream.errors import FormatError
from sketchstream.provenance import Origin

VERIFIER = ROOT / "sketchstream" / "attestations" / "verify_attestation.py"
DOMAIN = ClosedDomain(size=40)
SPECS = {
    "event": ProfileSpec("1", domain=DOMAIN, epsilon_publish="1/2", max_weight=3),
    "event, bare": ProfileSpec("2", domain=DOMAIN, publish="state", intrusion=False),
    "event, fresh": ProfileSpec("1", domain=DOMAIN, publish="state", intrusion=True, epsilon_publish="1/3"),
    "item": ProfileSpec("1", "item", DOMAIN, epsilon_publish="1/4"),
    "item, fresh": ProfileSpec("3/2", "item", DOMAIN, publish="state", intrusion=True),
}


def tampered(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A body whose header was altered, with a good checksum."""
    header, body = wire.unpack(data)
    copy = deep_copy(header)
    change(copy)
    return wire.pack(copy, body, codec=wire.HUFFMAN)


def deep_copy(value: Any) -> Any:
    """A deep copy."""
    if isinstance(value, dict):
        return {name: deep_copy(one) for name, one in value.items()}
    return [deep_copy(one) for one in value] if isinstance(value, (list, tuple)) else value


def forged(bodies: dict[str, bytes]) -> dict[str, Any]:
    """The statement of a signer who says of these bytes whatever they say of themselves."""
    found = [header for name in sorted(bodies) for header in verify_attestation.headers(bodies[name])]
    digests = [{"name": n, "digest": {"sha256": hashlib.sha256(b).hexdigest()}} for n, b in bodies.items()]
    sketches = []
    for header in found:
        with contextlib.suppress(Exception):  # as a signer who does not look
            sketches.append(verify_attestation.facts(header))
    return {"subject": digests, "predicate": {"sketches": sketches}}


@pytest.fixture(scope="module")
def honest() -> dict[str, bytes]:
    return bodies_of(SPECS["event"])


def bodies_of(spec: ProfileSpec) -> dict[str, bytes]:
    """Two looks at a sketch and its seal, in one window, and the next window."""
    bodies = {}
    for window in range(2):
        origin = Origin(name="hourly", revision=1, window=(window * 1000, window * 1000 + 1000), partition=0)
        sketch = Sketch.create(spec, origin=origin)
        for cost in ("1/5", "1/7"):
            bodies[f"{window}-{cost[2]}"] = sketch.release(cost).to_bytes()
        bodies[f"{window}-seal"] = sketch.seal().to_bytes()
    return bodies


@pytest.mark.parametrize("name", SPECS)
def test_verifier_accepts_honest_bodies_and_finds_the_losses_of_the_ledgers(name: str) -> None:
    bodies = bodies_of(SPECS[name])
    found = verify_attestation.check_bodies(bodies, attestation.statement_of(bodies))  # type: ignore[arg-type]
    read = [published.read_published(bodies[one]) for one in sorted(bodies)]
    wanted = [one.ledger.totals()["loss"] for one in read]  # type: ignore[union-attr]
    assert [one["loss"] for one in found] == wanted
    assert len(set(wanted)) > 1


def test_verifier_refuses_a_dropped_and_an_added_body(honest: dict[str, bytes]) -> None:
    statement: Any = attestation.statement_of(honest)
    for name in honest:
        fewer = {one: data for one, data in honest.items() if one != name}
        with pytest.raises(verify_attestation.Refused, match=rf"not what was signed, or missing: \['{name}'\]$"):
            verify_attestation.check_bodies(fewer, statement)
    with pytest.raises(verify_attestation.Refused, match=r"not what was signed, or missing: \['more'\]$"):
        verify_attestation.check_bodies({**honest, "more": honest["0-seal"]}, statement)
    swapped = {**honest, "0-seal": honest["1-seal"]}
    with pytest.raises(verify_attestation.Refused, match=r"not what was signed, or missing: \['0-seal'\]$"):
        verify_attestation.check_bodies(swapped, statement)


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_attestation.main(["a.attest.json", str(tmp_path / "gone.pub"), "a.sealed"]) == 1
    assert "gone.pub'" in capsys.readouterr().err


def lower_spec(header: dict[str, Any]) -> None:
    header["spec"]["epsilon"] = "1/10"


def lower_layer(header: dict[str, Any]) -> None:
    header["layers"][0]["epsilon"] = "1/100"


def lower_ledger(header: dict[str, Any]) -> None:
    header["ledger"]["history"]["entries"][0][2] = "1/10"


def lower_view(header: dict[str, Any]) -> None:
    header["ledger"]["history"]["entries"][-1][1] = "1/100"


def lower_publication(header: dict[str, Any]) -> None:
    lower_view(header)
    header["cost"] = "1/100"


def forget_release(header: dict[str, Any]) -> None:
    del header["ledger"]["history"]["entries"][1]


def lower_counter(header: dict[str, Any]) -> None:
    header["counters"][0]["noise"][0]["epsilon"] = "1/999"


def other_unit(header: dict[str, Any]) -> None:
    header["spec"]["unit"] = "item"


def other_weight(header: dict[str, Any]) -> None:
    header["spec"]["max_weight"] = 1


def other_law(header: dict[str, Any]) -> None:
    header["layers"][0]["law"] = "spectral-laplace"


def other_law_everywhere(header: dict[str, Any]) -> None:
    other_law(header)
    header["ledger"]["history"]["entries"][0][1] = "spectral-laplace"


def negative_cost(header: dict[str, Any]) -> None:
    header["ledger"]["history"]["entries"][1][1] = "-1"


def wrong_seal(header: dict[str, Any]) -> None:
    header["ledger"]["history"]["seal"] = 9


CHANGES = [
    negative_cost,
    wrong_seal,
    lower_spec,
    lower_layer,
    lower_ledger,
    lower_view,
    lower_publication,
    forget_release,
    lower_counter,
    other_unit,
    other_weight,
    other_law,
    other_law_everywhere,
]


@pytest.mark.parametrize("change", CHANGES)
def test_verifier_refuses_bytes_that_were_altered_even_if_they_were_signed_anew(
    honest: dict[str, bytes], change: Callable[[dict[str, Any]], None]
) -> None:
    bodies = {**honest, "0-seal": tampered(honest["0-seal"], change)}
    with pytest.raises(verify_attestation.Refused, match="not what was signed"):
        verify_attestation.check_bodies(bodies, attestation.statement_of(honest))  # type: ignore[arg-type]
    with pytest.raises(verify_attestation.Refused):
        verify_attestation.check_bodies(bodies, forged(bodies))
    unchanged = {**honest, "0-seal": tampered(honest["0-seal"], lambda header: None)}
    verify_attestation.check_bodies(unchanged, forged(unchanged))


@pytest.mark.parametrize(("field", "value"), [("loss", "1/100"), ("spec", {}), ("layers", []), ("window", [0, 1])])
def test_verifier_refuses_a_statement_that_says_other_things_than_the_bytes(
    honest: dict[str, bytes], field: str, value: Any
) -> None:
    statement: Any = attestation.statement_of(honest)
    statement["predicate"]["sketches"][2][field] = value
    with pytest.raises(verify_attestation.Refused, match="other things than the bytes"):
        verify_attestation.check_bodies(honest, statement)


@pytest.mark.parametrize("copied", [True, False])
def test_second_publication_of_one_window_is_refused(copied: bool) -> None:
    origin = Origin(name="hourly", window=(0, 1000), partition=0)
    first = Sketch.create(SPECS["event"], origin=origin)
    second = Sketch.from_bytes(first.to_bytes()) if copied else Sketch.create(SPECS["event"], origin=origin)
    bodies = {"a": first.seal().to_bytes(), "b": second.seal().to_bytes()}
    with pytest.raises(verify_attestation.Refused, match="copies" if copied else "two states"):
        verify_attestation.check_bodies(bodies, forged(bodies))
    again = {"a": bodies["a"], "b": bodies["a"]}
    with pytest.raises(verify_attestation.Refused, match="given twice"):
        verify_attestation.check_bodies(again, forged(again))


@pytest.mark.parametrize("unit", ["event", "item"])
def test_gaussian_losses_are_mu_squared_of_the_ledger(unit: Any) -> None:
    spec = GaussianSpec("1", "1e-6", domain=DOMAIN, unit=unit, **({"max_total": 3} if unit == "item" else {}))
    sketch = Sketch.create(spec)
    body = sketch.seal()
    bodies = {"g": body.to_bytes()}
    found = verify_attestation.check_bodies(bodies, attestation.statement_of(bodies))  # type: ignore[arg-type]
    assert [(one["measure"], one["loss"]) for one in found] == [("mu2", str(body.ledger.loss().mu2))]


def test_secret_matrices_are_refused() -> None:
    sketch = Sketch.create(
        ProjectionSpec(5, 3, 2, "1", "1e-6", "item", max_norm=3, matrix_seed="secret"), Key.generate()
    )
    with pytest.raises(FormatError, match="secret matrices"):
        attestation.statement_of({"p": sketch.seal().to_bytes()})


def test_verifier_is_one_small_file_without_the_package() -> None:
    text = VERIFIER.read_text()
    assert len(text.splitlines()) <= 200
    tree = ast.parse(text)
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    roots = {name.partition(".")[0] for name in names}
    assert roots - set(sys.stdlib_module_names) == {"msgpack", "cryptography"}


def test_command_signs_and_the_script_verifies_alone(run: Run, made: Callable[..., Path], tmp_path: Path) -> None:
    assert run("keygen", "--signing", "-o", "k.pem").code == 0
    assert (tmp_path / "k.pem").stat().st_mode & 0o777 == 0o600
    sealed = tmp_path / "s.sealed"
    assert run("seal", made(), "-o", sealed, "--key-file", "key").code == 0
    done = run("attest", sealed, "-o", "s.json", "--signing-key-file", "k.pem", "--format", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"file": "s.json", "files": 1, "sketches": 1}
    alone = tmp_path / "verifier.py"
    alone.write_text(VERIFIER.read_text())

    def verify(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-c", RUN_ALONE, str(alone), *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert verify("s.json", "k.pem.pub", sealed).returncode == 0, verify("s.json", "k.pem.pub", sealed).stderr
    assert run("keygen", "--signing", "-o", "other.pem").code == 0
    assert "not signed with this key" in verify("s.json", "other.pem.pub", sealed).stderr
    envelope = json.loads((tmp_path / "s.json").read_text())
    envelope["payload"] = "e30="
    (tmp_path / "t.json").write_text(json.dumps(envelope))
    assert verify("t.json", "k.pem.pub", sealed).returncode == 1
    assert run("attest", sealed, "-o", "s.json", "--signing-key-file", "k.pem").complaint.endswith("another -o")


RUN_ALONE = f"""
import runpy, sys
sys.path = [one for one in {sys.path!r} if one not in ("", {str(ROOT)!r}, {str(ROOT / "connectors")!r})]
sys.modules["sketchstream"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_command_refuses_what_it_cannot_attest(run: Run, made: Callable[..., Path], tmp_path: Path) -> None:
    sketch = made()
    assert run("keygen", "--signing", "-o", "k.pem").code == 0
    assert run("keygen", "--signing", "-o", "k.pem").code == 1
    sign = ("-o", "out.json", "--signing-key-file")
    assert "open sketch" in run("attest", sketch, *sign, "k.pem").complaint
    assert "ed25519" in run("attest", sketch, *sign, "key").complaint
    assert "no such file" in run("attest", sketch, *sign, "nothing.pem").complaint
    (tmp_path / "k.pem").chmod(0o644)
    assert "mode 0644" in run("attest", sketch, *sign, "k.pem").complaint
    assert not (tmp_path / "out.json").exists()
