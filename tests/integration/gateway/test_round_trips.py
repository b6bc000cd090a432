"""The round trips of a steady transaction through a real gateway.

The table in docs/concepts/transactions-over-clusters.md has these figures.

`tests/unit/gateway/requests/transactions/test_round_trips.py` counts more cases on simulated clusters.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.gateway.downstream import sweeping
from services.gateway.downstream.exchange import Exchange
from services.gateway.requests.plan import Call
from services.gateway.wire.apis import ApiKey
from tests.fixtures.clusters import KafkaCluster
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.running import Rules
from tests.integration.gateway.transacting import Open, Transacting

OF_TRANSACTIONS = frozenset(
    {
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.END_TXN,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.LIST_OFFSETS,
        ApiKey.PRODUCE,
    }
)
"""A Produce that is forwarded is not among the rounds that are counted here."""
TRANSACTIONS = 8
"""The cheapest of them counts: after a commit, a coordinator may still be writing markers, and clients ask again."""
BY_THE_FIRST_PROTOCOL = {"home": (1, 2), "other": (2, 3), "both": (3, 5)}
BY_THE_SECOND = {"home": (0, 2), "other": (1, 3), "both": (1, 5)}
"""Rounds at the start, but for those of records, and at the end, of which one belongs to the client's own EndTxn."""


@dataclass
class Rounds:
    """The rounds of calls that went out together, each by API."""

    told: list[list[str]] = field(default_factory=list)

    def of(self, work: Callable[[], object]) -> list[list[str]]:
        self.told.clear()
        work()
        return list(self.told)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    for pause in ("DECISIONS_PAUSE_S", "ABANDONED_PAUSE_S", "SHADOWS_PAUSE_S"):
        monkeypatch.setattr(sweeping, pause, 3600.0)
    found, send = Rounds(), Exchange._send

    def noted(self: Exchange, calls: tuple[Call, ...], enough: Any, **how: Any) -> tuple[bool, Any]:
        named = [ApiKey(call.key).name for call in calls if call.key in OF_TRANSACTIONS]
        if named:
            found.told.append(named)
        return send(self, calls, enough, **how)

    monkeypatch.setattr(Exchange, "_send", noted)
    return found


@pytest.mark.parametrize("where", ["home", "other", "both"])
def test_a_steady_producer_costs_what_the_table_says(
    where: str,
    rounds: Rounds,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    rules: Rules,
    create_topic: CreateTopic,
    start_gateway: StartGateway,
    open_producer: Open,
    request: pytest.FixtureRequest,
) -> None:
    name = f"rounds-{uuid.uuid4().hex[:8]}"
    apples, bananas = f"{name}-apples", f"{name}-bananas"
    for cluster_name, cluster, topic in (("c1", kafka_c1, apples), ("c2", kafka_c2, bananas)):
        create_topic(cluster, topic, 1)
        rules.to(cluster_name, [topic])
    topics = {"home": [apples], "other": [bananas], "both": [apples, bananas]}[where]
    producer = open_producer(start_gateway(rules.table).address, f"{name}-id")
    producer.init()
    for _ in range(3):
        write(producer, topics)
        producer.commit()
    started, ended = [], []
    for _ in range(TRANSACTIONS):
        started.append([each for each in rounds.of(lambda: write(producer, topics)) if each != ["PRODUCE"]])
        ended.append(rounds.of(producer.commit))
    producer.close()
    first = "librdkafka" in request.node.name
    start, end = (BY_THE_FIRST_PROTOCOL if first else BY_THE_SECOND)[where]
    assert min(map(len, started)) == start, started
    if where == "both":
        assert all(each.pop() == ["PRODUCE"] for each in ended), "the end of the decision, for which nobody waits"
    assert min(map(len, ended)) == end, ended


def write(producer: Transacting, topics: list[str]) -> None:
    producer.begin()
    for topic in topics:
        producer.send(topic, "value")
    assert producer.flush() == []
