"""Pages for production on a running mesh: the commands that name `.venv/bin`, and those of PostgreSQL, are run."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from local.postgres import Postgres, find_binaries
from tests.fixtures.meshes import Mesh
from tests.fixtures.pages import ROOT, section_of, steps, take

HOW_TO = ROOT / "docs" / "how-to"
DATABASE, HOME = "postgresql://mesh:secret@postgres:5432/mesh", "broker-1:9092"
"""As the pages write them."""
HERE = (".venv/bin/", "openssl ", "pg_dump ", "pg_restore ")
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def places(mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The pages' names of the database, the home cluster and files, each with the name here."""
    monkeypatch.setenv("PATH", f"{find_binaries()}:{os.environ['PATH']}")
    port = int(mesh.endpoints["postgres"].rpartition(":")[2])
    files = {name: str(tmp_path / name) for name in ("mesh.dump", "mesh.yaml", "./certificates")}
    return files | {DATABASE: Postgres(folder=mesh.state / "postgres", port=port).url(), HOME: mesh.cluster("c1")}


@pytest.fixture
def new_database(places: dict[str, str]) -> Iterator[str]:
    """The URL of an empty database on the mesh's server."""
    name = f"restored_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(places[DATABASE], autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
        yield make_url(places[DATABASE]).set(database=name).render_as_string(hide_password=False)
        connection.execute(f"drop database {name} with (force)".encode())


def follow(text: str, mesh: Mesh, instead: Mapping[str, str]) -> int:
    """Takes the steps that can be taken here; how many."""
    found = [step for step in steps(text) if any(program in step.typed for program in HERE)]
    for step in found:
        take(step, mesh.state.parent, instead)
    return len(found)


def test_a_backup_is_restored_with_the_decisions_that_came_after_it(
    mesh: Mesh, places: dict[str, str], new_database: str
) -> None:
    page = HOW_TO / "back-up-and-restore.md"
    assert follow(section_of(page, "Back up"), mesh, places) == 3
    later = f"later-{uuid.uuid4().hex[:6]}"
    mesh.meshctl("rule", "set", "--topic", later, "--to", "c1")
    mesh.meshctl("rule", "remove", later)
    assert follow(section_of(page, "Restore"), mesh, places | {DATABASE: new_database}) == 2
    with psycopg.connect(new_database) as connection:
        actions = connection.execute("select count(*) from rule_versions where match = %s", [later]).fetchone()
    assert actions == (1,)
    assert follow(section_of(page, "Go back to earlier rules"), mesh, places) == 1


def test_a_lost_database_comes_back_from_the_topic(mesh: Mesh, places: dict[str, str], new_database: str) -> None:
    here = places | {DATABASE: new_database}
    assert follow(section_of(HOW_TO / "recover-from-loss.md", "The database is lost"), mesh, here) == 1
    check = steps(section_of(HOW_TO / "back-up-and-restore.md", "Back up"))[-1]
    assert "verify-log" in check.typed
    take(check, mesh.state.parent, here)


def test_changes_are_frozen_during_an_upgrade(mesh: Mesh, places: dict[str, str]) -> None:
    try:
        assert follow((HOW_TO / "upgrade.md").read_text(encoding="utf-8"), mesh, places) == 3
    finally:
        mesh.meshctl("thaw", check=False)
    assert "the mesh is frozen" in mesh.meshctl("history", "-n", "2").stdout


@pytest.mark.parametrize(("page", "count"), [("production-topology.md", 1), ("secure-a-mesh.md", 2)])
def test_a_page_prepares_a_mesh(page: str, count: int, mesh: Mesh, places: dict[str, str], new_database: str) -> None:
    here = places | {DATABASE: new_database}
    assert follow((HOW_TO / page).read_text(encoding="utf-8"), mesh, here) == count
