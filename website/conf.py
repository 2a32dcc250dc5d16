"""How Sphinx makes the site; `build.py` lays out its pages."""

from __future__ import annotations

from amphw import __version__

project, author, version, release = "amphw", "", __version__, __version__
html_title = f"amphw {__version__}"
html_theme = "furo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_copyright = html_show_sphinx = False
html_copy_source = False

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_heading_anchors = 4  # links to headings, as GitHub names them
suppress_warnings = ["misc.highlighting_failure"]  # a console session with what a program prints is no shell
copybutton_prompt_text = r"\$ |>>> |\.\.\. "  # are not copied
copybutton_prompt_is_regexp = True

default_role = "code"  # docstrings have names in single quotes, as Markdown has them
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
