"""The options that describe a sketch, shared by `create` and `plan`, and the spec that they build.

In: options. Out: a spec. Touches: the list of a closed domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sketchstream.cli import sketches
from sketchstream.cli.options import FILE, UNITS, choice, gather, line_type
from sketchstream.errors import ConfigError

if TYPE_CHECKING:
    from sketchstream.spec import Domain, Unit

OF_PROFILES: Final = ("max_count", "modulus", "bits", "publish")
OF_BOTH: Final = ("max_weight", "epsilon_publish", "intrusion", "total_share", "max_total")
"""Options that go into specs as they are: of kind profile alone, and of kind gaussian too."""


@dataclass(frozen=True)
class Description:
    """A sketch's description by options; fields have the names of the options."""

    epsilon: str | None
    unit: Unit | None
    open_domain: bool
    slots: int | None
    levels: int | None
    size: int | None
    items_file: Path | None
    item_type: str
    sample_rate: str | None
    max_count: int | None
    modulus: int | None
    max_weight: str | None
    bits: str | None
    total_share: str | None
    max_total: str | None
    publish: str | None
    epsilon_publish: str | None
    intrusion: bool | None

    def spec(self, kind: str = "profile", **further: Any) -> Any:
        """The spec of a sketch of a kind that options describe.

        Args:
            kind: name of the kind.
            further: options that are not the profile's.

        Raises:
            ConfigError: options that do not fit together or that the kind does not have.
            SpecError: the sketch is invalid.
        """
        from sketchstream import kinds
        from sketchstream.spec import units_in_words

        if kind not in ("profile", "gaussian"):
            raise ConfigError(
                f"--kind must be profile or gaussian, found {kind!r:.40}; other kinds are described in a file: --table"
            )
        named = self._named(*OF_PROFILES, *OF_BOTH)
        _refuse(further if kind == "profile" else self._named(*OF_PROFILES), kind)
        if self.epsilon is None:
            raise ConfigError("--epsilon is needed, such as --epsilon 1")
        if kind == "profile":
            if self.unit is None:
                raise ConfigError(f"--unit is needed: {units_in_words('--unit ')}")
            named |= {
                name: _parse_whole(named[name], name) for name in ("max_weight", "max_total", "bits") if name in named
            }
        elif "delta" not in further:
            raise ConfigError("--kind gaussian needs --delta, such as --delta 1e-6")
        unit = self.unit or "event"
        return kinds.by_name(kind).spec_type(epsilon=self.epsilon, unit=unit, domain=self.domain(), **named, **further)

    def _named(self, *names: str) -> dict[str, Any]:
        """Options of this command that were given."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def named_options(self) -> list[str]:
        """Names of the options that were given, `item_type` apart."""
        usual = {"open_domain": False}
        return [
            field.name
            for field in fields(self)
            if field.name != "item_type" and getattr(self, field.name) != usual.get(field.name)
        ]

    def domain(self) -> Domain:
        """The domain."""
        from sketchstream.spec import ClosedDomain, OpenDomain

        if sum((self.open_domain, self.size is not None, self.items_file is not None)) != 1:
            raise ConfigError("a domain is needed: exactly one of --open (with --slots), --size and --items-file")
        if not self.open_domain and (self.slots is not None or self.levels is not None):
            raise ConfigError("--slots and --levels belong to --open")
        if self.open_domain:
            if self.slots is None:
                raise ConfigError(
                    "--open needs --slots, for example --slots 1048576 (`sketchstream plan` helps to choose)"
                )
            if self.sample_rate is not None:
                raise ConfigError("--sample-rate belongs to closed domains")
            return OpenDomain(self.slots) if self.levels is None else OpenDomain(self.slots, self.levels)
        if self.items_file is not None:
            return ClosedDomain(
                items=sketches.read_items(self.items_file, self.item_type), sample_rate=self.sample_rate
            )
        return ClosedDomain(size=self.size, sample_rate=self.sample_rate)


_OPTIONS = (
    choice("--unit", UNITS, "What is protected: all that one item does, or each event; kind profile needs it."),
    click.option("--open", "open_domain", is_flag=True, help="Items that nobody can list; needs a key."),
    click.option("--slots", type=int, help="With --open: counters in all levels."),
    click.option("--levels", type=int, help="With --open: levels that share the slots.  [default: 8]"),
    click.option("--size", type=int, help="Closed domain: the ids 0..SIZE-1."),
    click.option("--items-file", type=FILE, help="Closed domain: the items, text, one a line; needs a key."),
    line_type("--item-type", "--items-file"),
    click.option(
        "--sample-rate", help="Closed domain: keep this share of the items, by the key; answers are scaled up."
    ),
    click.option("--max-count", type=int, help="Largest count that is resolved.  [default: 300, or modulus - 1]"),
    click.option("--modulus", type=int, help="With --unit item: above all counts.  [default: 32, or max_count + 1]"),
    click.option("--max-weight", help="Largest weight of one event.  [default: 1]"),
    choice("--bits", ("32", "64"), "With --unit event: of a counter.  [default: 32]"),
    click.option("--total-share", help="Share of the noise that the total gets, 0 for no total.  [default: 1/40]"),
    click.option("--max-total", help="With --unit item: promised most of one item's weights; gives a total."),
    choice("--publish", ("histogram", "state"), "Kind profile: what seal publishes.  [default: histogram]"),
    click.option("--epsilon-publish", help="Cost of that publication.  [default: epsilon]"),
    click.option("--intrusion/--no-intrusion", default=None, help="With --publish state: fresh noise, or none."),
)


def _parse_whole(text: str | None, name: str) -> int | None:
    """A whole number that was given as text."""
    if text is None or text.lstrip("-").isdecimal():
        return None if text is None else int(text)
    raise ConfigError(f"--{name.replace('_', '-')} of kind profile must be a whole number, found {text!r:.40}")


def _refuse(given: Iterable[str], kind: str) -> None:
    """Refuse options of another kind."""
    for name in given:
        raise ConfigError(f"--{name.replace('_', '-')} does not belong to --kind {kind}: leave it out")


def spec_of_table(path: Path, item_type: str) -> Any:
    """The spec that a file describes, of any kind that a configuration can have.

    Args:
        path: TOML with the keys of a `[[sketch]]` block, without name and windows.
        item_type: type of the lines of `domain.items_file`.

    Raises:
        ConfigError: one line for each mistake.
    """
    from sketchstream.config.bounded_toml import in_toml, read_toml_file
    from sketchstream.config.plans import plan_sketch
    from sketchstream.config.validation import read_tables

    block = read_toml_file(path)
    foreign = sorted({"name", "window", "windows", "every", "timezone", "quality", "sketch", "input"} & set(block))
    if foreign:
        raise ConfigError(
            f"{path} holds {foreign[0]!r}: it takes the keys of one [[sketch]] block at the top of the file, without "
            "name and windows; a whole configuration is for `sketchstream worker`"
        )
    domain = block.get("domain")
    ids = isinstance(domain, dict) and "size" in domain
    source = {"file": "-", "format": "jsonl", "item": "item", "time": "time", "item_type": "int" if ids else item_type}
    # the creator of the sketch knows whether a key is needed
    whole = {"input": source, "key": {"file": "key"}, "sketch": [{**block, "name": "sketch", "window": "1d"}]}
    tables, mistakes, removed = read_tables(whole, named=False)
    if tables is not None and not removed:
        plans, wrong = plan_sketch(tables.sketch[0], tables, path.parent)
        mistakes += [mistake.text for mistake in wrong]
        if not mistakes:
            return plans[0].spec
    raise ConfigError(*(f"{path}: {in_toml(mistake)}" for mistake in mistakes))


def describe_by_options(function: Callable[..., Any], *, required: bool = True) -> Callable[..., Any]:
    """All these options on a command, which gets them as one argument, `description`.

    Args:
        function: the command's function.
        required: whether a missing epsilon is an error already here.
    """
    epsilon = click.option("--epsilon", required=required, help='Privacy of the state: "1", "0.1", "1/2".')
    return gather("description", Description, (epsilon, *_OPTIONS))(function)
