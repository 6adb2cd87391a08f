"""Documents are tests: the README's Python and commands run, links lead somewhere, examples of help are commands."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from helpers.commands import Run
from helpers.paths import ROOT
from sketchstream.cli.app import COMMANDS, app
from sketchstream.config import schema
from sketchstream.kinds.config_tables import configurable, table_of
from sketchstream.kinds.workload.table import ColumnTable
from sketchstream.stream.windows.units import duration_ms, size_bytes

README = (ROOT / "README.md").read_text()
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def blocks(language: str) -> list[str]:
    """Code blocks of the README in one language."""
    found = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert found, language
    return found


def test_python_of_the_readme_runs_and_is_about_ten_lines(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks("python")
    assert len([line for line in block.splitlines() if line.strip()]) <= 11
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    distinct = float(printed.split()[0].replace(",", ""))
    assert 0.8 * 20_000 < distinct < 1.2 * 20_000
    assert "Not protected" in printed


def test_commands_of_the_readme_run(run: Run, tmp_path: Path) -> None:
    lines = [f'{{"user_id":"u{i % 500}"}}\n' for i in range(1000)]
    (tmp_path / "events.jsonl").write_text("".join(lines))
    (block,) = blocks("bash")
    commands = [shlex.split(line) for line in block.splitlines() if line.strip()]
    assert len(commands) == 5
    for command in commands:
        assert command[0] == "sketchstream"
        result = run(*command[1:])
        assert result.code == 0, (command, result.err)
    assert "distinct items" in result.out


def test_configuration_of_the_readme_is_valid(run: Run, tmp_path: Path) -> None:
    (block,) = blocks("toml")
    tomllib.loads(block)
    (tmp_path / "sketchstream.toml").write_text(block)
    assert run("keygen", "-o", "sketch.key").code == 0
    result = run("validate", "--offline", "-c", "sketchstream.toml")
    assert (result.code, result.err) == (0, "")


def test_commands_in_text_blocks_of_the_readme_exist() -> None:
    lines = [line for block in blocks("text") for line in block.splitlines() if line.startswith("sketchstream ")]
    assert len(lines) == 11
    for line in lines:
        parse(line)


def test_the_table_of_the_two_dials_is_what_plan_says() -> None:
    import sketchstream as ss

    row = r"^\| ([\d.]+) \| ([\d.]+) \| (\S+)% \| (\S+)% \| (\S+)% \| (\d+) \| (\d+) \|$"
    rows = re.findall(row, README, re.MULTILINE)
    assert [row[0] for row in rows] == ["4", "1"]
    for epsilon, published, *errors, readers, thief in rows:
        spec = ss.ProfileSpec(epsilon, "item", ss.OpenDomain(2**20), epsilon_publish=published)
        found = ss.plan(spec, items=1e6)
        for name, error in zip(("distinct", "at_least.2", "at_least.5"), errors, strict=True):
            assert 100 * found[name].relative == pytest.approx(float(error), rel=0.05), name
        assert (found.loss, found.loss_with_intrusion) == (int(readers), int(thief))


def parse(line: str) -> None:
    """Let click read a command line without running it."""
    words = shlex.split(line.rsplit("|", maxsplit=1)[-1], comments=True)
    assert words[0] == "sketchstream", line
    command: click.Command = app
    context = click.Context(app, info_name="sketchstream", **app.context_settings)
    words = words[1:]
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, line
        context = click.Context(found, parent=context, info_name=words[0])
        command, words = found, words[1:]
    command.make_context(command.name, words, parent=context.parent)


def examples() -> list[str]:
    """Every example in the help of every command."""
    context = click.Context(app, **app.context_settings)
    found = []
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        for one in (command, *(command.commands.values() if isinstance(command, click.Group) else ())):
            text = one.help or ""
            start = re.search(r"Examples?:\n", text)
            assert start is not None, name
            found += [line.strip() for line in text[start.end() :].splitlines() if "sketchstream" in line]
    return found


@pytest.mark.parametrize("line", examples())
def test_examples_of_the_help_are_commands(line: str) -> None:
    parse(line)


@pytest.mark.parametrize("document", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_links_lead_somewhere(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def run_blocks(run: Run, folder: Path, name: str) -> dict[str, Any]:
    """Run the blocks of a document in order; returns the names that its Python has then."""
    text = (ROOT / "docs" / name).read_text()
    found = re.findall(r"^```(python|bash|toml)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert [language for language, _ in found].count("python") >= 3
    names: dict[str, Any] = {}
    for language, block in found:
        if language == "python":
            exec(compile(block, name, "exec"), names)
        elif language == "toml":
            (folder / "sketchstream.toml").write_text(block)
        else:
            for line in block.splitlines():
                words = shlex.split(line, comments=True)
                assert words[0] == "sketchstream", line
                result = run(*words[1:])
                assert result.code == 0, (line, result.err)
    return names


@pytest.mark.statistics
def test_blocks_of_the_page_on_series_run_in_order(run: Run, tmp_path: Path) -> None:
    names = run_blocks(run, tmp_path, "series.md")
    assert (tmp_path / "february.png").exists()
    week = names["week"]
    assert (week.times[0], len(week.values), any(week.partial)) == ("2013-02-01T05:00:00Z", 672, False)
    flights = names["read_flights"]()
    total = names["february"]["sum"]
    assert abs(total.values[-1] - flights.months()[1].flights) < 6 * total.stderr[-1]


@pytest.mark.statistics
def test_blocks_of_the_page_on_counts_run_in_order(run: Run, tmp_path: Path) -> None:
    names = run_blocks(run, tmp_path, "counts.md")
    assert (tmp_path / "year.png").exists()
    july = names["flights"].months()[6]
    assert abs(names["july"].sum().value - july.counts.sum()) < 6 * names["july"].sum().stderr
    assert len(names["table"]["sum"]) == 12
    found = run("estimate", "hours.sealed", "--items-file", "aircraft.txt", "--item", "N14228", "--format", "csv").out
    value = float(found.splitlines()[1].split(",")[1])
    assert abs(value - 8.75) < 6 * 20 * 9  # two layers for weights up to 20


def test_blocks_of_the_tutorial_run_in_order(run: Run, tmp_path: Path) -> None:
    names = run_blocks(run, tmp_path, "tutorial.md")
    assert (tmp_path / "profile.png").exists()
    assert "Window by window" in (tmp_path / "report.html").read_text()
    assert 0.85 * 50_000 < names["profile"].distinct.value < 1.15 * 50_000


def test_every_make_target_of_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        named = set(re.findall(r"`make ([a-z-]+)", document.read_text()))
        named |= set(re.findall(r"^make ([a-z-]+)", document.read_text(), re.MULTILINE))
        assert named <= targets, document


def test_no_registry_host_is_named_anywhere_in_the_build() -> None:
    for name in ("Makefile", ".ci/run", "constraints.txt", "pyproject.toml"):
        text = (ROOT / name).read_text()
        assert not re.search(r"index-url|find-links|pypi\.org|--index|maven\.org", text), name
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!-]+", line) for line in lines)


def test_every_document_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if path.name != "README.md":
            assert f"({path.relative_to(ROOT / 'docs')})" in index, path.name


DURATIONS = {
    "lateness",
    "quorum_time",
    "idle",
    "idle_topic",
    "snapshot_every",
    "durable_within",
    "deadline",
    "refresh",
}


def test_every_key_of_the_configuration_is_explained_with_its_default() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    sections = {part.split("\n", 1)[0].strip("[] "): part for part in text.split("\n## ")[1:]}
    kinds = {"sketch" if kind == "profile" else kind: table_of(kind) for kind in configurable()}
    inner = {"columns": ColumnTable}
    assert set(sections) == {*schema.TABLES, *kinds, *inner, "kafka"}
    for name, table in {**schema.TABLES, **kinds, **inner}.items():
        assert table is not None
        rows = dict(re.findall(r"^\| `([a-z_]+)` \| (.*?) ?\| \S.* \|$", sections[name], re.MULTILINE))
        assert list(rows) == list(table.model_fields), name
        for key, field in table.model_fields.items():
            said = rows[key].strip("`")
            if field.is_required():
                assert said == "required" or (name, key) == ("input", "item"), key
            elif key in DURATIONS:
                assert duration_ms(said) == field.default, key
            elif key == "snapshot_rate":
                assert size_bytes(said) == field.default, key
            elif field.default in (None, "", ()):
                assert said == "", key
            else:
                assert said == str(field.default).lower() or said == field.default, key


def test_configurations_of_the_documents_are_valid(run: Run, tmp_path: Path) -> None:
    found = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "configuration.md").read_text(), re.DOTALL)
    assert len(found) == 2
    assert run("keygen", "-o", "sketch.key").code == 0
    for name in ("events.jsonl", "flights.jsonl"):
        (tmp_path / name).touch()
    for block in found:
        (tmp_path / "sketchstream.toml").write_text(block)
        result = run("validate", "--offline", "-c", "sketchstream.toml")
        assert (result.code, result.err) == (0, "")


def test_files_that_the_recipes_name_exist() -> None:
    for name in re.findall(r"(?:tests|sketchstream|docs)/[a-z_/]+\.[a-z]+", (ROOT / "CONTRIBUTING.md").read_text()):
        assert (ROOT / name).exists(), name


def test_cells_of_the_page_on_notebooks_run_and_show_themselves(run: Run, tmp_path: Path) -> None:
    names = run_blocks(run, tmp_path, "tutorial-notebook.md")
    truth = names["visits"]["user"].value_counts()
    for name, true in (("distinct", len(truth)), ("at_least.3", int((truth >= 3).sum()))):
        found = names["profile"].number(name)
        assert abs(found.value - true) < 3 * (found.high - found.low), "six standard deviations"
    assert list(names["table"]["complete"]) == [True, True, True]
    cells = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "tutorial-notebook.md").read_text(), re.M | re.S)
    shown = [cell.splitlines()[-1].split("#")[0].strip() for cell in cells if "#" in cell.splitlines()[-1]]
    alone = [name for name in (*shown, "days") if name in names]
    assert {"sketch", "profile", "days"} <= set(alone)
    for name in alone:
        assert "<table" in names[name]._repr_html_(), name
    assert "distinct users" in names["days"][0].profile()._repr_html_()


def test_the_errors_on_the_page_of_choices_are_what_plan_says(run: Run) -> None:
    import sketchstream as ss

    page = (ROOT / "docs" / "choose.md").read_text()
    found = re.findall(r"^\| ([\d,]+) \|(?: (\d) \|)? ([\d.]+)% \| ([\d.]+)% \|$", page, re.MULTILINE)
    assert len(found) == 11
    for first, published, *errors in found:
        number = int(first.replace(",", ""))
        dials = (first, published) if published else ("4", "1")
        slots = number if not published and number > 1000 else 2**15
        modulus = number if not published and number < 1000 else 32
        spec = ss.ProfileSpec(dials[0], "item", ss.OpenDomain(slots, 8), epsilon_publish=dials[1], modulus=modulus)
        plan = ss.plan(spec, items=50_000, mean=2)
        for name, said in zip(("distinct", "at_least.3"), errors, strict=True):
            assert 100 * plan[name].relative == pytest.approx(float(said), rel=0.04), (first, name)
    for line in re.findall(r"^sketchstream .*$", page, re.MULTILINE):
        assert run(*shlex.split(line)[1:]).code == 0, line
