"""Sphinx's configuration of the site; tools/site.py copies the pages and runs it."""

import re
import sys
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

project = "Kernelwright"
default_role = "code"
root_doc = "README"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Kernelwright"
html_favicon = "site/favicon.svg"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_copyright = False
html_math_renderer = "mathml"
html_copy_source = False
autodoc_typehints = "none"
napoleon_use_rtype = False
napoleon_custom_sections = [("Saves", "params_style")]
# a page of CONTRIBUTING's examples has blocks that are no whole file
suppress_warnings = ["misc.highlighting_failure"]


def inline_math(writer, node):
    """MathML, which browsers draw without a script."""
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block_math(writer, node):
    writer.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def as_written(app, what, name, obj, options, lines):
    """Docstrings are plain text: an asterisk and a name that ends in "_" are no markup."""
    for i, line in enumerate(lines):
        lines[i] = re.sub(r"\*|(?<=\w)_(?=\W|$)", lambda m: "\\" + m[0], line)


def setup(app):
    app.connect("autodoc-process-docstring", as_written, priority=400)
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
