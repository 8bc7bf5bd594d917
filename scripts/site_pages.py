"""A hook of mkdocs: pages of the project's root become pages of the site, with links that work there.

They stay where people look for them in a clone. A link into docs/ becomes a link of the site; one to another file of
the repository leads to where the repository is.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
    "CONTRIBUTING.md": "contributing.md",
}
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def linked(text: str, repository: str) -> str:
    """
    >>> linked("[a](docs/format.md#b) [c](CHANGELOG.md) [d](LICENSE)", "https://example.com/r")
    '[a](format.md#b) [c](changelog.md) [d](https://example.com/r/blob/main/LICENSE)'
    """

    def moved(link: re.Match[str]) -> str:
        target, anchor = link[1], link[2] or ""
        if target.startswith("docs/"):
            return f"]({target.removeprefix('docs/')}{anchor})"
        return f"]({PAGES.get(target, f'{repository}/blob/main/{target}')}{anchor})"

    return LINK.sub(moved, text)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Pages of docs/ link to those of the root as they lie on the disk."""
    for source, target in PAGES.items():
        markdown = markdown.replace(f"](../{source}", f"]({target}")
    return markdown


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for source, target in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=linked(text, project["urls"]["Repository"])))
    return files
