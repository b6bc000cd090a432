"""A broker or a controller that is gone leaves its own cluster, and no other one where its id is in use."""

from typing import Any

import pytest

from services.gateway.requests.clusters import unregister
from services.gateway.requests.plan import Handle, Unreachable
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from services.gateway.wire.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from services.gateway.wire.schema import Struct
from tests.unit.gateway.requests.playbook import Playbook, World

BROKER, CONTROLLER = (
    (unregister.handle_broker, UnregisterBrokerRequest, UnregisterBrokerResponse),
    (unregister.handle_controller, UnregisterControllerRequest, UnregisterControllerResponse),
)
BOTH = pytest.mark.parametrize(("handle", "request_of", "response_of"), [BROKER, CONTROLLER])
UNKNOWN: dict[type, int] = {UnregisterBrokerRequest: ErrorCode.BROKER_ID_NOT_REGISTERED}


def asking(handle: Handle, message: Struct) -> Playbook:
    return Playbook(handle, message, 0, World({"c1": [], "c2": []}, by_node_id=True).view())


@BOTH
def test_the_number_tells_the_cluster(handle: Handle, request_of: type, response_of: Any) -> None:
    book = asking(handle, request_of(2000001))
    [call] = book.asked()
    assert (call.cluster, call.message) == ("c2", request_of(1))
    done = response_of(error_message=None)
    book.answered(done)
    assert book.answer == done


@BOTH
@pytest.mark.parametrize("number", [1, 101, 3000001])
def test_what_is_no_number_of_a_real_one_reaches_nobody(
    handle: Handle, request_of: type, response_of: Any, number: int
) -> None:
    answer = asking(handle, request_of(number)).answer
    assert isinstance(answer, response_of)
    assert answer.error_code == UNKNOWN.get(request_of, ErrorCode.CONTROLLER_ID_NOT_REGISTERED)
    assert f"node {number} is not of this mesh: 101 = c1, 102 = c2" in answer.error_message
    assert "1000001 (c1/1), 2000002 (c2/2)" in answer.error_message


@BOTH
def test_a_cluster_that_does_not_answer_is_named(handle: Handle, request_of: type, response_of: Any) -> None:
    book = asking(handle, request_of(1000001))
    book.answered(Unreachable("c1", "down"))
    assert isinstance(book.answer, response_of)
    assert book.answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert book.answer.error_message.startswith("The request timed out: cluster c1")
