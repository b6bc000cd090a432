"""A call to a cluster that does not let the client in has the answer of a broker that allows the client nothing."""

from __future__ import annotations

from typing import Any

import pytest

from services.gateway.authorization.alone import refused_answer
from services.gateway.authorization.refusals import Refusal
from services.gateway.requests.failures import codes_of
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import Call, RawResponse
from services.gateway.requests.table import HANDLERS
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from services.gateway.wire.messages.produce import ProduceResponse
from services.gateway.wire.schema import Struct
from tests.unit.gateway.authorization.asked import response_of
from tests.unit.gateway.authorization.test_every_api import FILTERED, FREE, OF_ONESELF, TELLS, sampled

REASON = "cluster c1 has no credential for it"
NAMES_UNTIL = {ApiKey.PRODUCE: 12}
"""The gateway asks brokers by names."""

VERSIONS = [
    pytest.param(key, version, id=f"{api_name(key)}-{version}")
    for key, handler in sorted(HANDLERS.items())
    for version in range(handler.versions.low, min(handler.versions.high, NAMES_UNTIL.get(ApiKey(key), 99)) + 1)
]


def answered(message: Struct, version: int, *, raw: bool = False) -> tuple[Any, list[Refusal]]:
    told: list[Refusal] = []
    call = Call("c1", message, version, raw=raw)
    return refused_answer(call, Session(address="127.0.0.1"), REASON, told.append), told


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_each_api_is_refused_in_its_own_words(key: int, version: int) -> None:
    answer, told = answered(sampled(key, version), version)
    assert isinstance(answer, response_of(key))
    raw, _ = answered(sampled(key, version), version, raw=True)
    assert isinstance(raw, RawResponse)
    assert isinstance(raw.decode(response_of(key)), response_of(key))
    if key in FREE | FILTERED or (key, version) in OF_ONESELF:
        return
    assert set(codes_of(answer)) <= TELLS
    assert told
    assert {each.reason for each in told} == {REASON}


def test_the_sentence_of_a_refusal_says_why() -> None:
    _, told = answered(MetadataRequest(topics=[MetadataRequestTopic(name="apples")]), 9)
    what = "User:ANONYMOUS from host 127.0.0.1 may not describe topic 'apples'"
    assert str(told[0]) == f"{what}, because {REASON}"


def test_a_client_that_asks_for_all_topics_sees_none() -> None:
    answer, told = answered(MetadataRequest(topics=None), 9)
    assert isinstance(answer, MetadataResponse)
    assert not answer.topics
    assert not told


def test_a_refused_produce_has_no_offset() -> None:
    answer, _ = answered(sampled(ApiKey.PRODUCE, 9), 9)
    assert isinstance(answer, ProduceResponse)
    assert {part.base_offset for topic in answer.responses for part in topic.partition_responses} == {-1}
