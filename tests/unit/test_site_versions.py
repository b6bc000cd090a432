"""`make docs` builds the site of each version: that of each tag as git has it, and that of the working tree."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from docs.site import ROOT
from docs.versions import NEXT, build, index
from tests.unit.test_site import FOREIGN, Reader

OLD = "0.0.9"
MKDOCS_YML = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
pytestmark = pytest.mark.timeout(240)


def git(repository: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *identity, *arguments], cwd=repository, check=True, capture_output=True)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a release, an earlier tag without a site, and a page that is newer than both."""
    repository, site = tmp_path_factory.mktemp("repository"), tmp_path_factory.mktemp("sites")
    git(repository, "init", "--quiet")
    (repository / "README.md").write_text("# Nothing yet\n")
    git(repository, "add", ".")
    git(repository, "commit", "-m", "before the site")
    git(repository, "tag", "v0.0.8")
    docs = repository / "docs"
    docs.mkdir()
    (repository / "mkdocs.yml").write_text(MKDOCS_YML)
    for name in ("site.py", "overrides/main.html", "assets/iframe-worker.js"):
        (docs / name).parent.mkdir(exist_ok=True)
        (docs / name).write_bytes((ROOT / "docs" / name).read_bytes())
    (docs / "README.md").write_text("# Docs\n\n## Pages\n\n- [Fruit](fruit.md): all of it\n")
    (docs / "fruit.md").write_text("# Fruit\n\nApples are red.\n")
    git(repository, "add", ".")
    git(repository, "commit", "-m", "a release")
    git(repository, "tag", f"v{OLD}")
    (docs / "fruit.md").write_text("# Fruit\n\nApples are green.\n")
    assert build(repository, site) == [OLD, NEXT]
    return site


def test_each_version_has_its_own_pages(sites: Path) -> None:
    assert "Apples are red" in (sites / OLD / "fruit.html").read_text(encoding="utf-8")
    assert "Apples are green" in (sites / NEXT / "fruit.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("version", [OLD, NEXT])
def test_a_page_names_its_version_and_leads_to_the_others(sites: Path, version: str) -> None:
    page = sites / version / "fruit.html"
    text = page.read_text(encoding="utf-8")
    (link,) = re.findall(rf'Kafka Mesh {re.escape(version)} · <a href="([^"]+)">', text)
    there = (page.parent / link).resolve()
    assert there == (sites / "index.html").resolve()
    links = re.findall(r'href="([^"]+)"', there.read_text(encoding="utf-8"))
    assert [(there.parent / each).resolve().exists() for each in links] == [True, True]


@pytest.mark.parametrize("version", [OLD, NEXT])
def test_each_version_is_searched_without_a_server(sites: Path, version: str) -> None:
    """The index is a script, which a page of a file may load, and is of this version alone."""
    script = (sites / version / "search" / "search_index.js").read_text(encoding="utf-8")
    found = json.loads(script.partition("=")[2].strip().rstrip(";"))
    texts = " ".join(each["text"] for each in found["docs"])
    assert "fruit.html" in {each["location"] for each in found["docs"]}
    assert ("are red" in texts, "are green" in texts) == (version == OLD, version == NEXT)
    assets = Reader((sites / version / "fruit.html").read_text(encoding="utf-8")).assets
    assert "assets/iframe-worker.js" in assets
    assert not [each for each in assets if FOREIGN.match(each)]


def test_the_index_of_one_version_leads_on_to_it() -> None:
    assert 'content="0; url=next/index.html"' in index([NEXT])
    assert "refresh" not in index([OLD, NEXT])
