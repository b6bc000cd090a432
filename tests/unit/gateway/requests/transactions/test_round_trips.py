"""The round trips that transactions cost, beside those at a broker.

The table in docs/concepts/transactions-over-clusters.md has these figures.

A producer is steady when it has written to the cluster before, through this gateway.
"""

import pytest

from services.gateway.requests.transactions import end
from services.gateway.wire.messages import EndTxnRequest
from tests.unit.gateway.requests.transactions.client import FIRST, SECOND, Client
from tests.unit.gateway.requests.transactions.simulated import Simulation
from tests.unit.gateway.requests.transactions.test_atomic_transactions import BOTH, begun, written

HOME, OTHER, SEVERAL = ("apples",), ("bananas",), ("apples", "bananas", "cherries")


def steady(protocol: int, topics: tuple[str, ...]) -> tuple[Simulation, Client]:
    mesh, client = begun(protocol)
    for _ in range(2):
        assert client.transact(**dict.fromkeys(topics, b"before")) == 0
    mesh.rounds = 0
    return mesh, client


@pytest.mark.parametrize(("topics", "first_record", "end_"), [(HOME, 0, 1), (OTHER, 1, 2), (SEVERAL, 2, 4)])
def test_a_steady_producer_pays_by_the_second_protocol(topics: tuple[str, ...], first_record: int, end_: int) -> None:
    """`first_record` for each other cluster; the records after it cost nothing."""
    mesh, client = steady(SECOND, topics)
    written(client, topics, "first")
    assert mesh.rounds - len(topics) == first_record
    mesh.rounds = 0
    written(client, topics, "second")
    assert mesh.rounds == len(topics)
    mesh.rounds = 0
    assert client.end() == 0
    assert mesh.rounds - 1 == end_


@pytest.mark.parametrize(("topics", "each_record", "end_"), [(HOME, 0, 1), (OTHER, 1, 2), (SEVERAL, 2, 4)])
def test_a_steady_producer_pays_by_the_first_protocol(topics: tuple[str, ...], each_record: int, end_: int) -> None:
    """`each_record`: its client adds the partition with each, which is a request of its own at a broker too."""
    mesh, client = steady(FIRST, topics)
    for value in ("first", "second"):
        mesh.rounds = 0
        written(client, topics, value)
        assert mesh.rounds - 2 * len(topics) == each_record
    mesh.rounds = 0
    assert client.end() == 0
    assert mesh.rounds - 1 == end_


@BOTH
@pytest.mark.parametrize(("topics", "end_"), [(HOME, 1), (OTHER, 2), (SEVERAL, 2)])
def test_an_abort_costs_no_more_than_a_commit_on_one_cluster(protocol: int, topics: tuple[str, ...], end_: int) -> None:
    mesh, client = steady(protocol, topics)
    written(client, topics, "never")
    mesh.rounds = 0
    assert client.end(commit=False) == 0
    assert mesh.rounds - 1 == end_


def test_a_gateway_that_has_not_ended_the_transaction_before_asks_once_where_its_producer_is() -> None:
    """As where a client's connections are spread over gateways: one for the records, one for the coordinator."""
    mesh, client = steady(SECOND, OTHER)
    records = mesh.world.memory
    mesh.restart()
    ends = mesh.world.memory
    for known in (True, False, False):
        mesh.world.memory, mesh.rounds = records, 0
        written(client, OTHER, "value")
        assert mesh.rounds - 1 == (1 if known else 2)
        mesh.world.memory, mesh.rounds = ends, 0
        answer = mesh.ask(end.handle, EndTxnRequest("tx", *client.identity, True), 5)
        assert answer.error_code == 0
        client.identity = client.identity._replace(epoch=answer.producer_epoch)
        client._sequences.clear()
        assert mesh.rounds - 1 == (3 if known else 2), "it asks at once where the last one had its part"
