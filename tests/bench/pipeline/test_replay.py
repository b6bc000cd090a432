"""A replay, beside the raw source: records that are read, and written again in transactions to another cluster."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from mesh.rpc import replays
from tests.bench.pipeline.rates import Rates, Records, delete, produce
from tests.fixtures.clusters import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOT_BY_THE_CLOCK = 3600


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
@pytest.mark.parametrize("condition", ["", "'trace' in headers"])
def test_to_another_cluster(
    bench_session: SparkSession,
    records: Records,
    kafka_c2: KafkaCluster,
    rates: Rates,
    rounds: int,
    condition: str,
) -> None:
    from services.pipeline.copying import job as replay
    from services.pipeline.driver_protocol.orders import Order
    from services.pipeline.settings import PipelineSettings

    settings = PipelineSettings()
    clusters = {
        "c1": {"bootstrap.servers": records.bootstrap},
        "c2": {"bootstrap.servers": kafka_c2.bootstrap},
    }
    for number in range(rounds):
        target = produce(kafka_c2.bootstrap, f"bench-copy-{os.getpid()}-{len(condition)}-{number}", 0, bytes, bytes)
        copy = replays.ReplayToTopic(
            topic=target.topic, cluster="c2", source_cluster="c1", group=target.topic, filter=condition
        )
        spec = replays.ReplaySpec(ranges=[replays.ReplayRange(topic=records.topic)], topic=copy)
        order = Order(replays.Replay(name=f"replays/{target.topic}", spec=spec), clusters)
        reports: list[replays.ReportReplayRequest] = []

        def copy_all(order: Order = order, reports: list[replays.ReportReplayRequest] = reports) -> None:
            replay.run(
                lambda: bench_session,
                order,
                None,
                reports.append,
                threading.Event(),
                timeout_s=settings.request_timeout_s,
                stall_timeout_s=settings.stall_timeout_s,
            )

        name = "replay, exactly once" + (", with a filter on a header" if condition else "")
        rates.measure(name, records.count, copy_all)
        assert reports[-1].description.startswith(f"{records.count} records copied"), reports[-1].description
        delete(target)
