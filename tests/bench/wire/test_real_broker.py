"""What shared connections give and take before a real broker, which works on one request of a connection at a time.

Beside a gateway whose clients have connections of their own, and beside the broker itself. Load, gateway and broker
have the same cores: what they take from each other is part of the figures, so only the ways' order counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mesh.routing import ForwardingRule, NamePrefix, RoutingTable, RuleVersion, UpstreamCluster
from tests.bench.figures import Sheet, Table
from tests.bench.middles import listener
from tests.bench.ways import Way, direct, gateway_of
from tests.bench.wire.programs import Programs
from tests.bench.wire.rig import Rig
from tests.bench.wire.rounds import LATENCY_COLUMNS, RATE_COLUMNS, Result, take_turns
from tests.bench.wire.test_wire import NOT_BY_THE_CLOCK
from tests.bench.wire.workloads import PARTITIONS, SMALL_AT_REAL_BROKER, W4, Workload
from tests.fixtures.clusters import KafkaCluster

SHARED_CONNECTIONS = ("0", "1", "4", "8")
NO_CORE = -1
"""Load goes where the system puts it."""
ADMIN_S = 30.0

pytestmark = pytest.mark.timeout(NOT_BY_THE_CLOCK)


@pytest.fixture(scope="module")
def real_rig(
    wire_programs: Programs, kafka_c1: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    admin = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    (topic,) = W4.topics
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(ADMIN_S)
    rule = RuleVersion(ForwardingRule("a", NamePrefix("a-"), "c1"), 0.0, 1)
    table = RoutingTable(1, [UpstreamCluster("c1", (kafka_c1.bootstrap,), 1, home=True)], [rule])
    with ExitStack() as stack:
        made: list[Way] = []
        for count in SHARED_CONNECTIONS:
            name = f"gateway, {count} shared" if count != "0" else "gateway, each its own"
            environment = {"SHARED_CONNECTIONS": count}
            made.append(stack.enter_context(gateway_of(table, tmp_path_factory.mktemp("real"), name, environment)))
        made.append(direct(kafka_c1.bootstrap))
        yield Rig(wire_programs, NO_CORE, made, [each for each in [listener(kafka_c1.bootstrap)] if each])
    admin.delete_topics([topic])[topic].result(ADMIN_S)


@pytest.fixture(scope="module")
def results(sheet: Sheet) -> Iterator[list[Result]]:
    made: list[Result] = []
    yield made
    rates = [row for each in made if not each.workload.rate for row in each.rate_rows()]
    latencies = [row for each in made for row in each.latency_rows()]
    notes = ["to relay, added: here to the gateway whose clients have connections of their own"]
    sheet.add(Table("Shared connections before a real broker: throughput", RATE_COLUMNS, rates, notes))
    sheet.add(Table("Shared connections before a real broker: latency", LATENCY_COLUMNS, latencies, notes))


@pytest.mark.parametrize("workload", SMALL_AT_REAL_BROKER, ids=lambda workload: workload.name)
def test_many_small_clients(
    real_rig: Rig, results: list[Result], workload: Workload, rounds: int, seconds: float
) -> None:
    results.append(take_turns(real_rig, real_rig.ways, workload, rounds, seconds))
