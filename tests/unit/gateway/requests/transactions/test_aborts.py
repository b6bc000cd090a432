"""Aborts: a client hears that one is done exactly if nothing of its transaction is ever read."""

import pytest

from services.gateway.requests.plan import Call
from services.gateway.requests.transactions import offsets
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import AddOffsetsToTxnRequest
from tests.unit.gateway.requests.transactions.client import FIRST, SECOND, Client
from tests.unit.gateway.requests.transactions.test_atomic_transactions import (
    BOTH,
    LAST_CALL,
    WHERE,
    begun,
    ending,
    read,
    written,
)
from tests.unit.gateway.requests.transactions.test_transactions import group_on, with_transaction_rule

CALLS = 2 * LAST_CALL // 3


@BOTH
@pytest.mark.parametrize("topics", WHERE)
@pytest.mark.parametrize("before", [True, False])
def test_an_abort_after_a_commit_without_an_answer_is_done_if_the_commit_was_not(
    protocol: int, topics: tuple[str, ...], before: bool
) -> None:
    answers = set()
    for calls in range(CALLS):
        mesh, client = begun(protocol)
        if before:
            assert client.transact(**dict.fromkeys(topics, b"before")) == 0
            mesh.world.time_ms += 10
        written(client, topics, "value")
        mesh.calls, mesh.dies_after = 0, calls
        mesh.ask(*ending(client))
        mesh.restart()
        answer = client.end(commit=False)
        mesh.restart()
        assert Client(mesh, protocol).begin() == 0
        seen = {topic: values for topic in topics if (values := read(mesh).get(topic, [])[before:])}
        assert seen == ({} if answer == 0 else {topic: ["value"] for topic in topics}), f"after {calls} calls"
        answers.add(answer)
    assert answers == {0, ErrorCode.INVALID_TXN_STATE}, "both happen"


@pytest.mark.parametrize("commit_before", [True, False])
def test_an_abort_of_nothing_is_refused_as_by_a_broker(commit_before: bool) -> None:
    _, client = begun(FIRST)
    if commit_before:
        assert client.transact(bananas=b"value") == 0
    assert client.end(commit=False) == ErrorCode.INVALID_TXN_STATE


def test_a_second_abort_is_done_as_the_first() -> None:
    _, client = begun(FIRST)
    written(client, ("apples", "bananas"), "never")
    assert client.end(commit=False) == client.end(commit=False) == 0


@pytest.mark.parametrize("before", [True, False])
def test_a_producer_whose_first_partition_the_gateway_refuses_has_something_to_abort(before: bool) -> None:
    """It had where the cluster that takes no part in it were none of its own."""
    mesh, client = begun(FIRST)
    del mesh.world.clusters["c2"].versions[ApiKey.DESCRIBE_TRANSACTIONS]
    if before:
        assert client.transact(apples=b"before") == 0
    assert client.write("bananas", b"refused") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    mesh.restart()
    assert client.end(commit=False) == 0
    assert client.transact(apples=b"after") == 0
    assert read(mesh) == {"apples": ["before"] * before + ["after"]}


def test_a_producer_that_gave_up_waiting_for_a_cluster_has_something_to_abort() -> None:
    mesh, client = begun(FIRST)
    mesh.clusters["c2"].away = True
    assert client.write("bananas", b"in vain") != 0
    mesh.restart()
    assert client.end(commit=False) == 0


def test_so_has_one_that_gave_up_waiting_for_the_cluster_of_a_group() -> None:
    mesh, client = begun(FIRST)
    mesh.clusters["c2"].away = True
    group_on("c2", mesh.world)
    answer = mesh.ask(offsets.handle_add, AddOffsetsToTxnRequest("tx", *client.identity, "pickers"), 3)
    assert ErrorCode(answer.error_code).retriable
    assert client.end(commit=False) == 0


@pytest.mark.parametrize("still_ending", [0, 1])
@pytest.mark.parametrize("to_a_group", [True, False])
def test_so_has_one_whose_id_has_moved(to_a_group: bool, still_ending: int) -> None:
    """Its old home may still end the transaction before: then the client has to ask again."""
    mesh, client = begun(FIRST)
    assert client.transact(apples=b"before") == 0
    with_transaction_rule(mesh.world, "c3")
    mesh.clusters["c1"].still_ending = still_ending
    if to_a_group:
        group_on("c2", mesh.world)
        added = AddOffsetsToTxnRequest("tx", *client.identity, "pickers")
        answers = [mesh.ask(offsets.handle_add, added, 3).error_code for _ in range(still_ending + 1)]
        expected = [ErrorCode.CONCURRENT_TRANSACTIONS] * still_ending
        assert answers == [*expected, ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    else:
        assert client.write("bananas", b"refused") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    mesh.restart()
    assert client.end(commit=False) == 0
    assert client.begin() == 0
    assert client.transact(bananas=b"after") == 0
    assert read(mesh) == {"apples": ["before"], "bananas": ["after"]}


def test_a_part_that_never_opened_does_not_pass_for_a_commit_of_it() -> None:
    """With the first protocol the transaction before was committed there under the same epoch."""
    mesh, client = begun(FIRST)
    assert client.transact(bananas=b"before") == 0
    mesh.world.time_ms += 10

    def leave(call: object) -> None:
        there = mesh.clusters["c1"].ids["tx"]
        mesh.clusters["c2"].away = there.state == "Ongoing"

    mesh.on_call = leave
    assert client.write("bananas", b"never") != 0
    mesh.on_call = None
    mesh.clusters["c2"].away = False
    assert client.end(commit=False) == 0
    assert read(mesh) == {"bananas": ["before"]}


def test_a_record_that_arrives_after_its_transaction_was_aborted_is_not_committed_with_the_next_one() -> None:
    """By the second protocol. Its gateway had told home of the part; the connection to the other cluster hung."""
    mesh, client = begun(SECOND)
    assert client.transact(bananas=b"before") == 0
    late: list[Call] = []

    def hangs(call: Call) -> None:
        if call.cluster == "c2" and call.key == ApiKey.PRODUCE:
            late.append(call)
            mesh.clusters["c2"].away = True

    mesh.on_call = hangs
    assert client.write("bananas", b"late") != 0
    mesh.on_call, mesh.clusters["c2"].away = None, False
    assert client.end(commit=False) == 0
    written(client, ("bananas",), "next")
    mesh.clusters["c2"].answer(late[0])
    assert client.end() == 0
    assert read(mesh) == {"bananas": ["before", "next"]}
