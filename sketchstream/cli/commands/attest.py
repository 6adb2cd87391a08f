"""`sketchstream attest`: a signed statement of what published files hold and cost.

In: published files, a signing key. Out: a DSSE envelope, JSON. Touches: those files.
"""

from __future__ import annotations

from pathlib import Path

import click

from sketchstream.cli import options, show


@click.command(short_help="Sign a statement of published files: digests, specs, ledgers, losses.")
@click.argument("files", type=options.FILE, nargs=-1, required=True)
@options.output("Statement to write")
@click.option(
    "--signing-key-file",
    type=options.FILE,
    required=True,
    help="File with an ed25519 private key (`sketchstream keygen --signing`).",
)
@options.result_format()
def command(files: tuple[Path, ...], output: Path, signing_key_file: Path, form: show.Format) -> None:
    r"""Sign what these published files are: their digests, specs, ledgers, places, losses, and this version.

    Others check it with verify_attestation.py, one file of this package that runs without the rest of it. It computes
    every loss again from the bytes. A statement covers the files that are given: what else was published is not in it.
    Releases, sealed states and stacks of them; merged sketches and instalments are refused.

    \b
    Example:
      sketchstream keygen --signing -o signing.pem
      sketchstream attest s.sealed -o s.attest.json --signing-key-file signing.pem
      python verify_attestation.py s.attest.json signing.pem.pub s.sealed
    """
    from sketchstream import attestation
    from sketchstream.cli import sketches
    from sketchstream.errors import StoreError
    from sketchstream.files import PUBLIC, write_durably

    sketches.require_free(output)
    key = attestation.load_key(signing_key_file)
    if len({file.name for file in files}) < len(files):
        msg = "two of these files have one name, by which a statement tells them apart: rename one"
        raise StoreError(msg)
    for file in files:
        sketches.read_published(file, "attest")
    bodies = {file.name: sketches.read_bytes(file) for file in files}
    statement = attestation.state(bodies)
    write_durably(output, attestation.sign(statement, key), mode=PUBLIC)
    found: int = len(statement["predicate"]["sketches"])  # type: ignore[index]
    show.facts({"file": str(output), "files": len(bodies), "sketches": found}, form)
