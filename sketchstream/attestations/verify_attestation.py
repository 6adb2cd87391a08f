"""A small verifier of attestations: this file runs alone, without the rest of the package.

In: a statement of `sketchstream attest`, the signer's public key, the files it names. Out: the loss of each sketch,
recomputed from its bytes (for kinds other than `profile`: from the costs in its ledger); exit code 1 and the reason if
anything differs. Touches: those files. Source: docs/format.md; docs/theory/privacy.md section 3.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import sys
from fractions import Fraction
from itertools import accumulate, combinations, pairwise
from pathlib import Path
from typing import Any

import msgpack
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

STATEMENT, PREDICATE = "https://in-toto.io/Statement/v1", "urn:sketchstream:attestation:1"
PAYLOAD = "application/vnd.in-toto+json"
LAWS = {"epsilon": ("laplace", "response", "ball"), "mu2": ("gaussian",), "l2": ("spectral-laplace",)}
Loss = Fraction | float


class Refused(Exception):  # noqa: N818
    """Error: what was given is not what was signed, or does not add up."""


def require(holds: object, message: str) -> None:
    """Refuse with this message unless it holds."""
    if not holds:
        raise Refused(message)


def signed_payload(envelope: dict[str, Any], key: Ed25519PublicKey) -> dict[str, Any]:
    """The statement in a DSSE envelope, its signature verified."""
    payload, kind = base64.b64decode(envelope["payload"], validate=True), envelope["payloadType"].encode()
    message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    try:
        key.verify(base64.b64decode(envelope["signatures"][0]["sig"], validate=True), message)
    except InvalidSignature:
        raise Refused("the statement was not signed with this key, or was altered") from None
    statement: dict[str, Any] = json.loads(payload)
    types = (envelope["payloadType"], statement["_type"], statement["predicateType"])
    require(types == (PAYLOAD, STATEMENT, PREDICATE), f"this is no statement of known type: {types}")
    return statement


def headers(data: bytes, within: bool = False) -> list[dict[str, Any]]:
    """The header of a published sketch, or those of the parts of a stack."""
    readable = data[:4] == b"\xc1SKS" and len(data) >= 72 and 1 <= int.from_bytes(data[4:6], "little") <= 3
    require(readable, "these are no bytes of a sketch in a format that is known here")
    size, body = int.from_bytes(data[12:16], "little"), int.from_bytes(data[32:40], "little")
    require(len(data) == 40 + size + body + 32 * (data[7] & 1) + 32, "the bytes are cut or have something behind them")
    digest = hashlib.blake2b(data[:-32], digest_size=32, person=b"sketchstream-sum")
    require(digest.digest() == data[-32:], "the bytes are damaged: their checksum is wrong")
    header: dict[str, Any] = msgpack.unpackb(data[40 : 40 + size])
    require(header["kind"] in ("release", "sealed-state", "stack"), f"a {header['kind']} is no release, seal or stack")
    if header["kind"] != "stack":
        return [header]
    require(not within and sum(header["lengths"]) == body, "the parts of a stack do not have the lengths it says")
    ends = list(accumulate(header["lengths"], initial=40 + size))
    return [header for at, end in pairwise(ends) for header in headers(data[at:end], within=True)]


def require_noise(header: dict[str, Any]) -> None:
    """Spec, layers, counters and ledger of a body describe the same noise and the same publication."""
    spec, ledger = header["spec"], header["ledger"]
    measure, history = ledger.get("measure", "epsilon"), ledger["history"]
    entries, sealed = history["entries"], history["seal"] is not None
    drawn = [row for row in entries if row[0] == "layer"]  # with law, cost, lineage, weight
    checkable = measure in LAWS and not history.get("parts") and spec.get("matrix_seed") != "secret"
    require(checkable, "merges, secret matrices, and measures beyond LAWS are not known here")
    layers = [[layer["law"], layer["lineage"].hex(), ledger["max_weight"]] for layer in header["layers"]]
    require(layers and layers == [[row[1], *row[3:]] for row in drawn], "its noise layers are not those of its ledger")
    require(all(row[0].endswith(LAWS[measure]) for row in layers), f"its noise law is not of the measure {measure!r}")
    require(ledger["unit"] == spec.get("unit", ledger["unit"]), "the ledger protects another unit than the spec")
    if header["kind"] == "release":
        view = ["publication" if header["final"] else "release", header["cost"]]
        require(entries[-1] == view, "its ledger does not charge what it shows")
    require(sealed == bool(header.get("final", True)), "its ledger is that of another stage of its life")
    require({row[0] for row in entries} <= {"layer", "release", "publication", "look"}, "unknown entries in its ledger")
    closed = [row[0] for row in entries[-history["seal"] :]] if sealed else ["publication"]
    require(closed in (["publication"], ["layer", "publication"]), "its ledger has no seal where it says")
    if spec["kind"] != "profile":
        return
    groups, k = spec.get("groups"), 1
    if groups and spec["unit"] == "item" and not groups.get("of_item"):
        k = groups.get("max_groups") or len(groups["names"]) + ("other" in groups)
    weight, share = spec.get("max_weight", 1), Fraction(spec.get("total_share", "0"))
    law = {"event": "discrete-laplace", "item": spec.get("counts", "randomized") + "-response"}[spec["unit"]]
    law, own = (f"joint-{law}", 1) if spec.get("noise") == "joint" else (law, k)
    require(all(row[::2] == [law, weight] for row in layers), f"noise of this spec is {law} for weights of {weight}")
    costs = [Fraction(row[2]) for row in drawn]
    epsilons = [Fraction(layer["epsilon"]) * weight * own for layer in header["layers"]]
    require(epsilons == [cost * (1 - share) for cost in costs], "a layer's noise is not that of its cost in the ledger")
    apart = Fraction(spec.get("epsilon_overlap", "0"))  # patterns of groups: once, and none of it for counters
    shown_costs = costs + ([Fraction(header["cost"]) - apart * header["final"]] if header["kind"] == "release" else [])
    amounts = {"total": weight * k if spec.get("max_total") is None else 2 * spec["max_total"] * k, "counted": 1}
    part = share / 2 if spec.get("counted") else share
    for counter in header.get("counters", ()):
        by = amounts.get(counter["name"].partition(".")[0])
        noise = [(draw["law"], Fraction(draw.get("epsilon", "0"))) for draw in counter["noise"]]
        expected = [("discrete-laplace", cost * part / (by or 1)) for cost in shown_costs]
        require(by is None or noise == expected, f"the noise of counter {counter['name']!r} is not that of the ledger")
    published = str((Fraction(spec["epsilon_publish"]) * k if spec.get("histograms", True) else 0) + apart)
    require(entries[0][1:3] == [law, str(Fraction(spec["epsilon"]) * own)], "its first noise is not that of the spec")
    bare = ["fresh", published] if spec.get("intrusion") else ["bare", None]
    promise = ["histogram", published] if spec["publish"] == "histogram" else bare
    require(ledger["promised"] == (["nothing", None] if sealed else promise), "its promise is not that of the spec")
    if sealed:
        last = [row[:3] for row in entries[-history["seal"] :]]
        view = ["publication", promise[1] if promise[0] == "histogram" else None]
        require(last == [["layer", law, published], view][promise[0] != "fresh" :], "its seal is not that of the spec")


def loss(ledger: dict[str, Any]) -> Loss:
    """Largest loss of any event, or item: epsilon, mu^2, or sqrt(2 rho) (measure "l2")."""
    measure, history, (kind, cost) = ledger.get("measure", "epsilon"), ledger["history"], ledger["promised"]
    entries, stop = list(history["entries"]), len(history["entries"]) - (history["seal"] or 0)
    entries += [["layer", "", cost]] if kind == "fresh" else []  # a promised publication counts from the beginning
    entries += [["publication", cost if kind == "histogram" else None]] if kind != "nothing" else []
    raw = [(row[0] == "layer", row[2 if row[0] == "layer" else 1]) for row in entries]
    steps = [(layer, math.inf if paid is None else Fraction(paid)) for layer, paid in raw]
    require(all(paid > 0 for _, paid in steps), "a cost in a ledger must be above 0")
    if ledger["unit"] == "item" and measure == "epsilon":
        idle, armed = Fraction(0), math.inf  # type: Loss, Loss  # every view sees a new shift; a layer spares one view
        for layer, paid in steps:
            idle, armed = (idle, min(armed, idle + paid)) if layer else (min(idle + paid, armed), armed + paid)
        return idle

    def join(first: Loss, other: Loss) -> Loss:  # the lower cost; Gaussian noise on both sides adds up
        gaussian = measure == "mu2" and math.inf not in (first, other) and first and other
        return first * other / (first + other) if gaussian else min(first, other)

    before, later = [math.inf], [Fraction(0)]  # type: list[Loss], list[Loss]
    for ways, order in ((before, steps), (later, steps[::-1])):
        for layer, paid in order:
            ways.append(join(ways[-1], paid) if layer else ways[-1] + paid)
    return max(join(before[at], later[-1 - at]) for at in range([row[0] for row in raw].index(True) + 1, stop + 1))


def facts(header: dict[str, Any]) -> dict[str, Any]:
    """What a statement says of one published sketch; its losses are computed here, from the bytes."""
    names = ("kind", "name", "revision", "window", "partition", "seal_id", "spec", "layers", "ledger")
    plain = json.loads(json.dumps({name: header.get(name) for name in names}, default=bytes.hex))
    return {**plain, "measure": header["ledger"].get("measure", "epsilon"), "loss": str(loss(header["ledger"]))}


def require_one_publication(bodies: list[dict[str, Any]]) -> None:
    """No window was published twice, and publications that share noise are steps of one sketch's life."""
    for first, other in combinations(bodies, 2):
        short, long = sorted((first["ledger"]["history"], other["ledger"]["history"]), key=lambda h: len(h["entries"]))
        place = [[each.get(name) for name in ("name", "revision", "window", "partition")] for each in (first, other)]
        shares = {each["lineage"] for each in first["layers"]} & {each["lineage"] for each in other["layers"]}
        n = len(short["entries"])
        follows = short["seal"] is None and n < len(long["entries"]) and long["entries"][:n] == short["entries"]
        require(first["seal_id"] != other["seal_id"], "one publication was given twice")
        require(not shares or follows, "two publications have the same noise and are no steps of one sketch: copies")
        require(shares or not place[0][0] or place[0] != place[1], f"two states were published as {place[0]}")


