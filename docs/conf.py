"""How the documents become a site: Sphinx with MyST and Furo (`make site`).

In: the pages of this folder, the docstrings of the package. Out: .cache/site. Touches: that folder.
"""

from __future__ import annotations

import re
from pathlib import Path

import sketchstream

ROOT = Path(__file__).resolve().parents[1]

project = "sketchstream"
author = "The sketchstream maintainers"
version = release = sketchstream.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["README.md"]  # the index of the repository; index.md is the site's
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
# Pages link to files beside the documents (LICENSE, docker/, schemas), which the repository has and the site has not.
suppress_warnings = ["myst.xref_missing"]

html_theme = "furo"
html_title = f"sketchstream {release}"
html_static_path: list[str] = []
html_copy_source = False
html_show_sphinx = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
nitpicky = False


def _sections(text: str) -> str:
    """Docstrings of the house, as napoleon reads them: a `Source:` is a paragraph, code is in single backticks."""
    tree = re.search(r"(?ms)^SketchstreamError {2}.*?(?=\n\n)", text)
    if tree is not None:  # the tree of errors is literal
        text = text.replace(tree[0], "::\n\n" + re.sub(r"(?m)^", "    ", tree[0]))
    return re.sub(r"(?m)^(\s*)Source: ", r"\1*Source*: ", re.sub(r"(?<!`)`([^`\n]+)`(?!`)", r"``\1``", text))


def _read(_app: object, _what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Called by autodoc with each docstring."""
    lines[:] = _sections("\n".join(lines)).split("\n")


def setup(app: object) -> None:
    """Register what is called for each docstring."""
    app.connect("autodoc-process-docstring", _read, priority=100)  # type: ignore[attr-defined]  # before napoleon
