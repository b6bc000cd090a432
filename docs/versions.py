"""The site of each version, side by side: `make docs`.

    build/site/index.html      leads to each version, the newest first
    build/site/0.1.0/          the pages of tag v0.1.0, as git has them
    build/site/next/           the pages of this working tree

1. Each tag `vVERSION` with a mkdocs.yml is a version. The tag's own pages and hooks are built, with the packages of
   this environment.
2. The working tree is `next`. A release is a tag, so a version does not change once it is there.
3. A page leads to its index by a relative link, and the index is HTML alone: both work as files, without a server.

mike, which does this for MkDocs, commits built pages to a branch that a host serves. Its list of versions is JSON,
which a browser fetches from a server alone: the pages of this site can be opened as files.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site"
NEXT = "next"
RELEASE = "KAFKA_MESH_DOCS_RELEASE"
"""Environment of a build: the name of the version whose pages are built."""
_TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


def releases(repository: Path) -> list[str]:
    """The versions that are tagged and have a site, the newest first."""
    tags = [tag for tag in _git(repository, "tag", "--list", "v*").decode().split() if _TAG.fullmatch(tag)]
    tags.sort(key=lambda tag: tuple(map(int, _TAG.fullmatch(tag).groups())), reverse=True)  # type: ignore[union-attr]
    return [tag[1:] for tag in tags if _git(repository, "ls-tree", "--name-only", tag, "mkdocs.yml")]


def build(repository: Path, site: Path) -> list[str]:
    """Builds the pages of each version below `site`, and the index; the versions, as the index lists them."""
    _build_pages(repository, site / NEXT, NEXT)
    found = releases(repository)
    for version in found:
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(fileobj=io.BytesIO(_git(repository, "archive", f"v{version}"))) as files:
                files.extractall(folder, filter="data")
            _build_pages(Path(folder), site / version, version)
    versions = [*found, NEXT]
    (site / "index.html").write_text(index(versions), encoding="utf-8")
    return versions


def index(versions: list[str]) -> str:
    """A page that leads to each version; a browser goes on to the first one by itself."""
    items = "\n".join(f'<li><a href="{escape(each)}/index.html">{escape(each)}</a></li>' for each in versions)
    first = (
        "" if len(versions) > 1 else f'<meta http-equiv="refresh" content="0; url={escape(versions[0])}/index.html">\n'
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n{first}<title>Kafka Mesh: versions</title>\n'
        f"<h1>Kafka Mesh</h1>\n<p>The pages of each version; {NEXT} is not released.</p>\n"
        f"<ul>\n{items}\n</ul>\n</html>\n"
    )


def _build_pages(tree: Path, folder: Path, version: str) -> None:
    # not --quiet: MkDocs would count no warnings then, and `strict` would fail nothing
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)],
        cwd=tree,
        env={**os.environ, RELEASE: version, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )


def _git(repository: Path, *arguments: str) -> bytes:
    command = [shutil.which("git") or "git", *arguments]
    return subprocess.run(command, cwd=repository, check=True, capture_output=True).stdout


if __name__ == "__main__":
    sys.stdout.write(f"{SITE / 'index.html'}: {', '.join(build(ROOT, SITE))}\n")
