"""Write docs/cli.md from the commands themselves; `--check` only says whether it is up to date.

In: the commands. Out: docs/cli.md. Touches: that file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from sketchstream.cli import exits
from sketchstream.cli.app import COMMANDS, app
from sketchstream.cli.commands.plans import plan

PAGE = Path(__file__).parent / "cli.md"
WIDTH = 100


def reference() -> str:
    """The whole page."""
    settings = {**app.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(app, info_name="sketchstream", **settings)
    parts = [
        "# Command line\n",
        "Written by `make docs` from the commands themselves; a test compares. Results go to standard output, as a "
        "table, JSON or CSV (`--format`); warnings, errors and progress go to standard error, an error is one line.\n",
        "| exit code | meaning |\n|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in exits.MEANINGS.items()),
        "",
        *(f"* [`{name}`](#sketchstream-{name}): {summary}" for name, (_, summary) in COMMANDS.items()),
        "",
    ]
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name, **settings)
        text = "\n".join(line.rstrip() for line in command.get_help(inner).splitlines())
        parts.append(f"## sketchstream {name}\n\n```text\n{text}\n```\n")
        if isinstance(command, click.Group):
            for sub in command.list_commands(inner):
                below = command.get_command(inner, sub)
                assert below is not None
                last = click.Context(below, parent=inner, info_name=sub, **settings)
                text = "\n".join(line.rstrip() for line in below.get_help(last).splitlines())
                parts.append(f"### sketchstream {name} {sub}\n\n```text\n{text}\n```\n")
        if name == "plan":
            for kind in plan.OF_KINDS:
                text = plan_of(kind, inner, settings)
                parts.append(f"### sketchstream plan --kind {kind}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def plan_of(kind: str, parent: click.Context, settings: dict[str, Any]) -> str:
    """Help of `plan --kind KIND`."""
    asked = plan.command.make_context("plan", ["--kind", kind], parent.parent, resilient_parsing=True, **settings)
    return "\n".join(line.rstrip() for line in asked.get_help().splitlines())


def main() -> int:
    """Write the page, or compare it."""
    text = reference()
    if "--check" in sys.argv[1:]:
        fresh = PAGE.exists() and PAGE.read_text() == text
        sys.stdout.write("docs/cli.md is up to date\n" if fresh else "docs/cli.md is out of date: make docs\n")
        return 0 if fresh else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
