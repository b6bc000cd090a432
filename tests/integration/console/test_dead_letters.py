"""Dead letters on pages, with a real sidecar that counts and redrives them: look, plan, redrive, and by which role."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mesh.rpc import replays
from services.sidecar.control import replay_follower
from services.sidecar.records import Reason
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.console_records import READ, Recorded, recorded
from tests.fixtures.consoles import OPERATOR, VIEWER, Consoled, Visitor, hidden_fields, text_of
from tests.fixtures.members import certificate_of
from tests.integration.control.world import CALL, until
from tests.integration.sidecar.dead_letter_world import fail
from tests.integration.sidecar.world import Kafka, started_here

HOSTILE = "<script>alert(1)</script>"
SIDECAR = "shop-1"


@pytest.fixture
async def house(
    console: Consoled,
    kafka_c1: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[Recorded, Kafka, str]]:
    """Orders on c1, five of which are dead letters; ada and vera may read both topics. A sidecar redrives."""
    monkeypatch.setattr(replay_follower, "REPORT_SECONDS", 0.1)
    topic = unique_name("orders")
    kafka = Kafka(kafka_c1.bootstrap)
    for name in (topic, f"{topic}.dlq"):
        await asyncio.to_thread(kafka.create, name, partitions=1)
    await console.world.set_rule({"topic_prefix": topic}, {"target_cluster": "c1"})
    bad = {"key": b"order-9", "value": HOSTILE.encode(), "reason": Reason.BACKEND}
    orders = [{"key": b"order-%d" % n, "value": b'{"n":%d}' % n} for n in range(4)]
    await asyncio.to_thread(fail, kafka, topic, *orders, bad)
    await console.grant("ada", OPERATOR)
    await console.grant("vera", VIEWER)
    folder = certificate_of(console.authority, "sidecar", SIDECAR).folder
    control = f"127.0.0.1:{console.world.control.port}"
    homes = {topic: "c1", f"{topic}.dlq": "c1"}
    async with (
        recorded(console, tmp_path, {"c1": kafka_c1}, homes) as made,
        started_here(kafka.bootstrap, name=SIDECAR, control_addresses=control, rpc_tls_folder=folder),
    ):
        made.allow(*((who, READ, each) for who in ("ada", "vera") for each in homes))
        await until(
            lambda: SIDECAR in {each.member for each in console.world.control.replay_followers.candidates()},
            "the sidecar follows its replays",
        )
        yield made, kafka, topic


async def shows(visitor: Visitor, path: str, text: str) -> str:
    """The page, when it has this text."""
    page = ""

    async def is_there() -> bool:
        nonlocal page
        page = await visitor.sees(path)
        return text in page

    await until(is_there, f"{path} shows {text!r}")
    return page


async def test_letters_are_listed_with_their_errors_and_redriven_as_planned(
    house: tuple[Recorded, Kafka, str],
) -> None:
    recorded, kafka, topic = house
    async with recorded.consoled.person("ada") as ada:
        page = await ada.sees(f"/dead-letters?prefix={topic}")
        assert f"{topic}.dlq 5 {topic} c1" in page
        there = f"/dead-letters/{topic}.dlq"
        page = await ada.sees(there)
        assert f"backend 4 boom shop {topic} 0/4 order-9 {HOSTILE} Redrive 0/4" in page
        assert HOSTILE not in (await ada.client.get(there)).text, "a record is text"
        one = await ada.sees(f"/records/one?topic={topic}.dlq&partition=0&offset=4")
        assert "dlq.attempts 4" in one, "all headers stand on the page of the record"

        answer = await ada.sends(f"{there}/redrive?partition=0&offsets=1", "/dead-letters/plan", to="source",
                                 partition="0", offsets="1", reason="a look")  # fmt: skip
        assert answer.status_code == 303, answer.text
        plan = answer.headers["location"]
        page = await shows(ada, plan, "Redrive 1 dead letter to the topics that they came from")
        assert "Records counted 1" in page
        assert "Only offsets 1" in page
        assert await asyncio.to_thread(kafka.read, topic, None) == [], "a plan delivers nothing"
        await asyncio.to_thread(fail, kafka, topic, {"key": b"late", "value": b"late"})

        answer = await ada.sends(plan, "/dead-letters/redrive", reason="bug 7 fixed")
        assert answer.status_code == 303, answer.text
        page = await shows(ada, answer.headers["location"], "State done")
        assert "Records acknowledged 1" in page
        assert "bug 7 fixed" in page
        assert "Carried out by members/shop-1" in page
        [again] = await asyncio.to_thread(kafka.read, topic, None)
        assert (again.key, again.value, again.headers) == (b"order-1", b'{"n":1}', [])

        answer = await ada.sends(there, "/dead-letters/plan", to="source", failed="retries")
        await shows(ada, answer.headers["location"], "Redrive 5 dead letters")
        await asyncio.to_thread(fail, kafka, topic, {"key": b"later", "value": b"later"})
        answer = await ada.sends(answer.headers["location"], "/dead-letters/redrive")
        await shows(ada, answer.headers["location"], "State done")
        keys = [each.key for each in await asyncio.to_thread(kafka.read, topic, None)]
        assert keys[1:] == [*(b"order-%d" % n for n in range(4)), b"late"], "and not the one that came after the plan"
        answer = await ada.sends(there, "/dead-letters/plan", to="source", record_key="none")
        await shows(ada, answer.headers["location"], "No dead letter fits")


async def test_a_viewer_looks_and_redrives_nothing(house: tuple[Recorded, Kafka, str]) -> None:
    recorded, _, topic = house
    console = recorded.consoled
    there = f"/dead-letters/{topic}.dlq"
    async with console.person("vera") as vera, console.person("ada") as ada:
        assert "boom" in await vera.sees(there)
        assert (await vera.sends(there, "/dead-letters/plan", to="source")).status_code == 403
        plan = (await ada.sends(there, "/dead-letters/plan", to="source")).headers["location"]
        await shows(vera, plan, "Redrive 5 offsets")
        assert (await vera.sends(plan, "/dead-letters/redrive")).status_code == 403
        recorded.allow(("ada", READ, f"{topic}.dlq"))
        page = (await vera.client.get(there)).text
        assert "boom" not in page, "who may not read the records does not get them"
    async with console.visitor() as visitor:
        page = await visitor.sees(there)
        assert "boom" not in page
        assert "Records need a log-in" in page
        assert "Count them first" not in page
    answer = await console.world.replays.ListReplays(replays.ListReplaysRequest(), timeout=CALL)
    assert [each.spec.dry_run for each in answer.replays] == [True], "vera began nothing"


async def test_an_answer_that_does_not_come_is_unknown_and_to_ask_again_redrives_once(
    house: tuple[Recorded, Kafka, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, kafka, topic = house
    console = recorded.consoled
    async with console.person("ada") as ada:
        there = f"/dead-letters/{topic}.dlq"
        form = {**await ada.form(there, "/dead-letters/plan"), "to": "source"}
        monkeypatch.setattr("services.console.views.dead_letters.PLAN_TIMEOUT_S", 2.0)
        async with console.cable.stalled():
            answer = await ada.client.post("/dead-letters/plan", data=form)
        assert answer.status_code == 504
        assert "The outcome is unknown" in answer.text
        monkeypatch.undo()
        again = hidden_fields(answer.text, "/dead-letters/plan")
        plans = {(await ada.client.post("/dead-letters/plan", data=again)).headers["location"] for _ in range(2)}
        [plan] = plans
        await shows(ada, plan, "Redrive 5 offsets")
        redrive = await ada.form(plan, "/dead-letters/redrive")
        begun = {(await ada.client.post("/dead-letters/redrive", data=redrive)).headers["location"] for _ in range(2)}
        [replay] = begun
        await shows(ada, replay, "State done")
    assert len(await asyncio.to_thread(kafka.read, topic, None)) == 5
    known = await console.world.replays.ListReplays(replays.ListReplaysRequest(), timeout=CALL)
    assert len(known.replays) == 2, "one plan, one redrive"


@pytest.mark.parametrize(("field", "value"), [("offsets", "1,x"), ("to", "elsewhere"), ("partition", "-1")])
async def test_a_wrong_field_is_named(console: Consoled, field: str, value: str) -> None:
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        fields = {"to": "source", field: value}
        answer = await ada.sends("/dead-letters/x.dlq/redrive", "/dead-letters/plan", **fields)
        assert answer.status_code == 409
        assert f"{field}:" in text_of(answer.text)
