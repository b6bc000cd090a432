"""The contract (proto/mesh/v1) takes every message that an earlier release can send: buf compares it with theirs."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from hatch_build import googleapis
from tests.clients import builds
from tests.fixtures.toolchains import need

HERE = Path(__file__).parent
SOURCES = [HERE / name for name in ("package.json", "package-lock.json")]
PROTO = HERE.parents[2] / "proto"
RELEASED = sorted((PROTO / "released").glob("*.binpb"))
MODULES = {"version": "v2", "modules": [{"path": "proto"}, {"path": "googleapis"}]}
BREAKING = {"version": "v2", "breaking": {"use": ["PACKAGE"]}}
"""PACKAGE: what breaks messages on the wire or as JSON, and what breaks code that was generated from the contract."""
COMPARE_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def buf() -> Path:
    _, npm = need("node", "npm")

    def build(working: Path) -> None:
        for source in SOURCES:
            shutil.copy(source, working)
        # not `npm ci`: it refuses a lock file without buf for every platform, and not every registry has them all
        builds.run([npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"], folder=working)

    return builds.built("buf", SOURCES, build) / "node_modules" / ".bin" / "buf"


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    """A copy of today's contract, beside the files of Google that it imports."""
    apis = tmp_path / "googleapis" / "google" / "api"
    apis.mkdir(parents=True)
    for name in ("field_behavior", "resource"):
        shutil.copy(googleapis() / "google" / "api" / f"{name}.proto", apis)
    shutil.copytree(PROTO, tmp_path / "proto")
    return tmp_path / "proto"


def breaks(buf: Path, proto: Path, released: Path) -> list[str]:
    """What a release's clients or servers would stumble over, a line each."""

    def run(*arguments: str, config: Mapping[str, object]) -> subprocess.CompletedProcess[str]:
        command = [str(buf), *arguments, "--config", json.dumps(config)]
        return subprocess.run(
            command, cwd=proto.parent, capture_output=True, text=True, timeout=COMPARE_TIMEOUT_S, check=False
        )

    # whole with whole: buf compares each module of a folder with all of the other side
    built = run("build", ".", "-o", "today.binpb", config=MODULES)
    assert built.returncode == 0, built.stderr
    compared = run("breaking", "today.binpb", "--against", str(released), config=BREAKING)
    assert compared.returncode == 0 or compared.stdout, compared.stderr
    return compared.stdout.splitlines()


@pytest.mark.parametrize("released", RELEASED, ids=lambda file: file.stem)
def test_the_contract_breaks_no_released_one(buf: Path, contract: Path, released: Path) -> None:
    assert breaks(buf, contract, released) == []


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        ("string rule_id = 1;", "string rule_id = 77;", 'Previously present field "1" with name "rule_id"'),
        ("double rank = 2;", "string rank = 2;", 'Field "2" with name "rank" on message "RuleVersion" changed type'),
        ("NODE_VIEW_SINGLE = 1;", "NODE_VIEW_ONE = 1;", 'changed name from "NODE_VIEW_SINGLE" to "NODE_VIEW_ONE"'),
    ],
    ids=["a field with another number", "a field of another type", "an enum value with another name"],
)
def test_a_breaking_change_is_named(buf: Path, contract: Path, was: str, becomes: str, told: str) -> None:
    file = contract / "mesh" / "v1" / "routing.proto"
    text = file.read_text(encoding="utf-8")
    assert text.count(was) == 1
    file.write_text(text.replace(was, becomes), encoding="utf-8")

    found = breaks(buf, contract, contract / "released" / RELEASED[0].name)

    assert any(told in line for line in found), found


def test_there_is_a_release_to_compare_with() -> None:
    assert RELEASED
