"""Which answers count as failures while a table is tried."""

import pytest

from services.gateway.requests.failures import codes_of, is_failure
from services.gateway.requests.plan import Answer, Body, Close, NoAnswer, Versioned
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import ProduceResponse
from services.gateway.wire.messages.find_coordinator import FindCoordinatorResponse
from services.gateway.wire.messages.produce import PartitionProduceResponse, TopicProduceResponse


def produced(code: ErrorCode) -> ProduceResponse:
    partitions = [PartitionProduceResponse(0), PartitionProduceResponse(1, error_code=code)]
    return ProduceResponse([TopicProduceResponse("apples", partition_responses=partitions)])


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (produced(ErrorCode.NONE), False),
        (produced(ErrorCode.NOT_LEADER_OR_FOLLOWER), False),
        (produced(ErrorCode.TOPIC_AUTHORIZATION_FAILED), True),
        (FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE), False),
        (FindCoordinatorResponse(error_code=ErrorCode.INVALID_REQUEST), True),
        (Close("a request that can't be read"), True),
        (NoAnswer(), False),
    ],
    ids=["all well", "tried again by every client", "refused", "not now", "refused on the top", "closed", "acks 0"],
)
def test_a_failure_is_what_no_client_mends_by_trying_again(answer: Answer, failure: bool) -> None:
    assert is_failure(answer) is failure


def test_the_codes_of_an_answer_are_told_each_once() -> None:
    stale, large = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE
    codes = [*[stale] * 300, large, ErrorCode.NONE]
    partitions = [PartitionProduceResponse(number, error_code=code) for number, code in enumerate(codes)]
    answer = ProduceResponse([TopicProduceResponse("apples", partition_responses=partitions)])
    assert codes_of(answer) == codes_of(Versioned(answer, 9)) == {stale, large}
    assert codes_of(Body((b"",), {ErrorCode.NONE, large})) == {large}
    assert codes_of(NoAnswer()) == ()
