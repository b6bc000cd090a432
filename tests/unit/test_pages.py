"""Pages lead to each other: links, headings and paths of code exist, the index is whole, READMEs fit on one page."""

import re
from pathlib import Path

import pytest

from tests.plain_english import ROOT, files

MOST_WORDS = 600
"""A README of a room has one page."""
ROOMS = ("services/", "meshctl/", "judge/", "local/", "deploy/")
INDEX = ROOT / "docs" / "README.md"
KINDS = ("tutorials", "concepts", "how-to", "reference", "explanation")
BELOW = re.compile(r"Paths of code on this page are below `([^`]+)/`")
SPAN = re.compile(r"(?<!`)`([\w-][\w/-]*\.(?:py|md|proto|yaml|toml))`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
"""A site shows none."""
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    return [path for path in files() if path.suffix == ".md"]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """The names that GitHub gives the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", pages(), ids=name)
def test_each_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, heading = link.partition("#")
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{link}: no such file"
        assert not heading or heading in anchors(there), f"{link}: no such heading"


@pytest.mark.parametrize("page", [page for page in pages() if BELOW.search(page.read_text("utf-8"))], ids=name)
def test_each_path_of_code_exists(page: Path) -> None:
    text = prose(page)
    (below,) = BELOW.findall(text)
    missing = [path for path in SPAN.findall(text) if not (ROOT / below / path).exists() and not (ROOT / path).exists()]
    assert not missing


def test_the_index_names_each_page_once_under_its_kind() -> None:
    _, *sections = re.split(r"^## ", INDEX.read_text(encoding="utf-8"), flags=re.MULTILINE)
    listed = [link for section in sections for link in LINK.findall(section) if not link.startswith("..")]
    there = [path.relative_to(INDEX.parent).as_posix() for path in pages() if INDEX.parent in path.parents]
    assert sorted(listed) == sorted(path for path in there if path != "README.md")
    assert {path.split("/")[0] for path in listed} == set(KINDS)


@pytest.mark.parametrize(
    "page", [page for page in pages() if page.name == "README.md" and name(page).startswith(ROOMS)], ids=name
)
def test_the_readme_of_a_room_is_one_page(page: Path) -> None:
    assert len(COMMENT.sub("", page.read_text(encoding="utf-8")).split()) <= MOST_WORDS


def test_the_glossary_has_at_most_40_words() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| [^|]+ \|$", (INDEX.parent / "concepts/glossary.md").read_text("utf-8"), re.MULTILINE
    )
    words = [row for row in rows if row not in ("word", "---")]
    assert len(set(words)) == len(words) <= 40
