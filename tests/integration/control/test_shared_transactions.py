"""Changes that come at the same time share a transaction: each stands by itself, and all of them fail if it fails."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

import grpc
import psycopg
import pytest

from mesh.event_log import Chain
from mesh.rpc import admin, routing
from services.control.decisions.turns import waiting_gauge
from services.control.store.database import StoreUnavailableError
from services.control.store.log import EventLog
from services.control.store.statements import Statement
from tests.integration.control.world import CALL, World, checked, refused, until

CALLERS = 20


def spec(number: int, target: str = "c1") -> routing.RuleSpec:
    return routing.RuleSpec(
        rule_id=f"r{number}", match=routing.RuleMatch(topic=f"topic-{number}"), target_cluster=target
    )


async def create(world: World, rule: routing.RuleSpec, **options: str) -> admin.RuleChangeResponse:
    request = admin.CreateRuleRequest(rule=rule, options=admin.ChangeOptions(**options))  # type: ignore[arg-type]
    return await world.rules.CreateRule(request, timeout=CALL)


class Gate:
    """Stands before the transactions of the log: the first one waits until the others have entered."""

    def __init__(
        self, world: World, monkeypatch: pytest.MonkeyPatch, *, failing: int = 0, unreadable: str = "nothing"
    ) -> None:
        """The first `failing` transactions fail, and each that holds the text `unreadable`."""
        self.transactions = 0
        self._failing = failing
        self._world = world
        self.opened, self.reached = asyncio.Event(), asyncio.Event()
        original = EventLog.append

        async def append(store: EventLog, before: Chain, after: Chain, statements: Sequence[Statement]) -> None:
            self.transactions += 1
            self.reached.set()
            await self.opened.wait()
            if self.transactions <= self._failing:
                raise StoreUnavailableError("the database is away in this test")
            if any(unreadable in str(each.values) for each in statements):
                raise psycopg.DataError("the database does not take this text")
            await original(store, before, after, statements)

        monkeypatch.setattr(EventLog, "append", append)

    async def open_when(self, entered: int) -> None:
        journal = self._world.control.journal
        await until(
            lambda: journal.ground.view.position - journal.view.position >= entered, f"{entered} have entered", CALL
        )
        self.opened.set()


async def audit_events(world: World, method: str) -> list[admin.AuditEvent]:
    response = await world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(page_size=500), timeout=CALL)
    return [each for each in response.audit_events if each.method.endswith(f"/{method}")]


async def test_changes_that_come_at_once_share_a_transaction(
    mesh_of_two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = mesh_of_two
    gate, start = Gate(world, monkeypatch), world.control.journal.view.position
    calls = [asyncio.create_task(create(world, spec(number))) for number in range(CALLERS)]
    await gate.open_when(CALLERS)
    answers = await asyncio.gather(*calls)

    assert gate.transactions == 2
    assert sorted(each.revision for each in answers) == list(range(start + 1, start + 1 + CALLERS))
    for number, answer in enumerate(answers):
        assert [rule.name for rule in answer.rules] == [f"rules/r{number}"]
        assert answer.rules[0].revision == answer.revision
    audited = await audit_events(world, "CreateRule")
    assert sorted(each.revision for each in audited) == sorted(each.revision for each in answers)
    assert {each.code for each in audited} == {"OK"}
    await world.published(world.control.journal.view.position)
    report = checked(world)
    assert not report.differences


async def test_if_the_transaction_fails_all_of_its_changes_fail_and_control_goes_on_as_before(
    mesh_of_two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = mesh_of_two
    gate, before = Gate(world, monkeypatch, failing=1), world.control.journal.view
    calls = [
        asyncio.create_task(refused(create(world, spec(number)), grpc.StatusCode.UNAVAILABLE, "away in this test"))
        for number in range(CALLERS)
    ]
    await gate.open_when(CALLERS)
    await asyncio.gather(*calls)

    assert world.control.journal.view is before
    assert {each.code for each in await audit_events(world, "CreateRule")} == {"UNAVAILABLE"}
    answer = await create(world, spec(1))
    assert answer.revision == before.position + 1
    assert answer.rules[0].place == 1


async def test_nobody_is_refused_for_a_change_that_is_lost(mesh_of_two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = mesh_of_two
    gate = Gate(world, monkeypatch, failing=1)
    lost = asyncio.create_task(refused(create(world, spec(1)), grpc.StatusCode.UNAVAILABLE))
    await gate.reached.wait()
    second = asyncio.create_task(
        create(world, spec(1, "c2"))
    )  # it would be refused: the rule exists, if the first counts
    await until(lambda: waiting_gauge._value.get() == 2, "the second change has its turn")
    gate.opened.set()
    await lost
    assert [rule.spec.target_cluster for rule in (await second).rules] == ["c2"]


async def test_a_request_that_comes_twice_at_once_is_decided_once(
    mesh_of_two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, request_id = mesh_of_two, str(uuid.uuid4())
    start = world.control.journal.view.position
    gate = Gate(world, monkeypatch)
    calls = [asyncio.create_task(create(world, spec(1), request_id=request_id)) for _ in range(5)]
    await gate.open_when(1)
    answers = await asyncio.gather(*calls)
    assert {each.revision for each in answers} == {start + 1}
    assert world.control.journal.view.position == start + 1


async def test_a_change_that_the_database_refuses_fails_alone(
    mesh_of_two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = mesh_of_two
    gate = Gate(world, monkeypatch, unreadable="topic-3")
    good = [asyncio.create_task(create(world, spec(number))) for number in range(3)]
    await gate.reached.wait()
    bad = asyncio.create_task(refused(create(world, spec(3)), grpc.StatusCode.INTERNAL))
    await gate.open_when(4)
    await asyncio.gather(*good, bad)
    assert sorted(rule.rule_id for rule in world.control.journal.view.state.effective.rules) == ["r0", "r1", "r2"]
