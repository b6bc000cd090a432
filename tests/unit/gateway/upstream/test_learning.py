"""A long answer about topics is learnt in steps, and younger answers that come meanwhile count."""

import asyncio
from collections.abc import Callable

import pytest

from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.plan import RawResponse, Sent, Unreachable
from services.gateway.upstream.learning import AT_ONCE_BYTES, Learning
from services.gateway.wire.frames import SIZE_BYTES, encode_response, parse_response_header
from services.gateway.wire.in_steps import STRUCTS_IN_A_STEP
from services.gateway.wire.messages import MetadataResponse
from services.gateway.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tests.fixtures.waiting import until

MANY, VERSION, KEY = 2_000, 12, 3
Outcome = RawResponse | Unreachable | Sent


def answer(*names: str, leader: int) -> RawResponse:
    topics = [
        MetadataResponseTopic(name=name, partitions=[MetadataResponsePartition(leader_id=leader)]) for name in names
    ]
    frame = memoryview(bytearray(encode_response(MetadataResponse(topics=topics), VERSION, 1)))
    header = parse_response_header(frame, SIZE_BYTES, len(frame), KEY, VERSION)
    return RawResponse(frame, header.body_offset, VERSION)


def all_topics(*, leader: int) -> RawResponse:
    long = answer(*(f"topic-{number}" for number in range(MANY)), leader=leader)
    assert len(long.frame) > AT_ONCE_BYTES
    return long


def learnt(knowledge: ClusterKnowledge) -> tuple[Callable[[RawResponse], None], list[Outcome]]:
    """Learns answers about all topics or some; the outcomes that their askers get."""
    learning, outcomes = Learning(knowledge, knowledge.learn), list[Outcome]()

    def learn(response: RawResponse) -> None:
        is_long = len(response.frame) > AT_ONCE_BYTES
        learning.before(lambda outcome, _: outcomes.append(outcome), of_all_topics=is_long)(response, False)

    return learn, outcomes


async def test_a_long_answer_is_learnt_in_steps_and_then_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    knowledge = ClusterKnowledge("c1")
    learn, outcomes = learnt(knowledge)
    learn(answer("gone", leader=1))
    slices: list[int] = []
    plain = knowledge.learn

    def counted(_: ClusterKnowledge, response: MetadataResponse) -> None:
        slices.append(len(response.topics))
        plain(response)

    monkeypatch.setattr(ClusterKnowledge, "learn", counted)
    learn(all_topics(leader=1))
    assert len(outcomes) == 1, "the asker waits until all is known"
    await until(lambda: len(outcomes) == 2)
    (_, outcome) = outcomes
    assert isinstance(outcome, RawResponse)
    assert len(outcome.decode(MetadataResponse).topics) == MANY
    assert knowledge.topics.keys() == {f"topic-{number}" for number in range(MANY)}
    assert max(slices) <= STRUCTS_IN_A_STEP


async def test_a_younger_answer_counts_while_a_long_one_is_learnt() -> None:
    """Its leader, and a topic that has come since."""
    knowledge = ClusterKnowledge("c1")
    learn, outcomes = learnt(knowledge)
    learn(all_topics(leader=1))
    await asyncio.sleep(0)
    learn(answer("topic-1999", "new", leader=2))
    assert (len(outcomes), knowledge.leader("topic-1999", 0)) == (1, 2)
    await until(lambda: len(outcomes) == 2)
    assert (knowledge.leader("topic-1999", 0), knowledge.leader("new", 0)) == (2, 2)
    assert knowledge.leader("topic-1998", 0) == 1


async def test_of_two_long_answers_the_younger_one_counts() -> None:
    knowledge = ClusterKnowledge("c1")
    learn, outcomes = learnt(knowledge)
    learn(all_topics(leader=1))
    learn(all_topics(leader=2))
    await until(lambda: len(outcomes) == 2)
    assert {knowledge.leader(name, 0) for name in knowledge.topics} == {2}


async def test_a_long_answer_that_can_not_be_read_is_handed_over_as_it_came() -> None:
    knowledge = ClusterKnowledge("c1")
    learn, outcomes = learnt(knowledge)
    long = all_topics(leader=1)
    cut = RawResponse(long.frame[: len(long.frame) // 2 + AT_ONCE_BYTES // 2], long.body_offset, VERSION)
    learn(cut)
    await until(lambda: bool(outcomes))
    assert isinstance(outcomes[0], RawResponse)
    assert not knowledge.topics
