"""A broker that is gone leaves its own cluster, and no other one of the same id."""

import pytest

from services.gateway.requests.clusters import unregister_broker
from services.gateway.requests.plan import Unreachable
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tests.unit.gateway.requests.playbook import Playbook, World


def asking(broker: int) -> Playbook:
    world = World({"c1": [], "c2": []})
    return Playbook(unregister_broker.handle, UnregisterBrokerRequest(broker), 0, world.view())


def test_the_number_tells_the_cluster() -> None:
    book = asking(2000001)
    [call] = book.asked()
    assert (call.cluster, call.message) == ("c2", UnregisterBrokerRequest(1))
    done = UnregisterBrokerResponse(error_message=None)
    book.answered(done)
    assert book.answer == done


@pytest.mark.parametrize("broker", [1, 101, 3000001])
def test_what_is_no_number_of_a_real_broker_reaches_nobody(broker: int) -> None:
    answer = asking(broker).answer
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert "1000001 (c1/1), 2000002 (c2/2)" in answer.error_message


def test_a_cluster_that_does_not_answer_is_named() -> None:
    book = asking(1000001)
    book.answered(Unreachable("c1", "down"))
    assert book.answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "cluster c1" in book.answer.error_message
