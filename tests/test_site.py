"""The docs as a site: every page is in it, every link and anchor leads somewhere, and nothing is asked of other hosts.

And the pages of docs/reference that are written from the code are what it says.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from test_docs import DOCS, PAGES, ROOT, page

MKDOCS = ROOT / "mkdocs.yml"
BUILD_TIMEOUT_S = 120
FROM_THE_ROOT = {"architecture.md", "changelog.md", "code_of_conduct.md", "contributing.md"}
"""Pages of the site that scripts/site_pages.py takes from the project's root."""

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""What a browser fetches by itself when it opens a page."""


class Loads(HTMLParser):
    """Collects what a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADED.get(tag, ""))
        if address is not None:
            self.addresses.append(address)


def slug(heading: str) -> str:
    """The anchor that a heading gets, here and where the README is shown.

    >>> slug("The topic `__folds`, and why")
    'the-topic-__folds-and-why'
    """
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors_of(text: str) -> set[str]:
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", prose, flags=re.MULTILINE)
    return {slug(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)) for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_anchors_of_links_exist(path: Path) -> None:
    gone = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page(path)):
        file, hash_sign, anchor = target.partition("#")
        if hash_sign and "://" not in target:
            linked = page(path.parent / file) if file else page(path)
            gone += [] if anchor in anchors_of(linked) else [target]
    assert not gone, f"{path.name} links to headings that are not there: {gone}"


def test_an_anchor_that_is_not_there_is_found() -> None:
    assert anchors_of("# One thing\n```sh\n# no heading\n```\n## `b`, too\n") == {"one-thing", "b-too"}


def test_every_page_is_in_the_navigation_once() -> None:
    named = re.findall(r"[:-] ([\w/]+\.md)$", page(MKDOCS), flags=re.MULTILINE)
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert len(named) == len(set(named))
    assert set(named) == pages | FROM_THE_ROOT


@pytest.mark.faults  # `make docs` builds it as strictly
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed; enable with: pip install 'foldlog[docs]'")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    built = sorted((tmp_path / "site").rglob("*.html"))
    assert len(built) > len(list(DOCS.rglob("*.md")))
    for path in built:
        loads = Loads()
        loads.feed(path.read_text(encoding="utf-8"))
        assert loads.addresses
        assert not [address for address in loads.addresses if re.match(r"(https?:)?//", address)], path.name
    styles = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.css"))
    assert "url(http" not in styles
    assert (tmp_path / "site" / "search" / "search_index.json").exists()


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other versions write some annotations otherwise")
def test_the_python_reference_is_what_the_docstrings_say() -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed; enable with: pip install 'foldlog[spark]'")
    check("write_python_reference.py")


def test_the_reference_of_settings_is_what_the_code_says() -> None:
    check("write_settings_reference.py")


def check(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
