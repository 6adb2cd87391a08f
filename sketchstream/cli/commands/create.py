"""`sketchstream create`: an open sketch, its noise drawn.

In: what the sketch shall be. Out: a file of mode 0600, a secret like a key. Touches: that file, the operating
system's entropy.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sketchstream.cli import options, show

if TYPE_CHECKING:
    from sketchstream.spec import Domain, Publish, Unit


@click.command(short_help="Make an open sketch: draw its noise, before any event.")
@options.output("Sketch file to make")
@click.option("--epsilon", required=True, help='Privacy of the state: "1", "0.1", "1/2".')
@click.option(
    "--unit", type=click.Choice(["event", "item"]), default="event", show_default=True, help="What is protected."
)
@click.option("--open", "open_domain", is_flag=True, help="Items that nobody can list; needs --key-file.")
@click.option("--slots", type=int, help="With --open: counters in all levels.")
@click.option("--levels", type=int, help="With --open: levels that share the slots.  [default: 8]")
@click.option("--size", type=int, help="Closed domain: the ids 0..SIZE-1.")
@click.option("--items-file", type=options.FILE, help="Closed domain: the items, text, one a line.")
@click.option(
    "--item-type",
    type=click.Choice(["text", "int", "bytes"]),
    default="text",
    show_default=True,
    help="With --items-file: what its lines are.",
)
@click.option("--sample-rate", help="Closed domain: keep this share of the items, chosen by the key.")
@click.option("--max-count", type=int, help="Largest count that the profile resolves.  [default: 300, or modulus - 1]")
@click.option("--modulus", type=int, help="With --unit item: counters live below it.")
@click.option("--max-weight", type=int, help="With --unit event: largest weight of one event.  [default: 1]")
@click.option("--bits", type=click.Choice(["32", "64"]), help="With --unit event: width of a counter.  [default: 32]")
@click.option(
    "--publish",
    type=click.Choice(["histogram", "state"]),
    default="histogram",
    show_default=True,
    help="What seal publishes.",
)
@click.option("--epsilon-publish", help="Cost of that publication.  [default: epsilon]")
@click.option("--intrusion/--no-intrusion", default=None, help="With --publish state: fresh noise at seal, or none.")
@click.option("--max-epsilon", help="Budget: looks that would take the loss above it are refused.")
@options.key_file()
@options.result_format()
def command(
    output: Path,
    epsilon: str,
    unit: Unit,
    open_domain: bool,
    slots: int | None,
    levels: int | None,
    size: int | None,
    items_file: Path | None,
    item_type: str,
    sample_rate: str | None,
    max_count: int | None,
    modulus: int | None,
    max_weight: int | None,
    bits: str | None,
    publish: Publish,
    epsilon_publish: str | None,
    intrusion: bool | None,
    max_epsilon: str | None,
    key_file: Path | None,
    form: show.Format,
) -> None:
    r"""Make an open sketch: its noise is drawn now, before any event.

    The file is a secret, like a key: whoever has two copies of one open sketch sees what happened between them.

    \b
    Examples:
      sketchstream create -o s.sketch --epsilon 1 --open --slots 1048576 --levels 8 --key-file key
      sketchstream create -o ids.sketch --epsilon 1/2 --size 100000
    """
    from sketchstream.cli import sketches
    from sketchstream.files import write_durably
    from sketchstream.privacy import ledger
    from sketchstream.sketch import Sketch
    from sketchstream.spec import ProfileSpec

    given: dict[str, Any] = {
        "max_count": max_count,
        "modulus": modulus,
        "max_weight": max_weight,
        "epsilon_publish": epsilon_publish,
        "intrusion": intrusion,
        "bits": None if bits is None else int(bits),
    }
    spec = ProfileSpec(
        epsilon=epsilon,
        unit=unit,
        publish=publish,
        domain=_domain(open_domain, slots, levels, size, items_file, item_type, sample_rate),
        **{name: value for name, value in given.items() if value is not None},
    )
    sketches.require_free(output)
    sketch = Sketch.create(spec, sketches.load_key(key_file), max_epsilon=max_epsilon)
    write_durably(output, sketch.to_bytes())
    show.facts(
        {
            "file": str(output),
            "epsilon": str(spec.epsilon),
            "unit": spec.unit,
            "slots": sketch.slots,
            "publish": spec.publish,
            "loss": ledger.show(sketch.ledger.loss()),
            "loss_with_intrusion": ledger.show(sketch.ledger.loss(intrusion=True)),
        },
        form,
    )


def _domain(
    open_domain: bool,
    slots: int | None,
    levels: int | None,
    size: int | None,
    items_file: Path | None,
    item_type: str,
    sample_rate: str | None,
) -> Domain:
    """The domain that the options describe."""
    from sketchstream.cli import sketches
    from sketchstream.errors import ConfigError
    from sketchstream.spec import ClosedDomain, OpenDomain

    if sum((open_domain, size is not None, items_file is not None)) != 1:
        msg = "a domain is needed: exactly one of --open (with --slots), --size and --items-file"
        raise ConfigError(msg)
    if not open_domain and (slots is not None or levels is not None):
        msg = "--slots and --levels belong to --open"
        raise ConfigError(msg)
    if open_domain:
        if slots is None:
            msg = "--open needs --slots, for example --slots 1048576: about one for each item expected"
            raise ConfigError(msg)
        if sample_rate is not None:
            msg = "--sample-rate belongs to closed domains"
            raise ConfigError(msg)
        return OpenDomain(slots=slots) if levels is None else OpenDomain(slots=slots, levels=levels)
    if items_file is not None:
        return ClosedDomain(items=sketches.read_items(items_file, item_type), sample_rate=sample_rate)
    return ClosedDomain(size=size, sample_rate=sample_rate)
