"""The lag of a real group over time: control samples it, keeps it, and says since when and for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import psycopg
import pytest
from confluent_kafka import Consumer
from prometheus_client import Gauge

from mesh.rpc import topics, topics_grpc
from services.control.api import lag_answers
from services.control.decisions.topics import lag_sampling
from services.control.domain.topics.lag_samples import KEPT, LASTING_KEPT, Series
from services.control.store.lag import _key
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.readers import Readers
from tests.integration.control.world import CALL, World, create_topic, refused, until

SECOND = timedelta(seconds=1)


@pytest.fixture
async def mesh(
    database: str, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, events_topic: str
) -> AsyncIterator[World]:
    """Control that samples each second, with two clusters."""
    async with World(database, kafka_c1.bootstrap, events_topic, lag_interval_s=1) as made:
        await made.register("c1", kafka_c1.bootstrap)
        await made.register("c2", kafka_c2.bootstrap)
        made.control.members.ever_reported = True  # no routers are on their way back
        yield made


@pytest.fixture
async def readers(
    mesh: World, unique_name: Callable[[str], str], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> Readers:
    """A group that reads apples on c1, and bananas on c2 under another name there."""
    prefix = unique_name("lag")
    made = Readers(f"{prefix}-readers", f"{prefix}.apples", f"old.{prefix}.bananas", *_places(kafka_c1, kafka_c2))
    create_topic(kafka_c1.bootstrap, made.apples, 2)
    create_topic(kafka_c2.bootstrap, made.bananas, 1)
    bananas = f"{prefix}.bananas"
    await mesh.set_rule({"topic": bananas}, {"target_cluster": "c2", "upstream_topic": "old.{topic}"})
    await mesh.set_rule({"topic_prefix": prefix}, {"target_cluster": "c1"})
    return made


def _places(*clusters: KafkaCluster) -> list[str]:
    return [each.bootstrap for each in clusters]


async def asked(world: World, group: str, **request: Any) -> topics.QueryLagResponse:
    query = topics.QueryLagRequest(name=f"groups/{group}", **request)
    return await topics_grpc.GroupServiceStub(world.channel).QueryLag(query, timeout=CALL)


async def until_lag(world: World, group: str, **wanted: int) -> topics.QueryLagResponse:
    """The answer as soon as the last samples have these lags, by topic and partition (`apples_0`)."""
    found: list[topics.QueryLagResponse] = []

    async def is_so() -> bool:
        try:
            found.append(await asked(world, group))
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.NOT_FOUND
            return False
        lags = {f"{each.topic.rpartition('.')[2]}_{each.partition}": each.last.records for each in found[-1].partitions}
        return lags == wanted

    await until(is_so, f"the lag of {group} is {wanted}")
    return found[-1]


async def test_lag_over_two_clusters_with_its_age_and_since_when(mesh: World, readers: Readers) -> None:
    await readers.commit(readers.apples, 0, 0)
    await readers.commit(readers.bananas, 0)
    await until_lag(mesh, readers.group, apples_0=0, apples_1=0, bananas_0=0)
    before = datetime.now(UTC)
    await readers.write(readers.apples, 10, partition=1)
    await readers.write(readers.bananas, 4)
    answer = await until_lag(mesh, readers.group, apples_0=0, apples_1=10, bananas_0=4)
    of = {(each.topic.rpartition(".")[2], each.partition): each for each in answer.partitions}
    late = of["apples", 1]
    assert not late.last.at_least
    age = (late.last.time.ToDatetime(UTC) - before).total_seconds()
    assert 0 <= late.last.seconds <= age + 2, "the record is at most as old as the write, and one sample"
    assert late.above_since.ToDatetime(UTC) >= before
    assert not late.above_for_longer
    assert not of["apples", 0].HasField("above_since")
    assert of["bananas", 0].last.records == 4, "by the name that clients know"
    assert late.written_per_second > 0

    async def goes_on() -> bool:
        [later] = (await asked(mesh, readers.group, topic=late.topic, partition=1)).partitions
        return later.last.time.ToDatetime(UTC) > late.last.time.ToDatetime(UTC) + 2 * SECOND

    await until(goes_on, "a lag that stays the same gets older")
    assert not late.HasField("catch_up")
    assert answer.sampling.groups >= 1
    assert not answer.sampling.problem
    [beyond] = (await asked(mesh, readers.group, topic=late.topic, partition=1, above=10)).partitions
    assert not beyond.HasField("above_since")

    await readers.commit(readers.apples, 0, 10)
    answer = await until_lag(mesh, readers.group, apples_0=0, apples_1=0, bananas_0=4)
    caught_up = next(each for each in answer.partitions if each.topic == readers.apples and each.partition == 1)
    assert caught_up.passed_per_second > 0
    assert caught_up.catch_up.ToTimedelta() == timedelta()


async def test_pages_have_each_partition_once_and_conditions_narrow_them(mesh: World, readers: Readers) -> None:
    await readers.commit(readers.apples, 0, 0)
    await readers.commit(readers.bananas, 0)
    await until_lag(mesh, readers.group, apples_0=0, apples_1=0, bananas_0=0)
    found, token = [], ""
    while True:
        page = await asked(mesh, readers.group, page_size=2, page_token=token)
        assert page.total == 3
        found += [(each.topic, each.partition) for each in page.partitions]
        token = page.next_page_token
        if not token:
            break
    assert len(found) == len(set(found)) == 3
    one = await asked(mesh, readers.group, topic=readers.apples)
    assert [(each.topic, each.partition) for each in one.partitions] == [(readers.apples, 0), (readers.apples, 1)]
    nowhere = asked(mesh, readers.group, topic="pears")
    await refused(nowhere, grpc.StatusCode.NOT_FOUND, "no sample of topic 'pears' of group")
    await refused(asked(mesh, "nobody-at-all"), grpc.StatusCode.NOT_FOUND, "every 1 s a group that has committed")
    too_short = topics.QueryLagRequest(name=f"groups/{readers.group}")
    too_short.step.FromTimedelta(SECOND)
    stub = topics_grpc.GroupServiceStub(mesh.channel)
    await refused(stub.QueryLag(too_short, timeout=CALL), grpc.StatusCode.INVALID_ARGUMENT, "less than 10 s")
    wrong = asked(mesh, readers.group, above=-1)
    await refused(wrong, grpc.StatusCode.INVALID_ARGUMENT, "negative")


async def test_a_cluster_that_is_away_leaves_the_others_sampled(mesh: World, readers: Readers) -> None:
    await readers.commit(readers.apples, 0, 0)
    await until_lag(mesh, readers.group, apples_0=0, apples_1=0)
    await mesh.register("c3", "127.0.0.1:1", allow_unreachable=True)
    await readers.write(readers.apples, 3)
    answer = await until_lag(mesh, readers.group, apples_0=3, apples_1=0)

    async def says_so() -> bool:
        return "'c3'" in (await asked(mesh, readers.group)).sampling.problem

    await until(says_so, "the silent cluster is named")
    assert answer.total == 2


async def test_groups_beyond_the_bound_are_counted(mesh: World, readers: Readers) -> None:
    await readers.commit(readers.apples, 0, 0)
    await until_lag(mesh, readers.group, apples_0=0, apples_1=0)
    mesh.control._lag_sampling._most_partitions = 1

    async def are_left_out() -> bool:
        sampling = (await asked(mesh, readers.group)).sampling
        return sampling.left_out_groups >= 1 and sampling.left_out_partitions >= 2

    await until(are_left_out, "the group is left out, and its samples of before are there")


async def test_old_rows_are_deleted_and_lasting_ones_stay(mesh: World, readers: Readers, database: str) -> None:
    await readers.commit(readers.apples, 0, 0)
    await until_lag(mesh, readers.group, apples_0=0, apples_1=0)
    now = datetime.now(UTC)
    ages = {KEPT - 60 * SECOND: False, KEPT + 60 * SECOND: False, KEPT + 61 * SECOND: True}
    ages |= {LASTING_KEPT - 60 * SECOND: True, LASTING_KEPT + 60 * SECOND: True}
    async with await psycopg.AsyncConnection.connect(database) as connection:
        find = "select series from group_lag_series where group_name = %s"
        [series] = await (await connection.execute(find, (readers.group,))).fetchone() or ()
        add = "insert into group_lag_samples values (%s, %s, %s, '{0,1}', '{0,0}', '{7,0}')"
        for age, lasts in ages.items():
            await connection.execute(add, (series, now - age, lasts))
        await connection.execute("insert into group_lag_series values (gen_random_uuid(), 'gone', 'apples')")
    await mesh.control._lag.forget()
    async with await psycopg.AsyncConnection.connect(database) as connection:
        find = "select time from group_lag_samples where series = %s and time < %s order by time desc"
        left = await (await connection.execute(find, (series, now - timedelta(hours=1)))).fetchall()
        [groups] = await (await connection.execute("select count(*) from group_lag_series")).fetchone() or ()
        [gone] = (
            await (
                await connection.execute("select count(*) from group_lag_series where group_name = 'gone'")
            ).fetchone()
            or ()
        )
    young, lasting, oldest = KEPT - 60 * SECOND, KEPT + 61 * SECOND, LASTING_KEPT - 60 * SECOND
    assert [row[0] for row in left] == [now - young, now - lasting, now - oldest]
    assert groups >= 1
    assert gone == 0
    request = topics.QueryLagRequest(name=f"groups/{readers.group}")
    request.start_time.FromDatetime(now - LASTING_KEPT)
    request.end_time.FromDatetime(now - timedelta(hours=1))
    answer = await topics_grpc.GroupServiceStub(mesh.channel).QueryLag(request, timeout=CALL)
    first = answer.partitions[0]
    assert (first.last.records, first.last.at_least) == (7, True), "older than all samples"
    assert first.last.seconds == (oldest - lasting).total_seconds()


async def test_samples_are_shown_to_prometheus_with_bounded_labels(
    mesh: World, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await readers.commit(readers.apples, 0, 0)
    await readers.write(readers.apples, 6)
    await until_lag(mesh, readers.group, apples_0=6, apples_1=0)

    def shown() -> dict[tuple[str, str], float]:
        return _metric(lag_sampling.lag_gauge)

    apples, other = (readers.group, readers.apples), (lag_sampling.OTHER, lag_sampling.OTHER)
    await until(lambda: shown().get(apples) == 6, "the lag is a metric")
    await until(lambda: _metric(lag_sampling.age_gauge)[apples] >= 2, "its age grows")
    monkeypatch.setattr(lag_sampling, "MOST_NAMED", 0)
    await until(lambda: set(shown()) == {other}, "all groups beyond the bound are one")
    assert shown()[other] >= 6
    assert _metric(lag_sampling.age_gauge)[other] >= 2
    await readers.commit(readers.apples, 6, 0)
    monkeypatch.setattr(lag_sampling, "MOST_NAMED", 200)
    await until(lambda: shown().get(apples) == 0, "the group has passed all records")
    assert _metric(lag_sampling.age_gauge)[apples] == 0


async def test_groups_are_counted_by_state_for_prometheus(mesh: World, readers: Readers) -> None:
    await readers.commit(readers.apples, 0, 0)

    def counted(state: str) -> float:
        [family] = lag_sampling.groups_gauge.collect()
        return sum(each.value for each in family.samples if each.labels == {"state": state, "type": "classic"})

    await until(lambda: counted("empty") >= 1, "a group without members")
    before, empty = counted("stable"), counted("empty")
    member = Consumer({"bootstrap.servers": readers.homes[readers.apples], "group.id": readers.group})
    member.subscribe([readers.apples])
    try:
        await until(
            lambda: member.poll(0) is None and counted("stable") == before + 1, "the group has a member, and is stable"
        )
        assert counted("empty") < empty + 1
    finally:
        member.close()


def _metric(gauge: Gauge) -> dict[tuple[str, str], float]:
    [family] = gauge.collect()
    return {(each.labels["group"], each.labels["topic"]): each.value for each in family.samples}


async def test_a_partition_without_a_lasting_row_is_left_out_of_a_long_time(mesh: World, database: str) -> None:
    series = _key(Series("once", "apples"))
    async with await psycopg.AsyncConnection.connect(database) as connection:
        await connection.execute("insert into group_lag_series values (%s, 'once', 'apples')", (series,))
        add = "insert into group_lag_samples values (%s, %s, %s, %s, '{3}', '{7}')"
        hour = datetime.now(UTC) - timedelta(hours=1)
        await connection.execute(add, (series, hour, True, [0]))
        await connection.execute(add, (series, hour + SECOND, False, [5]))
    request = topics.QueryLagRequest(name="groups/once")
    request.start_time.FromDatetime(datetime.now(UTC) - timedelta(days=2))
    answer = await topics_grpc.GroupServiceStub(mesh.channel).QueryLag(request, timeout=CALL)
    assert not answer.partitions
    request.start_time.FromDatetime(datetime.now(UTC) - timedelta(hours=2))
    [found] = (await topics_grpc.GroupServiceStub(mesh.channel).QueryLag(request, timeout=CALL)).partitions
    assert (found.partition, found.last.records) == (5, 4)


async def test_a_long_time_of_many_partitions_is_read_in_wider_steps(
    mesh: World, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = _key(Series("wide", "apples"))
    slot = datetime.now(UTC).timestamp() // 300 * 300
    first = datetime.fromtimestamp(slot, UTC) - timedelta(days=3)
    async with await psycopg.AsyncConnection.connect(database) as connection:
        await connection.execute("insert into group_lag_series values (%s, 'wide', 'apples')", (series,))
        add = (
            "insert into group_lag_samples select %s, %s::timestamptz + n * interval '5 minutes', true, '{0,1}', "
            "array[n, n], array[2 * n, n] from generate_series(0, 864) n"
        )
        await connection.execute(add, (series, first))
    request = topics.QueryLagRequest(name="groups/wide")
    request.start_time.FromDatetime(first)
    stub = topics_grpc.GroupServiceStub(mesh.channel)
    whole = await stub.QueryLag(request, timeout=CALL)
    assert whole.resolution.ToTimedelta() == timedelta(minutes=5)
    monkeypatch.setattr(lag_answers, "MOST_READ", 200)
    thin = await stub.QueryLag(request, timeout=CALL)
    assert thin.resolution.ToTimedelta() == 9 * timedelta(minutes=5)
    assert thin.partitions[0].last.records == whole.partitions[0].last.records == 864
    assert len(thin.partitions[0].points) > 60
    by_time = {each.time.seconds: each.records for each in whole.partitions[0].points}
    assert all(abs(by_time[each.time.seconds] - each.records) <= 1 for each in thin.partitions[0].points)
    assert [each.records for each in thin.partitions[1].points] == [0] * len(thin.partitions[1].points)