def check_bodies(bodies: dict[str, bytes], statement: dict[str, Any]) -> list[dict[str, Any]]:
    """The facts of all bodies, by name of the file; refused if they are not those of the statement."""
    named = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in bodies.items()}
    require(digests == named, f"not what was signed, or missing: {sorted(dict(digests.items() ^ named.items()))}")
    all_headers = [header for name in sorted(bodies) for header in headers(bodies[name])]
    for header in all_headers:
        require_noise(header)
    require_one_publication(all_headers)
    recomputed = [facts(header) for header in all_headers]
    require(recomputed == statement["predicate"]["sketches"], "the statement says other things than the bytes")
    return recomputed


def main(arguments: list[str]) -> int:
    """Arguments: the statement, the public key (PEM), every file that the statement names."""
    try:
        statement, key, *files = map(Path, arguments)
        public = load_pem_public_key(key.read_bytes())
        assert isinstance(public, Ed25519PublicKey), "the public key is not an ed25519 key"
        signed = signed_payload(json.loads(statement.read_bytes()), public)
        require(len({file.name for file in files}) == len(files), "two files have one name")
        for header in check_bodies({file.name: file.read_bytes() for file in files}, signed):
            sys.stdout.write(f"ok: {header['kind']} {header['seal_id']}: {header['measure']} {header['loss']}\n")
        return 0
    except Exception as error:
        sys.stderr.write(f"REFUSED: {error if isinstance(error, Refused | OSError) else repr(error)}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
