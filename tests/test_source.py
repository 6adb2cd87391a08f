"""Rules of the source that no linter knows."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

import grimp
import pytest

from helpers import late_imports, long_tests
from helpers.paths import ROOT
from helpers.syntax import parsed, statements
from sketchstream.config.schema import TABLES

PACKAGES = [
    ROOT / "sketchstream",
    ROOT / "connectors" / "sketchstream_connectors",
    ROOT / "examples" / "sketchstream_demo",
]
SOURCES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
COMPILED = re.compile(r"kernel|intrinsic|njit|overload|^part$")


def foreign_names(text: str) -> dict[str, set[str]]:
    """For each compiled function: names in its body that were imported from another file of ours.

    Files of sketchstream/kernels are left out: the cache notices their edits.
    """
    ours = {
        alias.asname or alias.name
        for node in statements(text)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("sketchstream")
        and not (node.module or "").startswith("sketchstream.kernels.")
        for alias in node.names
    }
    return {
        node.name: {inner.id for line in node.body for inner in ast.walk(line) if isinstance(inner, ast.Name)} & ours
        for node in parsed(text).body
        if isinstance(node, ast.FunctionDef)
        and any(COMPILED.search(ast.unparse(decorator).split("(")[0]) for decorator in node.decorator_list)
    }


def test_compiled_functions_use_nothing_of_another_file() -> None:
    # numba's cache notices edits of a function's own file and of sketchstream/kernels: what it took from another one
    # would stay as it was.
    functions = {path: foreign_names(path.read_text()) for path in SOURCES}
    assert sum(map(len, functions.values())) > 80
    assert not {(path.name, name): used for path, found in functions.items() for name, used in found.items() if used}


@pytest.mark.parametrize("body", ["return other(1)", "return LIMIT", "return module.other(1)"])
@pytest.mark.parametrize("mark", ["kernel", "part", "typed_intrinsic"])
def test_the_rule_finds_what_breaks_it(body: str, mark: str) -> None:
    text = f"from sketchstream.elsewhere import other, LIMIT, module\n@{mark}\ndef f():\n    {body}\n"
    assert len(foreign_names(text)["f"]) == 1


CITED_OUTSIDE = re.compile(
    r"\bnotes/|\bdesign\.md|\bkafka_(?:faults|clients|speed)\b|\bnotes on (?:the|prior)\b|\bseed 00\d"
    r"|\b(?:profile|the) specification,? (?:sections? )?\d|\b(?:specification|spec section)s? \d|\bspecs/\w+\.md"
    r"|\bseed's (?:algorithm|linear program)"
)
"""Documents that a reader of the repository does not have."""
WRITTEN = ("*.py", "*.md", "*.toml", "*.sh", "*.yml", "*.java", "Makefile", "Dockerfile", ".importlinter")


def texts() -> list[Path]:
    """Every text file of the repository that people write."""
    folders = ("sketchstream", "connectors", "examples", "tests", "bench", "docs", "docker")
    found = [path for folder in folders for name in WRITTEN for path in (ROOT / folder).rglob(name)]
    return [*found, *(path for name in WRITTEN for path in ROOT.glob(name))]


def test_citations_name_papers_and_documents_of_the_repository() -> None:
    assert len(texts()) > 300
    cited = {
        f"{path.relative_to(ROOT)}:{number}"
        for path in texts()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if CITED_OUTSIDE.search(line)
    }
    assert cited == set()


def test_documents_that_are_cited_exist() -> None:
    named = {
        (path.name, document)
        for path in SOURCES
        for document in re.findall(r"\bdocs/[\w/]+\.(?:md|json)", path.read_text())
    }
    assert len(named) > 40
    assert {(name, document) for name, document in named if not (ROOT / document).is_file()} == set()


@pytest.mark.parametrize(
    "text", ["Source: design.md 7.", "see notes/x.md", "profile specification 5.6", "the seed's algorithm"]
)
def test_citations_of_documents_elsewhere_are_found(text: str) -> None:
    assert CITED_OUTSIDE.search(text)


def circles(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """Groups of modules that import each other, directly or through others of the group."""
    reached: dict[str, set[str]] = {}
    for module in imports:
        seen: set[str] = set()
        todo = list(imports[module])
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                todo += imports[one]
        reached[module] = seen
    found = {frozenset({module} | {one for one in seen if module in reached[one]}) for module, seen in reached.items()}
    return sorted((set(group) for group in found if len(group) > 1), key=sorted)


def test_no_modules_import_each_other() -> None:
    """Imports inside functions count too; those under TYPE_CHECKING are never run."""
    graph = grimp.build_graph(
        "sketchstream", "sketchstream_connectors", exclude_type_checking_imports=True, cache_dir=None
    )
    imports = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    assert len(imports) > 200
    assert circles(imports) == []


def test_the_architecture_names_every_module_and_room() -> None:
    """`.importlinter` has a place for each as well: its first contract is exhaustive."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    inside = [path for path in PACKAGES[0].iterdir() if not path.name.startswith("__")]
    names = [path.name for path in inside if path.is_dir() or path.suffix == ".py"]
    assert len(names) > 30
    assert [name for name in names if not re.search(rf"[`/]{re.escape(name)}[`/]", text)] == []


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [{"b", "c"}]


