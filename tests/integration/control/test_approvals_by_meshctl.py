"""Two people at two command lines: one changes, the other approves. Real certificates, a real control."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.forked_meshctl import ForkedMeshctl, forked_meshctl
from tests.fixtures.members import certificate_of
from tests.fixtures.token_issuer import TokenIssuer
from tests.integration.control.approving import APPLIED, Mesh, approving
from tests.integration.control.world import until

Meshctl = Callable[..., Awaitable[tuple[int, str]]]
NEEDS_APPROVAL = 6


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer().running() as made:
        yield made


@pytest.fixture
async def mesh(
    database: str, kafka_c1: KafkaCluster, events_topic: str, authority: Authority, issuer: TokenIssuer
) -> AsyncIterator[Mesh]:
    async with approving(database, events_topic, {"c1": kafka_c1}, authority, issuer) as made:
        yield made


@pytest.fixture
def meshctl(mesh: Mesh, authority: Authority, tmp_path: Path) -> Meshctl:
    """`meshctl` of a person, as "operator bob"; its exit code and all that it says."""
    address = f"127.0.0.1:{mesh.world.control.port}"

    async def call(person: str, *arguments: str, program: ForkedMeshctl | None = None) -> tuple[int, str]:
        folder = str(certificate_of(authority, *person.split()).folder)
        line = ["--address", address, "--tls-folder", folder, *arguments]
        done = await asyncio.to_thread((program or forked_meshctl()).call, line, {}, tmp_path)
        return done.returncode, done.stdout + done.stderr

    return call


async def the_open_one(mesh: Mesh) -> str:
    (bob,) = await mesh.people("operator bob")
    (only,) = (await bob.listed(open_only=True)).proposals
    return only.name.removeprefix("proposals/")


async def test_a_change_waits_and_a_second_person_makes_it(mesh: Mesh, meshctl: Meshctl) -> None:
    code, said = await meshctl("admin ada", "proposals", "require", "rules", "--topics", "app", "--reason", "audit")
    assert code == 0 and "changes of rules for topics app*" in said, said
    code, said = await meshctl("operator bob", "rule", "set", "--topic", "apples", "--to", "c1", "--reason", "ripe")
    assert code == NEEDS_APPROVAL, said
    name = await the_open_one(mesh)
    assert f"meshctl proposals approve {name}" in said
    code, said = await meshctl("operator bob", "proposals", "approve", name)
    assert code == 1 and "needs a second person" in said, said
    code, said = await meshctl("operator cleo", "proposals", "list")
    assert name in said and "RuleService/SetRule" in said and "ripe" in said
    code, said = await meshctl("operator cleo", "proposals", "show", name)
    assert "rule apples added: " in said and "reason:       ripe" in said, said
    code, said = await meshctl("operator cleo", "proposals", "approve", name, "--reason", "so they are")
    assert code == 0 and f"{name} is applied (revision" in said, said
    assert await mesh.rules() == {"apples": "c1"}
    code, said = await meshctl("operator cleo", "history")
    assert f"proposal {name} is approved" in said and "bob" in said, said
    code, said = await meshctl("viewer vera", "proposals", "policy")
    assert code == 0 and "1. changes of rules for topics app*" in said, said


async def test_a_command_can_wait_for_the_second_person(mesh: Mesh, meshctl: Meshctl) -> None:
    await meshctl("admin ada", "proposals", "require", "rules")
    own = ForkedMeshctl()
    try:
        line = ("rule", "set", "--topic", "apples", "--to", "c1", "--wait-for-approval", "60")
        waits = asyncio.ensure_future(meshctl("operator bob", *line, program=own))
        (cleo,) = await mesh.people("operator cleo")

        async def is_open() -> bool:
            return (await cleo.listed(open_only=True)).open == 1

        await until(is_open, "the change is proposed")
        assert (await cleo.approve(f"proposals/{await the_open_one(mesh)}")).state == APPLIED
        code, said = await waits
        assert code == 0 and "is applied (revision" in said, said
    finally:
        await asyncio.to_thread(own.close)
    code, said = await meshctl(
        "operator bob", "rule", "set", "--topic", "pears", "--to", "c1", "--wait-for-approval", "0.1"
    )
    assert code == NEEDS_APPROVAL and "still waits for a second person" in said, said
    code, said = await meshctl("operator cleo", "proposals", "refuse", await the_open_one(mesh), "--reason", "unripe")
    assert code == 0 and "is refused" in said, said


async def test_a_file_is_proposed_and_does_not_hang(mesh: Mesh, meshctl: Meshctl, tmp_path: Path) -> None:
    await meshctl("admin ada", "proposals", "require", "rules")
    file = tmp_path / "mesh.yaml"
    file.write_text("rules:\n- {topic: apples, target_cluster: c1}\n- {topic: pears, target_cluster: c1}\n")
    for _ in range(2):
        code, said = await meshctl("operator ci", "apply", "-f", str(file), "-o", "json")
        assert code == NEEDS_APPROVAL, said
    name = await the_open_one(mesh)
    assert json.loads(said[said.index('{"error"') :])["error"]["proposal"] == f"proposals/{name}"
    code, said = await meshctl("operator cleo", "proposals", "approve", name)
    assert code == 0, said
    assert await mesh.rules() == {"apples": "c1", "pears": "c1"}
    code, said = await meshctl("operator ci", "apply", "-f", str(file))
    assert code == 0 and "nothing to change" in said, said


async def test_an_admin_breaks_the_glass(mesh: Mesh, meshctl: Meshctl) -> None:
    await meshctl("admin ada", "proposals", "require")
    line = ("rule", "set", "--topic", "apples", "--to", "c1", "--break-glass", "Feuer im Rechenzentrum: übernehmen")
    code, said = await meshctl("operator bob", *line)
    assert code == 1 and "is for admins" in said, said
    code, said = await meshctl("admin ada", *line)
    assert code == 0, said
    code, said = await meshctl("operator bob", "proposals", "list", "--all", "-o", "json")
    (only,) = json.loads(said)["proposals"]
    assert only["break_glass"] and only["decision_reason"].endswith("übernehmen")
    code, said = await meshctl("operator bob", "proposals", "withdraw", only["name"])
    assert code != 0, said
    code, said = await meshctl("admin ada", "proposals", "drop", "1")
    assert code == NEEDS_APPROVAL, said
    code, said = await meshctl("admin ada", "proposals", "withdraw", await the_open_one(mesh))
    assert code == 0 and "is withdrawn" in said, said
