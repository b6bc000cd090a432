"""A topology that got over a trouble says so, with and without records to work on."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from pathlib import Path

import pytest

from services.sidecar.streams.store import Store
from services.sidecar.streams.store_follower import Follower, StorePlace
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.stream_world import StreamWorld, streams_of
from tests.integration.sidecar.world import Kafka, started

TOPOLOGY = """
def counter():
    topology = Topology("counter")
    topology.stream(P + "events").group().count(store="events").updates().to(P + "counts")
    return topology
"""
TROUBLE = "broker: not the leader of the changelog yet"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[StorePlace]:
    """How often each store was asked for; the first time it can't be had, as while its changelog is being made."""
    times: Counter[StorePlace] = Counter()
    ask_for = Follower.ask_for

    def fails_at_first(self: Follower, place: StorePlace) -> Future[Store]:
        times[place] += 1
        if times[place] > 1:
            return ask_for(self, place)
        failed: Future[Store] = Future()
        failed.set_exception(OSError(TROUBLE))
        return failed

    monkeypatch.setattr(Follower, "ask_for", fails_at_first)
    return times


def test_an_idle_topology_runs_again_when_its_trouble_is_over(
    kafka_c1: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Counter[StorePlace]
) -> None:
    world = StreamWorld(Kafka(kafka_c1.bootstrap), tmp_path)
    world.create("events", "counts", partitions=1)
    world.define(TOPOLOGY)
    monkeypatch.syspath_prepend(str(tmp_path))
    with started(
        world.kafka.bootstrap,
        name=f"{world.prefix}sidecar",
        streams=world.reference("counter"),
        streams_application_id=world.prefix + "app",
        state_dir=tmp_path / "state",
    ) as sidecar:
        wait_until(lambda: asked[StorePlace("events", 0)] > 1, "the store is asked for again")
        wait_until(lambda: streams_of(sidecar)["counter"]["state"] == "running", "it runs, without any record")
        assert not streams_of(sidecar)["counter"].get("reason")