SECTION = re.compile(r"^(?:Args|Attributes|Returns|Yields|Raises|Source|Note|Example|Examples):", re.MULTILINE)


def parameters(node: ast.AST, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """Names of a function's parameters; of a class: of its `__init__`, its fields, and those of its bases."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        given = node.args
        optional = [one for one in (given.vararg, given.kwarg) if one is not None]
        return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *optional)}
    assert isinstance(node, ast.ClassDef)
    found = {
        line.target.id for line in node.body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
    for line in node.body:
        if isinstance(line, ast.FunctionDef) and line.name in ("__init__", "__new__"):
            found |= parameters(line, classes)
    for base in node.bases:
        name = ast.unparse(base).split("[")[0].split(".")[-1]
        if name in classes and classes[name] is not node:
            found |= parameters(classes[name], classes)
    return found


def documented(docstring: str) -> list[str]:
    """What stands before the colon of each entry under `Args:`; the whole line where there is no colon."""
    _before, _, text = f"\n{docstring}".partition("\nArgs:\n")
    following = SECTION.search(text)
    lines = text[: following.start() if following else None].splitlines()
    entries = [line for line in lines if line.startswith("    ") and not line.startswith("     ")]
    return [line.strip().partition(":")[0] for line in entries]


def argument_errors(text: str, classes: Mapping[str, ast.ClassDef]) -> tuple[int, list[str]]:
    """Number of `Args:` entries in a file, and those that are not the name of one parameter, named once."""
    entries = 0
    wrong = []
    for node in statements(text):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        docstring = ast.get_docstring(node) or ""
        names = documented(docstring)
        entries += len(names)
        allowed = parameters(node, classes)
        wrong += [f"{node.name}: {name}" for name in names if name.lstrip("*") not in allowed or names.count(name) > 1]
        inside = docstring.partition("Args:\n")[2]
        wrong += [
            f"{node.name}: {name}"
            for name in re.findall(r"[.;] (\w+(?:, \w+)*): ", inside)
            if set(name.split(", ")) <= allowed
        ]
    return entries, wrong


def classes_of(texts: list[str]) -> dict[str, ast.ClassDef]:
    """Classes by name."""
    return {node.name: node for text in texts for node in statements(text) if isinstance(node, ast.ClassDef)}


def test_each_entry_of_args_describes_one_parameter() -> None:
    classes = classes_of([path.read_text() for path in SOURCES])
    read = {str(path.relative_to(ROOT)): argument_errors(path.read_text(), classes) for path in SOURCES}
    assert {name: wrong for name, (_, wrong) in read.items() if wrong} == {}
    assert sum(entries for entries, _ in read.values()) > 1_000


@pytest.mark.parametrize(
    "entries",
    [
        "    low, high: the ends.",
        "    lows: an end.",
        "    low: an end. high: the other.",
        "    low: x. low, high: y.",
        "    low: 1.\n    low: 2.",
    ],
)
def test_wrong_entries_of_args_are_found(entries: str) -> None:
    text = f'def f(low, high):\n    """Do.\n\n    Args:\n{textwrap.indent(entries, "    ")}\n    """\n'
    assert argument_errors(text, {})[1]
    good = text.replace(textwrap.indent(entries, "    "), "        low: an end,\n            below: high.")
    assert argument_errors(good, {}) == (1, [])


def test_imports_stand_at_the_top_unless_they_are_slow_or_close_a_circle() -> None:
    texts = {
        late_imports.module_of(path, package.parent): path.read_text()
        for package in PACKAGES[:2]
        for path in sorted(package.rglob("*.py"))
    }
    graph = late_imports.Graph(texts)
    assert sum(len(one.inside) for one in graph.modules.values()) > 100
    assert graph.without_reason() == []


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("import json", 1),  # quick, and no circle
        ("import numba", 0),  # slow
        ("from sketchstream.one import f", 0),  # a circle
    ],
)
def test_an_import_without_a_reason_is_found(target: str, found: int) -> None:
    texts = {
        "sketchstream.one": "def f():\n    from sketchstream.two import g\n    return g\n",
        "sketchstream.two": f"{target}\ndef g():\n    pass\n",
    }
    assert len(late_imports.Graph(texts).without_reason()) == found


def twice(text: str) -> set[str]:
    """Names that a module imports at its top and once more for type checkers."""
    body = parsed(text).body
    checkers = [node for block in body if isinstance(block, ast.If) for node in block.body]
    first, second = (
        {
            (node.module, alias.asname or alias.name)
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for nodes in (body, checkers)
    )
    return {name for _, name in first & second}


def lost_pointers(texts: Mapping[str, str]) -> set[tuple[str, str]]:
    """Modules, and names in backquotes there that begin with a room of ours and lead nowhere.

    Keys of a configuration are written in the same way: `privacy.budget`.
    """
    rooms = {name.split(".")[1] for name in texts if name.count(".") > 1} | {name.split(".")[0] for name in texts}
    keys = {f"{table}.{field}" for table, model in TABLES.items() for field in model.model_fields}
    found = set()
    names = {module: named(text) for module, text in texts.items()}
    for module, text in texts.items():
        above = {module.rsplit(".", n)[0] for n in range(1, module.count(".") + 1)} | {module, "sketchstream"}
        for name in set(re.findall(r"`([a-z_]+(?:\.\w+)+)", text)) - keys:
            whole = [name, *(f"{room}.{name}" for room in above)]
            if name.split(".")[0] in rooms - {"kafka"} and not any(leads(one, names) for one in whole):
                found.add((module, name))
    return found


def named(text: str) -> set[str]:
    """What a module defines or imports, and the members of its classes."""
    found: set[str] = set()
    for node in statements(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).split(".")[-1] for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}
    return found


def leads(name: str, names: Mapping[str, set[str]]) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    known = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in names), 0)
    return known > 0 and names[".".join(parts[:known])] >= set(parts[known:])


def test_names_of_modules_lead_there() -> None:
    texts = {
        late_imports.module_of(path, package.parent): path.read_text()
        for package in PACKAGES
        for path in package.rglob("*.py")
    }
    found = {(module, name) for module, name in lost_pointers(texts) if not name.endswith(".py")}
    assert found == set()


def test_names_that_lead_nowhere_are_found() -> None:
    texts = {"a": "", "a.stream": "", "a.stream.worker": "class Worker: ...", "a.stream.other": ""}
    for name, lost in (("stream.worker", False), ("a.stream.worker.Worker", False), ("stream.plan", True),
                       ("worker.Worker", False), ("stream.worker.Gone", True), ("elsewhere.x", False),
                       ("privacy.budget", False)):  # fmt: skip
        assert bool(lost_pointers({**texts, "a.stream.other": f"'See `{name}`.'"})) == lost, name


def test_docstrings_begin_with_what_they_speak_of() -> None:
    """Not with a word for what stands elsewhere: "That of the layers.", "Of the input.", "The same for texts."."""
    elsewhere = re.compile(r"(?:That|Those|Of|The same)\b")
    found = {
        (path.name, node.name)
        for package in PACKAGES
        for path in package.rglob("*.py")
        for node in ast.walk(parsed(path.read_text()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and elsewhere.match(ast.get_docstring(node) or "")
    }
    assert found == set()
    assert elsewhere.match("Of the input.")


def undocumented(texts: list[str]) -> set[str]:
    """Public methods without a docstring that override no documented one, each with its class."""
    classes = classes_of(texts)

    def documented_above(node: ast.ClassDef, name: str) -> bool:
        names = (ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases)
        return any(
            name in documented_methods(classes[base]) or documented_above(classes[base], name)
            for base in names
            if base in classes
        )

    return {
        f"{node.name}.{method.name}"
        for text in texts
        for node in parsed(text).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for method in node.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        and not method.name.startswith("_")
        and not any("overload" in ast.unparse(one) or ".setter" in ast.unparse(one) for one in method.decorator_list)
        and ast.get_docstring(method) is None
        and not documented_above(node, method.name)
    }


def documented_methods(node: ast.ClassDef) -> set[str]:
    """Names of a class's methods that have docstrings."""
    methods = (one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    return {one.name for one in methods if ast.get_docstring(one)}


def test_public_methods_have_docstrings_of_their_own_or_of_what_they_override() -> None:
    assert undocumented([path.read_text() for path in SOURCES]) == set()


def test_a_method_without_a_docstring_is_found() -> None:
    text = 'class A:\n    def f(self):\n        """Do."""\nclass B(A):\n    def f(self): ...\n    def g(self): ...\n'
    assert undocumented([text]) == {"B.g"}


def test_entries_of_arguments_stand_by_themselves() -> None:
    """Not "name: of the sketch.", which is the end of a sentence that nobody wrote."""
    fragment = re.compile(r"^ +\**\w+: of\b", re.MULTILINE)
    found = {
        (path.name, match.strip())
        for package in PACKAGES
        for path in package.rglob("*.py")
        for node in ast.walk(parsed(path.read_text()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for match in fragment.findall(ast.get_docstring(node, clean=False) or "")
    }
    assert found == set()
    assert fragment.search("    Args:\n        name: of the sketch.")


def test_types_of_arrays_have_one_home() -> None:
    home = re.compile(r"^(\w+) = npt\.NDArray\[np\.(?:int64|float64|complex128|uint8|bool_)\]$", re.MULTILINE)
    aliases = {"Ints", "Floats", "Complexes", "Bytes", "Flags", "I64"}
    found = {
        (path.name, name)
        for package in PACKAGES
        for path in package.rglob("*.py")
        for name in home.findall(path.read_text())
        if path.name != "array_types.py" and name in aliases
    }
    assert found == set()
    assert home.findall("Ints = npt.NDArray[np.int64]\n") == ["Ints"]


def test_nothing_is_imported_twice() -> None:
    found = {path.name: twice(path.read_text()) for path in SOURCES}
    assert {name: names for name, names in found.items() if names} == {}
    assert twice("from a import b\nif TYPE_CHECKING:\n    from a import b, c\n") == {"b"}


def test_every_long_test_of_the_list_exists() -> None:
    by_file: dict[str, set[str]] = {}
    for name in long_tests.long_tests():
        file, _, test = name.partition("::")
        by_file.setdefault(file, set()).add(test)
    for file, tests in by_file.items():
        defined = {node.name for node in parsed((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)}
        assert tests <= defined, f"{file}: run `make long`"


def test_a_test_is_long_by_the_mean_of_its_cases(tmp_path: Path) -> None:
    case = '<testcase classname="tests.room.test_file" name="{}" time="{}" />'
    times = (("one", 0.5), ("cases[a]", 0.1), ("cases[b]", 0.01), ("cases[c-d]", 0.03), ("slow[a[b]]", 0.3))
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite>" + "".join(case.format(*one) for one in times) + "</testsuite></testsuites>"
    )
    assert long_tests.slow_ones(report) == ["tests/room/test_file.py::one", "tests/room/test_file.py::slow"]
