"""Texts of headers: names may look like numbers, and numbers may not be absurd."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import sketchstream as ss
from helpers.commands import Run
from sketchstream import wire
from sketchstream.errors import FormatError
from sketchstream.published import read_published

NAMES = ("835254355712042e7721067295445773", "e" + 31 * "9", 28 * "1" + "e999", 32 * "7", 31 * "0" + "e")
"""Names of noise, 16 random bytes in hexadecimal digits: about one in a million reads as a number with an exponent."""
SPECS = {
    "profile": lambda: ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=8), max_count=10),
    "gaussian": lambda: ss.GaussianSpec(epsilon="1", delta="1e-6", domain=ss.ClosedDomain(size=8)),
}
ABSURD = "1e999999999"


def renamed(header: dict[str, Any], name: str) -> dict[str, Any]:
    """The header with another name of its first noise."""
    out = copy.deepcopy(header)
    former = out["layers"][0]["lineage"].hex()
    out["layers"][0]["lineage"] = bytes.fromhex(name)
    entries = out["ledger"]["history"]["entries"]
    places = [(entry, at) for entry in entries for at, one in enumerate(entry) if one == former]
    assert len(places) == 1
    for entry, at in places:
        entry[at] = name
    return out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", SPECS)
def test_noise_may_have_any_name(kind: str, name: str) -> None:
    sketch = ss.Sketch.create(SPECS[kind]())
    sketch.update([1, 2, 2])
    header, counters = wire.unpack(sketch.to_bytes())
    again = ss.Sketch.from_bytes(wire.pack(renamed(header, name), counters, wire.RAW))
    published = again.seal()
    assert published.layers[0].lineage.hex() == name
    found = read_published(published.to_bytes())
    assert found.ledger == published.ledger
    assert found.to_bytes() == published.to_bytes()


@pytest.mark.parametrize("label", ["7e2024", "12E4567", "1e999999999", "0e0000"])
def test_groups_and_values_may_have_any_name(label: str) -> None:
    groups = ss.Groups(("other one", label))
    spec = ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=8), max_count=10, groups=groups)
    assert label in read_published(ss.Sketch.create(spec).seal().to_bytes()).groups


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "where",
    [
        ("spec", "epsilon"),
        ("spec", "epsilon_publish"),
        ("spec", "domain", "sample_rate"),
        ("ledger", "history", "entries", 0, 2),
        ("ledger", "history", "entries", 1, 1),
        ("cost",),
        ("layers", 0, "epsilon"),
    ],
)
def test_absurd_numbers_are_refused_wherever_one_is_read(run: Run, tmp_path: Any, where: tuple[Any, ...]) -> None:
    header, counters = wire.unpack(ss.Sketch.create(SPECS["profile"]()).seal().to_bytes())
    for number in (ABSURD, " -1.5E-99999 ", "1e\u0669\u0669\u0669\u0669\u0669", "9" * 5000):
        forged = copy.deepcopy(header)
        inner: Any = forged
        for step in where[:-1]:
            inner = inner[step]
        inner[where[-1]] = number
        with pytest.raises(FormatError):
            read_published(wire.pack(forged, counters))
    forged["spec"] = header["spec"] | {"epsilon": ABSURD}
    (tmp_path / "forged").write_bytes(wire.pack(header | {"spec": forged["spec"]}, counters))
    assert run("inspect", tmp_path / "forged").code in (0, 1)
