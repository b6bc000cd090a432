"""serve is killed while it carries out a copy, and stopped once: its drivers end with it, the next one goes on, and in
the end the target has each record once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from mesh import durations
from mesh.rpc import admin, admin_grpc, replays, replays_grpc, routing
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.meshctl.conftest import control, control_database, record_audit_topic  # noqa: F401  # fixtures
from tests.integration.pipeline.copies import Grove, by_place
from tests.integration.pipeline.orchard import Orchard
from tests.integration.pipeline.toolchain import need_spark
from tests.soak.pipeline.serves import Serve

PARTITIONS = 6
RECORDS = 400_000
AT_ONCE = 50_000
KILLS = 3
GAIN = RECORDS // 20
"""Records that are copied from one kill to the next."""
RATE = 20_000.0
"""Records a second: so that a fast machine is killed in mid-copy too."""
START_S = 180.0
END_S = 600.0
CALL_S = 30.0


class Operator:
    """Who registers clusters, orders copies and looks at them."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._clusters = admin_grpc.ClusterServiceStub(channel)
        self._replays = replays_grpc.ReplayServiceStub(channel)

    def register(self, name: str, bootstrap: str) -> None:
        spec = routing.ClusterSpec(cluster_name=name, bootstrap_servers=[bootstrap])
        self._clusters.RegisterCluster(admin.RegisterClusterRequest(spec=spec), timeout=CALL_S)

    def start(self, spec: replays.ReplaySpec) -> str:
        return self._replays.StartReplay(
            replays.StartReplayRequest(spec=spec, wait=durations.of_ms(1)), timeout=CALL_S
        ).name

    def seen(self, name: str) -> replays.Replay:
        return self._replays.GetReplay(replays.GetReplayRequest(name=name), timeout=CALL_S)

    def copied(self, name: str) -> int:
        return sum(each.records for each in self.seen(name).partitions)


@contextmanager
def operator(address: str) -> Iterator[Operator]:
    with grpc.insecure_channel(address) as channel:
        yield Operator(channel)


@pytest.mark.timeout(1_800)
def test_killed_and_stopped_it_goes_on(
    control: str,  # noqa: F811  # the fixture
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    topic: str,
    tmp_path: Path,
) -> None:
    need_spark()
    log = tmp_path / "serve.log"
    orchard, grove = Orchard(kafka_c1.bootstrap, topic), Grove(kafka_c1.bootstrap, kafka_c2.bootstrap, topic)
    orchard.create(partitions=PARTITIONS)
    grove.create_target(PARTITIONS)
    serves: list[Serve] = []
    try:
        for _ in range(RECORDS // AT_ONCE):
            orchard.grow(AT_ONCE, partitions=range(PARTITIONS))
        with operator(control) as ada:
            for name, properties in grove.clusters.items():
                ada.register(name, properties["bootstrap.servers"])
            copy = grove.order(topic, rate=RATE, group="").replay.spec
            name = ada.start(copy)
            reached = 0
            for number in range(KILLS + 1):
                serves.append(Serve(log, CONTROL_ADDRESSES=control))

                def has_come_further(serve: Serve = serves[-1], before: int = reached) -> bool:
                    serve.must_run()
                    return ada.copied(name) >= before + GAIN

                wait_until(has_come_further, f"{GAIN} more than {reached} records are copied, see {log}", START_S)
                if number < KILLS:
                    serves[-1].kill()
                else:
                    serves[-1].stop()
                    assert ada.seen(name).state == replays.REPLAY_STATE_RUNNING
                reached = ada.copied(name)
                print(f"stopped at {reached} of {RECORDS}")
            assert reached < RECORDS
            serves.append(Serve(log, CONTROL_ADDRESSES=control))
            wait_until(lambda: ada.seen(name).HasField("end_time"), "it has ended", END_S)
            end = ada.seen(name)
            assert end.state == replays.REPLAY_STATE_DONE, end.description
            assert ada.copied(name) == RECORDS
            serves[-1].stop()
        assert set(by_place(grove.copies()).values()) == set(orchard.records.values())
        assert len(grove.copies()) == RECORDS
    finally:
        for serve in serves:
            serve.end()
        grove.clear()
        orchard.clear()
