"""What MkDocs needs to know of this repository: the index is the navigation, and pages outside docs/ are on the site.

1. The sections and lists of docs/README.md are the navigation.
2. A page outside docs/ that the index names is a page of the site, below its own folder.
3. A link to any other file or folder of the repository becomes its path: no site has that file.

Links in pages stay those of the repository, so that each page reads the same there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent
INDEX = DOCS / "README.md"
FIRST_PAGE = "first-page.md"
"""README.md of the repository: the name is taken by the index."""

_ENTRY = re.compile(r"^(?:(#{2,3}) (.+)|- \[(.+?)\]\((\S+?)\).*)$", re.MULTILINE)
_FENCED_OR_LINK = re.compile(r"^```.*?^```|(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)", re.MULTILINE | re.DOTALL)
_FOREIGN = re.compile(r"[a-z]+:")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation: a section for each heading of the index, a page for each item of its lists."""
    top: list[Any] = [{"Home": INDEX.name}]
    sections = {1: top}
    for marks, heading, title, link in _entries():
        if marks:
            level = len(marks)
            section: list[Any] = []
            sections = {above: outer for above, outer in sections.items() if above < level}
            sections[max(sections)].append({heading: section})
            sections[level] = section
        else:
            sections[max(sections)].append({title: place((DOCS / link).resolve())})
    config.nav = top
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in pages():
        if DOCS not in path.parents:
            files.append(File.generated(config, place(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = Path(str(page.file.abs_src_path)).parent
    on_site = pages()

    def moved(found: re.Match[str]) -> str:
        picture, text, link, heading = found.groups()
        if not link or _FOREIGN.match(link):
            return found[0]
        there = (here / link).resolve()
        there = readme if (readme := there / "README.md") in on_site else there
        if there in on_site or DOCS in there.parents:
            target = os.path.relpath(place(there), Path(page.file.src_uri).parent)
            return f"{picture}[{text}]({target}{heading or ''})"
        path = there.relative_to(ROOT).as_posix()
        return text if path in text else f"{text} (`{path}`)"

    return _FENCED_OR_LINK.sub(moved, markdown)


def pages() -> list[Path]:
    """The index, and the pages that it names."""
    return [INDEX, *((DOCS / link).resolve() for *_, link in _entries() if link)]


def place(path: Path) -> str:
    """Where the site has this file of the repository: a path below `docs_dir`."""
    if path == ROOT / "README.md":
        return FIRST_PAGE
    return path.relative_to(DOCS if DOCS in path.parents else ROOT).as_posix()


def _entries() -> list[tuple[str, str, str, str]]:
    """Lines of the index: marks and text of a heading, or title and link of a page."""
    return _ENTRY.findall(INDEX.read_text(encoding="utf-8"))
