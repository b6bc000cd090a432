"""The site of `make docs`: each link leads somewhere, no page needs another host, each page is as in the repository."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from docs.site import ROOT, pages, place

BUILD_TIMEOUT_S = 240.0
ASSETS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}
"""Elements that a browser fetches by itself, and the attribute with the address of each."""
FOREIGN = re.compile(r"([a-z]+:)?//")
STYLE_ADDRESS = re.compile(r"""(?:url\(|@import\s+)\s*['"]?([^'")\s]+)""")
SHAPE = ("h1", "h2", "h3", "h4", "li", "pre", "td", "th")
"""Python-Markdown reads no list that directly follows a line of text, where GitHub does."""


class Reader(HTMLParser):
    """The assets of a page, and the tags of its article."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.assets: list[str] = []
        self.shape: Counter[str] = Counter()
        self._in_article = "<article" not in page
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.assets += [value for name, value in attrs if value and name == ASSETS.get(tag)]
        self._in_article |= tag == "article"
        if self._in_article and tag in SHAPE:
            self.shape[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._in_article &= tag != "article"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: a link or heading that is missing, or a page outside the index, fails."""
    folder = tmp_path_factory.mktemp("site")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def built(page: Path) -> Path:
    source = Path(place(page))
    return source.with_name("index.html") if source.name == "README.md" else source.with_suffix(".html")


def addresses(site: Path) -> Iterator[tuple[Path, str]]:
    for file in site.rglob("*.html"):
        for address in Reader(file.read_text(encoding="utf-8")).assets:
            yield file, address
    for file in site.rglob("*.css"):
        for address in STYLE_ADDRESS.findall(file.read_text(encoding="utf-8")):
            yield file, address


def test_no_page_asks_a_foreign_host_for_anything(site: Path) -> None:
    found = list(addresses(site))
    assert len(found) > len(pages()), "each page has a style sheet"
    assert not [(file.relative_to(site), address) for file, address in found if FOREIGN.match(address)]


def test_the_search_has_each_page_and_asks_no_server(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text(
        encoding="utf-8"
    )  # a script, which a page of a file may load
    found = {
        each["location"].partition("#")[0] for each in json.loads(index.partition("=")[2].strip().rstrip(";"))["docs"]
    }
    assert found >= {built(page).as_posix() for page in pages()}


def test_each_page_has_the_headings_lists_and_tables_that_it_has_in_the_repository(site: Path) -> None:
    markdown = MarkdownIt().enable("table")
    for page in pages():
        here = Reader(markdown.render(page.read_text(encoding="utf-8"))).shape
        assert Reader((site / built(page)).read_text(encoding="utf-8")).shape == here, page.relative_to(ROOT)
