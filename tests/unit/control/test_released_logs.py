"""What a released version has written is read by today's code just as that version read it."""

from __future__ import annotations

import base64
import json
import tomllib
from pathlib import Path

import pytest

from mesh.event_log import FORMAT, Chain, upcast
from mesh.routing import RoutingState, fold
from mesh.rpc import events
from services.control.domain.past.snapshots import view_from_bytes, view_to_bytes
from services.control.domain.reports import fold_instances
from services.control.domain.sidecars.instances import Instances
from services.control.domain.view import MeshView, apply
from tests.fixtures.logs.described import described_routing, described_view

ROOT = Path(__file__).parents[3]
LOGS = {path.stem: path for path in sorted((ROOT / "tests/fixtures/logs").glob("*.log"))}


def bodies_of(release: str) -> list[bytes]:
    return [base64.b64decode(line) for line in LOGS[release].read_text(encoding="ascii").splitlines()]


def recorded_of(release: str) -> dict[str, object]:
    state: dict[str, object] = json.loads(LOGS[release].with_suffix(".json").read_text(encoding="utf-8"))
    return state


def view_of(release: str) -> MeshView:
    view = MeshView()
    for body in bodies_of(release):
        view = apply(view, upcast(body))
    return view


@pytest.mark.parametrize("release", LOGS)
def test_control_sees_what_the_release_saw(release: str) -> None:
    held: Instances = {}
    for body in bodies_of(release):
        held = fold_instances(held, upcast(body))
    assert _as_recorded(described_view(view_of(release), held)) == recorded_of(release)


@pytest.mark.parametrize("release", LOGS)
def test_routers_serve_what_the_release_served(release: str) -> None:
    state = RoutingState()
    for body in bodies_of(release):
        state = fold(state, upcast(body))
    assert _as_recorded(described_routing(state)) == recorded_of(release)["routing"]


@pytest.mark.parametrize("release", LOGS)
def test_the_chain_holds_and_every_event_is_of_the_newest_format(release: str) -> None:
    chain = Chain()
    for body in bodies_of(release):
        event = upcast(body)
        assert chain.fits(event), event.position
        assert event.format == FORMAT
        chain = chain.after(event, body)


@pytest.mark.parametrize("release", LOGS)
def test_a_snapshot_gives_the_same_view(release: str) -> None:
    view = view_of(release)
    assert view_from_bytes(view_to_bytes(view)) == view


def test_the_version_of_this_tree_has_left_its_log() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] in LOGS, "record it: tests/fixtures/logs/README.md"


def test_every_format_that_is_no_longer_written_has_a_log() -> None:
    formats = {events.Event.FromString(body).format or 1 for release in LOGS for body in bodies_of(release)}
    assert set(range(1, FORMAT)) <= formats, "record a log of the release: tests/fixtures/logs/README.md"


def _as_recorded(state: object) -> object:
    return json.loads(json.dumps(state))
