"""Control answers about traffic from real tables: who has most, how it went, what a move would carry along."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from mesh import durations
from mesh.rpc import admin, routing, traffic, traffic_grpc
from services.control.domain.traffic.queries import HOW_TO_START
from services.control.store import traffic as store
from tests.fixtures.cables import Cable
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.traffic_tables import TrafficTables
from tests.integration.control.world import CALL, World, create_topic, refused

HOUR = timedelta(hours=1)
NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)
TO_99 = [float(each) for each in range(100)]


@pytest.fixture
def tables(database: str) -> TrafficTables:
    return TrafficTables(database)


@pytest.fixture
async def stub(world: World) -> AsyncIterator[traffic_grpc.TrafficServiceAsyncStub]:
    yield traffic_grpc.TrafficServiceStub(world.channel)


def talkers(start: datetime, end: datetime, *by: str, **more: object) -> traffic.TopTalkersRequest:
    dimensions = [traffic.TrafficDimension.Value(f"TRAFFIC_DIMENSION_{each.upper()}") for each in by]
    request = traffic.TopTalkersRequest(by=dimensions, **more)  # type: ignore[arg-type]
    request.start_time.FromDatetime(start)
    request.end_time.FromDatetime(end)
    return request


def course(start: datetime, end: datetime, step: timedelta | None = None, **who: str) -> traffic.QueryTrafficRequest:
    request = traffic.QueryTrafficRequest(filter=traffic.TrafficFilter(**who))
    request.start_time.FromDatetime(start)
    request.end_time.FromDatetime(end)
    if step is not None:
        request.step.FromTimedelta(step)
    return request


async def test_top_talkers_by_client_and_topic_with_their_percentiles(
    tables: TrafficTables, stub: traffic_grpc.TrafficServiceAsyncStub
) -> None:
    for minute in range(3):
        time = NOON + timedelta(minutes=minute)
        tables.add("minute", time, client="billing", topic="orders", bytes=900, records=9, latencies=TO_99)
        tables.add("minute", time, client="billing", topic="orders", api="Fetch", bytes=10, records=1, errors=2)
        tables.add("minute", time, client="shop", topic="orders", bytes=500, records=50, latencies=[1_000.0])
    tables.tell()

    answer = await stub.TopTalkers(talkers(NOON, NOON + HOUR / 2, "client", "topic"), timeout=CALL)
    first, second = answer.talkers
    assert (first.who.client, first.who.topic, first.who.api) == ("billing", "orders", "")
    assert (first.figures.bytes, first.figures.records, first.figures.calls, first.figures.errors) == (2730, 30, 300, 6)
    assert durations.in_ms(first.figures.p50) == pytest.approx(50, abs=3)
    assert durations.in_ms(first.figures.p99) == pytest.approx(98, abs=2)
    assert durations.in_ms(first.figures.max) == 99
    assert (second.who.client, durations.in_ms(second.figures.p50)) == ("shop", 1_000)
    assert (answer.total.bytes, durations.in_ms(answer.total.max)) == (4_230, 1_000)
    assert not answer.freshness.problem

    by_records = talkers(NOON, NOON + HOUR / 2, "client", measure=traffic.TRAFFIC_MEASURE_RECORDS, limit=1)
    assert [each.who.client for each in (await stub.TopTalkers(by_records, timeout=CALL)).talkers] == ["shop"]
    of_fetches = talkers(NOON, NOON + HOUR / 2, "client", filter=traffic.TrafficFilter(api="Fetch"))
    answer = await stub.TopTalkers(of_fetches, timeout=CALL)
    assert [(each.who.client, each.figures.bytes) for each in answer.talkers] == [("billing", 30)]
    assert not answer.total.HasField("p50")


async def test_a_long_range_is_answered_by_days_hours_and_minutes_each_once(
    tables: TrafficTables, stub: traffic_grpc.TrafficServiceAsyncStub
) -> None:
    midnight = NOON.replace(hour=0)
    for step, length in (("minute", timedelta(minutes=1)), ("hour", HOUR), ("day", timedelta(days=1))):
        floor = midnight if step == "day" else NOON - 2 * HOUR
        for number in range(3):
            tables.add(step, floor + number * length, topic="orders", bytes=length // timedelta(minutes=1))
    request = talkers(NOON - 2 * HOUR + timedelta(minutes=1), NOON + timedelta(days=3), "topic")
    (talker,) = (await stub.TopTalkers(request, timeout=CALL)).talkers
    # of minutes the second and third, of hours those behind the first, of days those behind the first
    assert talker.figures.bytes == 2 * 1 + 2 * 60 + 2 * 1440


async def test_where_no_minutes_and_hours_are_left_at_all_whole_days_answer(
    tables: TrafficTables, stub: traffic_grpc.TrafficServiceAsyncStub
) -> None:
    tables.add("day", NOON.replace(hour=0), topic="orders", bytes=70)  # nothing was counted since, for weeks
    (talker,) = (await stub.TopTalkers(talkers(NOON - HOUR, NOON, "topic"), timeout=CALL)).talkers
    assert talker.figures.bytes == 70
    answer = await stub.QueryTraffic(course(NOON - HOUR, NOON), timeout=CALL)
    assert answer.total.bytes == 70


async def test_traffic_of_a_topic_over_time_with_its_growth(
    tables: TrafficTables, stub: traffic_grpc.TrafficServiceAsyncStub
) -> None:
    for hour, count in enumerate((100, 100, 150, 150)):
        tables.add("hour", NOON + hour * HOUR, topic="orders", client="a", bytes=count, latencies=TO_99)
        tables.add("hour", NOON + hour * HOUR, topic="orders", client="b", bytes=count)
        tables.add("hour", NOON + hour * HOUR, topic="other", client="b", bytes=7)
    answer = await stub.QueryTraffic(course(NOON, NOON + 4 * HOUR, HOUR, topic="orders"), timeout=CALL)
    assert [each.start_time.ToDatetime(UTC) for each in answer.points] == [NOON + hour * HOUR for hour in range(4)]
    assert [each.figures.bytes for each in answer.points] == [200, 200, 300, 300]
    assert answer.growth == pytest.approx(0.5)
    assert (answer.total.bytes, answer.total.calls) == (1_000, 400)
    assert durations.in_ms(answer.total.p90) == pytest.approx(90, abs=3)


async def test_of_very_many_rows_percentiles_come_of_an_even_part(
    tables: TrafficTables, stub: traffic_grpc.TrafficServiceAsyncStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        tables.add("minute", NOON + timedelta(minutes=number), topic="orders", latencies=TO_99)
    monkeypatch.setattr(store, "MOST_SKETCHES", 20)
    monkeypatch.setattr(store, "SKETCHES_AT_ONCE", 3)
    answer = await stub.QueryTraffic(course(NOON, NOON + HOUR, timedelta(minutes=1)), timeout=CALL)
    assert answer.total.calls == 6_000
    assert 0 < sum(1 for each in answer.points if each.figures.HasField("p50")) < 60
    assert durations.in_ms(answer.total.p50) == pytest.approx(50, abs=3)


async def test_what_can_not_be_asked_is_named(stub: traffic_grpc.TrafficServiceAsyncStub) -> None:
    bad = grpc.StatusCode.INVALID_ARGUMENT
    await refused(stub.TopTalkers(talkers(NOON, NOON + HOUR), timeout=CALL), bad, "by: names no dimension")
    await refused(stub.TopTalkers(talkers(NOON, NOON, "topic"), timeout=CALL), bad, "end_time:")
    await refused(stub.QueryTraffic(course(NOON, NOON + HOUR, timedelta(seconds=7)), timeout=CALL), bad, "step: 7 s")


async def test_an_answer_says_how_far_the_tables_are_and_that_no_pipeline_runs(
    tables: TrafficTables, stub: traffic_grpc.TrafficServiceAsyncStub
) -> None:
    request = course(NOON, NOON + HOUR)
    answer = await stub.QueryTraffic(request, timeout=CALL)
    assert answer.freshness.problem == f"no pipeline has ever counted traffic here: {HOW_TO_START}"
    tables.tell(complete_until=NOON)
    answer = await stub.QueryTraffic(request, timeout=CALL)
    assert answer.freshness.problem == ""
    assert answer.freshness.complete_until.ToDatetime(UTC) == NOON
    tables.tell(complete_until=NOON, seconds_ago=3_000)
    answer = await stub.QueryTraffic(request, timeout=CALL)
    assert answer.freshness.problem.startswith("no pipeline has been heard of for 300")


async def test_a_dry_run_tells_what_flows_through_a_topic_that_would_move(
    tables: TrafficTables,
    mesh_of_two: World,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
) -> None:
    topic, quiet = unique_name("busy"), unique_name("quiet")
    for each in (topic, quiet):
        create_topic(kafka_c1.bootstrap, each, 1)
        create_topic(kafka_c2.bootstrap, each, 1)
        await mesh_of_two.set(each, "c1")
    this_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for client in ("billing", "shop"):
        tables.add("hour", this_hour - 9 * HOUR, topic=topic, client=client, bytes=9_000_000_000, latencies=TO_99)
    edits = [
        admin.RuleEdit(set=admin.SetRuleRequest(match=routing.RuleMatch(topic=each), target_cluster="c2"))
        for each in (topic, quiet)
    ]
    answer = await mesh_of_two.rules.DryRun(admin.DryRunRequest(edits=edits), timeout=CALL)
    (found,) = [each for each in answer.findings if each.kind == admin.FINDING_KIND_TRAFFIC]
    assert (found.subject, found.severity) == (topic, admin.SEVERITY_NOTE)
    assert "kB/s of 2 clients, p99 99 ms" in found.text


async def test_without_its_database_control_says_so_and_dry_runs_do_without(
    cable: Cable, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, events_topic: str, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("cut-off")
    create_topic(kafka_c1.bootstrap, topic, 1)
    create_topic(kafka_c2.bootstrap, topic, 1)
    async with World(cable.url, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.register("c2", kafka_c2.bootstrap)
        world.control.members.ever_reported = True
        await world.set(topic, "c1")
        await cable.cut()
        stub = traffic_grpc.TrafficServiceStub(world.channel)
        away = grpc.StatusCode.UNAVAILABLE
        await refused(stub.QueryTraffic(course(NOON, NOON + HOUR), timeout=CALL), away, "PostgreSQL at")
        edit = admin.RuleEdit(set=admin.SetRuleRequest(match=routing.RuleMatch(topic=topic), target_cluster="c2"))
        answer = await world.rules.DryRun(admin.DryRunRequest(edits=[edit]), timeout=CALL)
        assert [each.topic for each in answer.change.moves] == [topic]
        await cable.mend()


@pytest.fixture
async def cable(database: str) -> AsyncIterator[Cable]:
    made = Cable(database)
    await made.mend()
    yield made
    await made.cut()
