"""A topic moves while a transaction is open, and the answer to one of its records was lost."""

from typing import Any

import pytest

from services.gateway.requests.plan import Ask, Call, Gather, Lane, Plan
from services.gateway.requests.records.producer_memory import SETTLED_SECONDS
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from tests.unit.gateway.requests.transactions.client import FIRST, SECOND
from tests.unit.gateway.requests.transactions.simulated import Simulation
from tests.unit.gateway.requests.transactions.test_atomic_transactions import begun, read


def loses_the_next_answer_to_produce(mesh: Simulation) -> None:
    lost: list[Call] = []

    def loses(call: Call) -> bool:
        if call.key == ApiKey.PRODUCE and not lost:
            lost.append(call)
            return True
        return False

    mesh.loses = loses


@pytest.mark.parametrize("protocol", [FIRST, SECOND])
@pytest.mark.parametrize(("topic", "cluster"), [("apples", "c2"), ("bananas", "c1"), ("bananas", "c3")])
@pytest.mark.parametrize("same_gateway", [True, False])
def test_a_record_that_may_be_in_the_transaction_already_is_not_written_to_a_second_cluster(
    protocol: int, topic: str, cluster: str, same_gateway: bool
) -> None:
    mesh, client = begun(protocol)
    assert client.transact(**{topic: b"before"}) == 0
    loses_the_next_answer_to_produce(mesh)
    mesh.on_call = lambda call: mesh.world.move(topic, cluster) if call.key == ApiKey.PRODUCE else None
    first = client.write(topic, b"value")
    assert first == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "the client sends the record again"
    mesh.on_call = None
    mesh.world.now += SETTLED_SECONDS
    if not same_gateway:
        mesh.restart()
    assert client.write(topic, b"value") == ErrorCode.TRANSACTION_ABORTABLE
    assert client.end(commit=False) == 0
    assert client.transact(**{topic: b"after"}) == 0
    assert sorted(read(mesh)[topic]) == ["after", "before"], "each of them once, on either cluster"


@pytest.mark.parametrize("protocol", [FIRST, SECOND])
def test_records_that_were_answered_stay_and_the_transaction_goes_on_at_the_new_cluster(protocol: int) -> None:
    mesh, client = begun(protocol)
    assert client.write("apples", b"one") == 0
    mesh.world.move("apples", "c2")
    assert client.write("apples", b"two") == 0
    assert client.end() == 0
    assert read(mesh) == {"apples": ["one", "two"]}


@pytest.mark.parametrize("grown", [False, True])
def test_no_call_before_its_own_lets_a_later_produce_start(monkeypatch: pytest.MonkeyPatch, grown: bool) -> None:
    """The gateway may have to make the mesh's topic for transactions first, or to give it more partitions."""
    mesh, client = begun(SECOND)
    mesh.clusters["c1"].partitions = 1 if grown else 0
    preparing: list[bool] = []
    sending: list[bool] = []

    def watched(plan: Plan) -> Any:
        result = None
        while True:
            try:
                command = plan.send(result)
            except StopIteration as stop:
                return stop.value
            if isinstance(command, Ask):
                is_sent = any(call.lane is Lane.PRODUCE for call in command.calls)
                (sending if is_sent else preparing).append(command.preliminary)
            assert not isinstance(command, Gather)
            result = yield command

    play = mesh.play
    monkeypatch.setattr(Simulation, "play", lambda self, plan: play(watched(plan)))
    assert client.write("bananas", b"value") == 0
    assert sending == [False]
    assert preparing
    assert all(preparing)
