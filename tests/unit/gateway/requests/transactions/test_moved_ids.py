"""A transactional id whose home a rule changes: its transaction ends where it began, and it goes on at its new home."""

import pytest

from services.gateway.requests.transactions import init_producer_id
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import InitProducerIdRequest
from tests.unit.gateway.requests.transactions.client import FIRST, SECOND, Client
from tests.unit.gateway.requests.transactions.simulated import Simulation
from tests.unit.gateway.requests.transactions.test_atomic_transactions import begun, ending, read, written
from tests.unit.gateway.requests.transactions.test_transactions import with_transaction_rule

BOTH = pytest.mark.parametrize("protocol", [FIRST, SECOND])


def move_id(mesh: Simulation, cluster: str) -> None:
    with_transaction_rule(mesh.world, cluster)


def goes_on(client: Client) -> None:
    """After one abort at most."""
    if client.transact(apples=b"next", bananas=b"next") != 0 and client.protocol == FIRST:
        assert client.begin() == 0
        assert client.transact(apples=b"next", bananas=b"next") == 0


@BOTH
@pytest.mark.parametrize("topics", [("apples",), ("apples", "bananas", "cherries")])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_transaction_ends_where_it_began(protocol: int, topics: tuple[str, ...], restarted: bool) -> None:
    mesh, client = begun(protocol)
    written(client, topics, "begun")
    move_id(mesh, "c3")
    if restarted:
        mesh.restart()
    assert client.end() == 0
    assert read(mesh) == {topic: ["begun"] for topic in topics}
    goes_on(client)
    assert read(mesh)["apples"][-1:] == ["next"]
    assert read(mesh)["bananas"][-1:] == ["next"]


@pytest.mark.parametrize("topics", [("apples",), ("apples", "bananas", "cherries")])
@pytest.mark.parametrize("commit", [True, False])
def test_a_producer_is_at_its_new_home_after_the_end_though_the_coordinator_there_is_just_elected(
    topics: tuple[str, ...], commit: bool
) -> None:
    mesh, client = begun()
    written(client, topics, "begun")
    move_id(mesh, "c3")
    mesh.clusters["c3"].elections = 2
    assert client.end(commit=commit) == 0
    assert client.transact(apples=b"next", bananas=b"next") == 0
    begun_with = ["begun"] if commit else []
    assert read(mesh) == {topic: begun_with * (topic in topics) + ["next"] for topic in ("apples", "bananas")} | (
        {"cherries": begun_with} if commit and "cherries" in topics else {}
    )


@BOTH
def test_what_was_decided_at_the_old_home_is_committed_for_a_producer_that_begins_at_the_new_one(protocol: int) -> None:
    both = 0
    for calls in range(20):
        mesh, client = begun(protocol)
        written(client, ("apples", "bananas"), "value")
        mesh.calls, mesh.dies_after = 0, calls
        client_was_told = _ended(client)
        mesh.restart()
        move_id(mesh, "c3")
        successor = Client(mesh, protocol)
        assert successor.begin() == 0
        seen = read(mesh)
        assert seen in ({}, {"apples": ["value"], "bananas": ["value"]}), f"after {calls} calls"
        assert seen or not client_was_told
        both |= 1 << bool(seen)
    assert both == 0b11


def _ended(client: Client) -> bool:
    return client.mesh.ask(*ending(client)) is not None


def test_records_of_a_producer_whose_id_has_moved_end_in_an_abort() -> None:
    mesh, client = begun()
    move_id(mesh, "c3")
    assert client.write("bananas", b"unknown at home") == ErrorCode.TRANSACTION_ABORTABLE
    assert client.write("cherries", b"unknown at home") == ErrorCode.TRANSACTION_ABORTABLE


def test_a_producer_that_goes_on_has_its_old_identity_checked_where_it_comes_from() -> None:
    mesh, client = begun()
    move_id(mesh, "c3")
    old = client.identity
    going_on = InitProducerIdRequest("tx", 60_000, *old)
    assert mesh.ask(init_producer_id.handle, going_on, 4).error_code == 0
    mesh.restart()
    move_id(mesh, "c2")
    answer = mesh.ask(init_producer_id.handle, going_on, 4)
    assert answer.error_code == ErrorCode.PRODUCER_FENCED, "another one has gone on under it"
