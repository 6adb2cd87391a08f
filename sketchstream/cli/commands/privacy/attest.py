"""`sketchstream attest`: a signed statement of what published files, or a whole deployment, hold and cost.

In: published files or a configuration, a signing key. Out: a DSSE envelope, JSON; of a deployment also its bodies as
files, and a record for the public registry. Touches: those files, the topic or folder of the configuration.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sketchstream.cli import clusters, options, show, sketches
from sketchstream.errors import ConfigError, StoreError
from sketchstream.files import PUBLIC, write_durably

if TYPE_CHECKING:
    from sketchstream.query.windows import PublishedWindows


@click.command()
@click.argument("files", type=options.FILE, nargs=-1)
@options.config(required=False)
@click.option(
    "--bodies", type=click.Path(path_type=Path), help="With -c: new folder for the bytes that the statement is about."
)
@options.span
@options.output("Statement to write")
@click.option(
    "--signing-key-file",
    type=options.FILE,
    required=True,
    help="File with an ed25519 private key (`sketchstream keygen --signing`).",
)
@click.option(
    "--registry",
    type=click.Path(path_type=Path),
    help="With -c: also write a record for the public registry of deployments of differential privacy.",
)
@click.option(
    "--operator", type=options.FILE, help="With --registry: TOML file of what only you know: name, data_curators, ..."
)
@options.result_format()
def command(
    files: tuple[Path, ...],
    config_file: Path | None,
    bodies: Path | None,
    from_: str | None,
    to: str | None,
    output: Path,
    signing_key_file: Path,
    registry: Path | None,
    operator: Path | None,
    form: show.Format,
) -> None:
    r"""Sign what these published files are: their digests, specs, ledgers, places, losses, and this version.

    Others check it with verify_attestation.py, one file of this package that runs without the rest of it. It computes
    every loss again from the bytes. A statement covers the files that are given: what else was published is not in it.
    Releases, sealed states and stacks of them; merged sketches and instalments are refused.

    With -c: everything that the workers of a configuration have sealed. The bytes are written into the folder of
    --bodies, where the verifier finds them. The statement also says how far each partition is published, and the
    losses of all of it together. --registry writes the same facts as a record of the public registry of deployments
    of differential privacy (github.com/opendp/deployments-registry-data), JSON, which is YAML too.

    \b
    Examples:
      sketchstream keygen --signing -o signing.pem
      sketchstream attest s.sealed -o s.attest.json --signing-key-file signing.pem
      python verify_attestation.py s.attest.json signing.pem.pub s.sealed
      sketchstream attest -c sketchstream.toml --bodies bodies -o d.attest.json --signing-key-file signing.pem
      python verify_attestation.py d.attest.json signing.pem.pub bodies/*
    """
    from sketchstream.attestations import attestation
    from sketchstream_connectors.readers import open_published

    if bool(files) == (config_file is not None):
        raise ConfigError("give either sketch files or -c")
    if (config_file is None) != (bodies is None):
        raise ConfigError(
            "-c needs --bodies, a folder for the bytes that the statement is about, and --bodies belongs to -c"
        )
    if config_file is None and (from_ or to or registry):
        raise ConfigError("--from, --to and --registry belong to -c")
    if (registry is None) != (operator is None):
        raise ConfigError(
            "--registry needs --operator, a TOML file of what only you know, and --operator belongs to --registry"
        )
    sketches.require_free(output)
    key = attestation.load_key(signing_key_file)
    if config_file is None or bodies is None:
        files_by_name = _of_files(files)
        statement = attestation.statement_of(files_by_name)
    else:
        if registry is not None:
            sketches.require_free(registry)
        _require_new(bodies)
        with open_published(clusters.load(config_file)) as published:
            files_by_name, statement = _of_deployment(published, from_, to)
            if registry is not None and operator is not None:
                text = json.dumps(_record(published, operator), indent=1, ensure_ascii=False) + "\n"
                write_durably(registry, text.encode(), mode=PUBLIC)
        bodies.mkdir()
        for name, data in files_by_name.items():
            write_durably(bodies / name, data, mode=PUBLIC)
    write_durably(output, attestation.sign(statement, key), mode=PUBLIC)
    number: int = len(statement["predicate"]["sketches"])  # type: ignore[index]
    show.facts({"file": str(output), "files": len(files_by_name), "sketches": number}, form)


def _of_files(files: tuple[Path, ...]) -> dict[str, bytes]:
    """Bytes of published files by their names."""
    if len({file.name for file in files}) < len(files):
        raise StoreError("two of these files have one name, by which a statement tells them apart: rename one")
    for file in files:
        sketches.read_published(file, "attest")
    return {file.name: sketches.read_bytes(file) for file in files}


def _require_new(folder: Path) -> None:
    """Refuse a folder that exists: what lies in it would be taken for a part of the deployment."""
    if folder.exists() or not folder.parent.is_dir():
        reason = "exists" if folder.exists() else f"cannot be made: {folder.parent} is not a directory"
        raise StoreError(f"--bodies {folder} {reason}; name a new folder in one that exists")


def _of_deployment(
    published: PublishedWindows, from_: str | None, to: str | None
) -> tuple[dict[str, bytes], dict[str, object]]:
    """The bodies of a deployment, and its statement."""
    from sketchstream.attestations import attestation
    from sketchstream.query.times import to_span
    from sketchstream.stream.interfaces import SealedEntry

    since, until = to_span(from_, to)
    read = published.source.read(None, since, until)
    bodies = attestation.body_names(
        entry for entry in read if isinstance(entry, SealedEntry) and entry.positions is None
    )
    if not bodies:
        raise StoreError(
            "nothing is sealed in these windows, so there is nothing to attest; `sketchstream profile -c` lists them"
        )
    claims = attestation.of_deployment(published.deployment(), published.source.frontiers(), (since, until))
    return bodies, attestation.statement_of(bodies, claims)


def _record(published: PublishedWindows, operator: Path) -> dict[str, object]:
    """The record for the registry."""
    from sketchstream.attestations import deployment_record
    from sketchstream.config.context import context
    from sketchstream.privacy.deployments.publications import tell_uncovered

    config = published.config
    operator_facts = deployment_record.read_operator(operator)
    exceptions: dict[str, None] = {}
    for plan in config.sketches:
        exceptions |= dict.fromkeys(tell_uncovered(plan.spec, context(config, plan)))
    specs = {plan.name: plan.spec for plan in config.sketches}
    return deployment_record.record(published.deployment(), specs, operator_facts, tuple(exceptions))
