"""`sketchstream keygen`: make a secret hash key.

In: a path. Out: a file of mode 0600. Touches: that file, the operating system's entropy.
"""

from __future__ import annotations

from pathlib import Path

import click

from sketchstream.cli import options, show


@click.command()
@options.output("Key file to make")
@click.option(
    "--signing", is_flag=True, help="An ed25519 key for `sketchstream attest`; its public key is written next to it."
)
@options.result_format()
def command(output: Path, signing: bool, form: show.Format) -> None:
    r"""Create a secret 128-bit hash key, in a file that only you can read.

    Sketches that will be merged or stacked need the same key. Its id, never the key, goes into sketches.

    \b
    Example:
      sketchstream keygen -o key
    """
    from sketchstream.items.key import Key

    if signing:
        from sketchstream.attestations import attestation

        show.facts({"file": str(output), "public_key": str(attestation.make_key(output))}, form)
        return

    key = Key.generate()
    key.save(output)
    show.facts({"file": str(output), "key_id": key.id.hex()}, form)
