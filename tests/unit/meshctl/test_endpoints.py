"""Where meshctl looks for the mesh."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mesh.rpc.tls import RpcTls
from meshctl.endpoints import Endpoint, EndpointsError, Service, find, split_address
from meshctl.session import tls_files


def write(folder: Path, **addresses: str) -> Path:
    path = folder / ".kafka-mesh" / "endpoints.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(addresses), encoding="utf-8")
    return path


def look(
    tmp_path: Path, *, option: str | None = None, environment: dict[str, str] | None = None, start: Path | None = None
) -> Endpoint:
    return find(
        Service.CONTROL,
        option=option,
        variable="MESHCTL_ADDRESS",
        environment=environment or {},
        start=start or tmp_path / "elsewhere",
        prefix=tmp_path / "checkout" / ".venv",
    )


def test_an_option_wins_over_everything(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", control="a:1")
    assert look(tmp_path, option="b:2", environment={"MESHCTL_ADDRESS": "c:3"}).address == "b:2"


def test_the_environment_wins_over_files(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", control="a:1")
    assert look(tmp_path, environment={"MESHCTL_ADDRESS": "c:3"}) == Endpoint("c:3", "from MESHCTL_ADDRESS")


def test_the_nearest_file_upwards_is_taken(tmp_path: Path) -> None:
    write(tmp_path, control="far:1")
    near = write(tmp_path / "work", control="near:2")
    below = tmp_path / "work" / "deep" / "below"
    below.mkdir(parents=True)
    assert look(tmp_path, start=below) == Endpoint("near:2", f"from {near}")


def test_the_checkout_of_the_virtual_environment_is_found_from_anywhere(tmp_path: Path) -> None:
    write(tmp_path / "checkout", control="mine:7")
    assert look(tmp_path).address == "mine:7"


def test_a_state_folder_of_the_environment_is_looked_into(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "endpoints.json").write_text('{"control": "s:9"}', encoding="utf-8")
    assert look(tmp_path, environment={"KAFKA_MESH_STATE_DIR": str(tmp_path / "state")}).address == "s:9"


def test_a_mesh_comes_with_its_certificates_where_its_file_has_the_address(tmp_path: Path) -> None:
    path = write(tmp_path / "elsewhere", control="a:1")
    assert look(tmp_path).certificates is None  # an earlier version started it
    (path.parent / "certificates").mkdir()
    found = look(tmp_path)
    assert found.certificates == path.parent / "certificates"
    assert tls_files(found) == RpcTls(path.parent / "certificates" / "admin")
    assert tls_files(found, "/mine") == RpcTls(Path("/mine"))
    for elsewhere in (look(tmp_path, option="b:2"), look(tmp_path, environment={"MESHCTL_ADDRESS": "c:3"})):
        assert tls_files(elsewhere) is None


def test_without_anything_it_is_the_default_port(tmp_path: Path) -> None:
    assert look(tmp_path) == Endpoint("127.0.0.1:7070", "the default")


@pytest.mark.parametrize("content", ["{", "[]", '{"control": 7070}'])
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    path = write(tmp_path / "elsewhere")
    path.write_text(content, encoding="utf-8")
    with pytest.raises(EndpointsError, match=str(path)):
        look(tmp_path)


@pytest.mark.parametrize(("address", "parts"), [("h:1", ("h", 1)), ("[::1]:65535", ("::1", 65535))])
def test_addresses_split_into_host_and_port(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["h", "h:", ":1", "h:0", "h:65536", "h:x", "::1:9092", "h:²"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(EndpointsError, match="expected host:port"):
        split_address(address)
