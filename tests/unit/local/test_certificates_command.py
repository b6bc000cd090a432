"""`kafka-mesh certificates`, as the table of services and people call it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from local.cli import main
from local.layout import Layout, parse_ports
from local.services import SERVICES
from mesh.rpc.tls import RpcTls


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["certificates", *arguments], env=environment)


def test_the_row_of_the_table_makes_the_folder_of_each_service(tmp_path: Path) -> None:
    replicas = {"gateway": 2, "router": 2}
    layout = Layout(state=tmp_path, ports=parse_ports(None, (), replicas), pipeline=True, replicas=replicas)
    (row,) = [row for row in SERVICES if row.name == "certificates"]
    result = run(**layout.settings(row))
    assert result.exit_code == 0, result.output
    folders = [
        Path(value)
        for service in layout.services()
        for key, value in layout.settings(service).items()
        if key.endswith("_RPC_TLS_FOLDER")
    ]
    members = ("control", "router", "router-2", "gateway", "gateway-2", "sidecar", "console", "pipeline")
    assert folders == [tmp_path / "certificates" / member for member in members]
    for folder in (*folders, tmp_path / "certificates" / "admin"):
        RpcTls(folder).check()


def test_names_of_owners_are_the_names_of_members(tmp_path: Path) -> None:
    replicas = {"gateway": 2}
    layout = Layout(state=tmp_path, ports=parse_ports(None, (), replicas), replicas=replicas)
    names = {owner.folder: (owner.role, owner.name) for owner in layout.owners() if owner.folder != "admin"}
    assert names == {
        "control": ("control", "control-1"),
        "router": ("router", "router-1"),
        "gateway": ("gateway", "gateway-1"),
        "gateway-2": ("gateway", "gateway-2"),
        "sidecar": ("sidecar", "sidecar-1"),
        "console": ("viewer", "console"),  # no member: it reads as a person does who may read
        "pipeline": ("pipeline", "pipeline-1"),  # for jobs by hand, though this mesh runs none
    }


def test_a_person_adds_an_owner_to_the_running_mesh(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    first = run("viewer/vera", KAFKA_MESH_STATE_DIR=str(state))
    assert first.output == f"viewer vera: signed, in {state}/certificates/viewer-vera\n"
    again = run("viewer/vera", KAFKA_MESH_STATE_DIR=str(state))
    assert again.output == f"viewer vera: still good, in {state}/certificates/viewer-vera\n"


def test_a_folder_without_a_mesh_gets_no_authority(tmp_path: Path) -> None:
    result = run("viewer/vera", KAFKA_MESH_STATE_DIR=str(tmp_path / "nowhere"))
    assert result.exit_code == 2
    assert "no mesh has its state in" in result.output
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("owner", "folder", "said"),
    [("nobody/x", "folder", "no role is called 'nobody'"), ("viewer/vera", "file/below", "Not a directory")],
)
def test_a_failure_is_one_sentence(tmp_path: Path, owner: str, folder: str, said: str) -> None:
    (tmp_path / "file").touch()
    result = run("--folder", str(tmp_path / folder), owner)
    assert result.exit_code != 0
    assert said in result.output
    assert "Traceback" not in result.output
