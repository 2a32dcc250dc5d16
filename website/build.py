"""The documentation as a site:  python website/build.py [FOLDER]

Pages are those of the repository, where they stand, so that their links lead to each other: the README is
the first one, notebooks are read as pages, and files that pages link to, such as records of benchmarks, are
copied. Any warning, such as a link that leads nowhere, is an error. FOLDER: build/site, unless it is given.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from sphinx.cmd.build import build_main

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
CONTENTS = tomllib.loads((HERE / "contents.toml").read_text(encoding="utf-8"))


def contents() -> list[tuple[str, list[str]]]:
    """Captions of the menu, and the pages below each."""
    return [(part["caption"], part["pages"]) for part in CONTENTS["part"]]


def lay_out(pages: Path) -> None:
    """Write the source of every page into this folder."""
    listed = [page for _, below in contents() for page in below]
    wanted = ["README.md", *listed, *_decisions()]
    for page in wanted:
        text = (ROOT / page).read_text(encoding="utf-8")
        if page.endswith(".ipynb"):
            text = notebook(text, page)
            _copy(ROOT / page, pages / page)
        for linked in linked_files(page, text):
            if linked not in wanted:
                _copy(ROOT / linked, pages / linked)
        text = text.replace("](../README.md", "](../index.md")
        if page == "README.md":
            text += _menu()
        if page == "docs/decisions/README.md":
            text += toctree("", _decisions(), below="docs/decisions")
        at = pages / _page(page)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text, encoding="utf-8")


def linked_files(page: str, text: str) -> Iterator[str]:
    """Files of the repository that a page there links to."""
    for link in LINK.findall(outside_code(text)):
        found = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
        if not re.match(r"[a-z]+:", link) and (ROOT / found).is_file():
            yield found


def outside_code(text: str) -> str:
    return re.sub(r"^```.*?^```\s*?$", "", text, flags=re.M | re.S)


def notebook(text: str, path: str) -> str:
    """A notebook as a page, without what its cells print: `make notebooks` runs them."""
    cells = json.loads(text)["cells"]
    shown = []
    for cell in cells:
        source = "".join(cell["source"])
        shown.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    name = posixpath.basename(path)
    return "\n\n".join([*shown, f"The notebook itself is [{name}]({name}).", ""])


def toctree(caption: str, pages: list[str], below: str = "") -> str:
    options = [f":caption: {caption}"] * bool(caption) + [":hidden:"]
    lines = []
    for page in pages:
        at, title = posixpath.relpath(_page(page), below or "."), CONTENTS["titles"].get(page)
        lines.append(f"{title} <{at}>" if title else at)
    return "\n".join(["", "```{toctree}", *options, "", *lines, "```", ""])


def _menu() -> str:
    return "".join(toctree(caption, pages) for caption, pages in contents())


def _decisions() -> list[str]:
    return [f"docs/decisions/{path.name}" for path in sorted((ROOT / "docs/decisions").glob("0*.md"))]


def _page(path: str) -> str:
    """Where a page of the repository stands in the source."""
    return "index.md" if path == "README.md" else path.replace(".ipynb", ".md")


def _copy(source: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, to)


def build(site: Path) -> int:
    """-> Sphinx's exit code."""
    pages = ROOT / "build" / "site-pages"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.rmtree(site, ignore_errors=True)
    lay_out(pages)
    return build_main(
        ["-q", "-W", "--keep-going", "-E", "-c", str(HERE), "-b", "html", str(pages), str(site)]
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()
    code = build(folder)
    if not code:
        print(f"the site is in {folder}: open {folder / 'index.html'}")
    sys.exit(code)
