"""Control fails over by itself when most gateways do not reach a cluster, and not while the copies lack too much."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from mesh.rpc import standbys
from tests.e2e.test_fail_over import asked, command, doomed, fail_over, mesh_of, shown_when, writing
from tests.e2e.test_fail_over_loss import under_load
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.two_of_everything import TwoOfEverything
from tests.fixtures.waiting import until
from tests.fixtures.writers import Writer

__all__ = ["doomed"]

RECORDS = 100
AFTER_S = 8
STALL_S = 1.0
"""A freeze that producers notice, and that is much shorter than `AFTER_S`."""
FAILED_OVER = standbys.STANDBY_STATE_FAILED_OVER


async def stand_by(
    mesh: TwoOfEverything, topic: str, bytes_per_second: int = 0, max_lost_records: int | None = None
) -> None:
    spec = standbys.StandbySpec(
        source_cluster="c2",
        target_cluster="c1",
        topics=f"{topic}*",
        bytes_per_second=bytes_per_second,
        max_lost_records=max_lost_records,
    )
    spec.fail_over_after.FromSeconds(AFTER_S)
    await asked(mesh, "StartStandby", standbys.StartStandbyRequest(spec=spec, request_id=str(uuid.uuid4())))


def is_level(standby: standbys.Standby) -> bool:
    return any(each.HasField("lag") for each in standby.topics)


def stalls(writer: Writer) -> bool:
    return time.time() - writer.waits[-1].until > STALL_S


@pytest.mark.timeout(300)
async def test_a_cluster_that_stands_still_for_long_fails_over_once_and_its_return_changes_nothing(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    doomed: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic = unique_name("alone")
    async with (
        mesh_of(postgres, kafka_c1, doomed, topic, tmp_path) as mesh,
        writing(topic, *(each.address for each in mesh.gateways)) as writers,
    ):
        await stand_by(mesh, topic)
        shown = await command(mesh, "standby", "show", "c2")
        assert f"control fails over by itself after {AFTER_S} s" in shown.stdout
        await shown_when(mesh, is_level)
        for writer in writers:
            await writer.goes_on(RECORDS)
        with doomed.frozen():
            await until(lambda: all(map(stalls, writers)), "producers wait", AFTER_S * 10)
        for writer in writers:
            await writer.goes_on(RECORDS)
        assert (await shown_when(mesh, bool)).state == standbys.STANDBY_STATE_FOLLOWING
        with doomed.frozen():
            failed_over = await shown_when(mesh, lambda found: found.state == FAILED_OVER)
            for writer in writers:
                await writer.goes_on(RECORDS)
        for writer in writers:
            await writer.goes_on(RECORDS)
        later = await shown_when(mesh, bool)
        assert (later.state, later.fail_over_time) == (FAILED_OVER, failed_over.fail_over_time)
        assert [each.copy.target_cluster for each in later.topics] == ["c1"]
    assert [writer.faults for writer in writers] == [[], []]


@pytest.mark.timeout(300)
async def test_control_waits_while_the_copies_lack_too_much_and_an_operator_decides(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    doomed: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic = unique_name("bounded")
    async with (
        mesh_of(postgres, kafka_c1, doomed, topic, tmp_path) as mesh,
        under_load(topic, *(each.address for each in mesh.gateways)) as loads,
    ):
        await stand_by(mesh, topic, bytes_per_second=1000, max_lost_records=0)
        await shown_when(mesh, lambda found: any(each.lag_records for each in found.topics))
        for load in loads:
            await load.goes_on(RECORDS)
        doomed.kill()
        waits = await shown_when(mesh, lambda found: "does not fail over by itself" in found.problem)
        assert waits.state == standbys.STANDBY_STATE_FOLLOWING
        assert "acknowledged records, and may lack 0" in waits.problem
        failed_over = await fail_over(mesh)
        assert sum(each.lag_records for each in failed_over.topics) > 0
        assert failed_over.problem == ""
        for load in loads:
            await load.goes_on()
    assert [load.faults for load in loads] == [[], []]
