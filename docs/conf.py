"""Sphinx settings: `make docs` builds the site into docs/_build/html without running any model."""

import base64
import json
import re
import shutil
import tomllib
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert

HERE = Path(__file__).parent
NOTEBOOKS = HERE / "notebooks"  # copies of examples/*.ipynb, since Sphinx reads this folder only

project = "pm_evidence"
author = "The pm_evidence developers"
copyright = f"2026, {author}"
version = release = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"][
    "version"
]

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "**.ipynb_checkpoints", "announcement.md", "paper.md"]
templates_path = ["_templates"]
default_role = "py:obj"  # single backticks in docstrings are names

myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # outputs are stored in the notebooks; the slow tests run them
nb_merge_streams = True

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False

html_math_renderer = "mathml"  # formulas need neither scripts nor a network
html_theme = "pydata_sphinx_theme"
html_title = f"{project} {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_sidebars = {page: [] for page in ("index", "what_is_evidence", "get_started", "benchmarks")}
html_theme_options = {
    "header_links_before_dropdown": 7,
    "navbar_persistent": ["search-button"],
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    # Each version is a folder, and the list of them lies beside these: no host is named here.
    "switcher": {"json_url": "../versions.json", "version_match": release},
    "check_switcher": False,
    "show_version_warning_banner": True,
    "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
}


def copy_notebooks():
    """Copy the notebooks of examples/ to where Sphinx finds them, with a picture of each."""
    shutil.rmtree(NOTEBOOKS, ignore_errors=True)
    NOTEBOOKS.mkdir()
    for file in (HERE.parent / "examples").glob("*.ipynb"):
        shutil.copy(file, NOTEBOOKS)
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
        picture = next(data["image/png"] for data in outputs if "image/png" in data)
        (NOTEBOOKS / f"{file.stem}.png").write_bytes(base64.b64decode(picture))


def for_the_site(app, docname, source):
    """Rewrite what Markdown for GitHub says in other ways than Sphinx."""
    text = re.sub(r'<a id="(\w+)"></a>(`\w+`)', r"[\2]{#\1}", source[0])  # rows of tables
    source[0] = re.sub(r"^```python raises=\w+$", "```python", text, flags=re.MULTILINE)


def find_by_short_name(app, env, node, contnode):
    """Resolve ``pe.name``, as docstrings and users call ``pm_evidence.name``."""
    target = node.get("reftarget", "")
    if not target.startswith("pe."):
        return None
    target = target.replace("pe.", "pm_evidence.", 1)
    domain = env.get_domain("py")
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], target, node, contnode
    )


def without_arguments(app, what, name, obj, options, signature, return_annotation):
    """Leave out the signature of protocols, which nobody calls."""
    return ("", None) if getattr(obj, "_is_protocol", False) else None


def write_formula(writer, node):
    """Write a formula as MathML, which browsers draw themselves."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    writer.body.append(convert(node.astext(), display=display))
    raise nodes.SkipNode


def setup(app):
    """Add the steps above to the build."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    copy_notebooks()
    app.connect("source-read", for_the_site)
    app.connect("missing-reference", find_by_short_name)
    app.connect("autodoc-process-signature", without_arguments)
