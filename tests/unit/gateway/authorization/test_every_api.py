"""No API passes a policy by: each is refused, hidden, or free by name, in each version that the gateway serves."""

from __future__ import annotations

from typing import Any

import pytest

from services.gateway.authorization import guarding
from services.gateway.authorization.access import Mode
from services.gateway.authorization.table import GUARDS
from services.gateway.requests.failures import codes_of
from services.gateway.requests.table import HANDLERS
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.fixtures.sweeps import ends
from tests.unit.gateway.authorization.asked import access_of, ask, request_of, response_of, sample

FREE = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.DESCRIBE_CLUSTER,
}
"""Every client may do these, as on brokers."""
FILTERED = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_DELEGATION_TOKEN}
"""Every client may ask, and sees only what it may see."""
OWN = {ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
"""Answered by the policy."""
TELLS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_SERVER_ERROR,  # to clients that know no better
}
GIVEN: dict[int, dict[str, Any]] = {ApiKey.PRODUCE: {"acks": 1}, ApiKey.FETCH: {"session_epoch": -1}}


def _versions(key: int) -> range:
    handler = HANDLERS[key]
    return range(handler.older.versions.low if handler.older else handler.versions.low, handler.versions.high + 1)


VERSIONS = ends(
    ((key, version) for key in sorted(HANDLERS) for version in _versions(key)),
    name=lambda key, version: f"{api_name(key)}-{version}",
)
OF_ONESELF = [(ApiKey.CREATE_DELEGATION_TOKEN, version) for version in range(3)]
"""Before version 3, a client asks for a token of its own."""


def sampled(key: int, version: int) -> Any:
    cls = request_of(key)
    given = {name: value for name, value in GIVEN.get(key, {}).items() if hasattr(sample(cls, version), name)}
    if key == ApiKey.FETCH and version < 7:
        given = {}
    return sample(cls, version, **given)


def test_every_api_that_the_gateway_serves_has_a_row() -> None:
    assert set(GUARDS) == set(HANDLERS)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_what_nobody_has_allowed_is_refused(key: int, version: int) -> None:
    if key == ApiKey.METADATA:
        pytest.skip("has a test of its own")
    goes_on = key in FREE | FILTERED or (key, version) in OF_ONESELF
    asked = ask(
        sampled(key, version),
        version,
        access_of([]),
        (lambda _: sample(response_of(key), version)) if goes_on else None,
    )
    assert len(asked.went_on) == goes_on
    if not goes_on:
        assert asked.refusals
        assert all(each.enforced for each in asked.refusals)
        codes = set(codes_of(asked.answer))
        assert codes
        assert codes <= TELLS


@pytest.mark.parametrize("version", _versions(ApiKey.METADATA))
def test_metadata_has_the_brokers_without_the_topics(version: int) -> None:
    given = MetadataResponse(cluster_id=None, brokers=[MetadataResponseBroker(1, "mesh", 9092)])
    asked = ask(sampled(ApiKey.METADATA, version), version, access_of([]), lambda _: given)
    assert [getattr(each, "topics", None) for each in asked.went_on] == [[]]
    assert asked.answer.brokers == given.brokers
    told = [(each.error_code, each.name, each.partitions) for each in asked.answer.topics]
    assert told == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "apples", [])]


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_a_policy_that_observes_counts_and_changes_nothing(key: int, version: int) -> None:
    if key in OWN:
        pytest.skip("answered by the policy")
    message = sampled(key, version)
    given = sample(response_of(key), version)
    asked = ask(message, version, access_of([], Mode.OBSERVE), lambda _: given)
    assert asked.went_on == [message]
    assert asked.answer == sample(response_of(key), version)
    assert bool(asked.refusals) == (key not in FREE | FILTERED and (key, version) not in OF_ONESELF)
    assert not any(each.enforced for each in asked.refusals)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_a_super_user_may_do_everything(key: int, version: int) -> None:
    if key in OWN:
        pytest.skip("answered by the policy")
    message = sampled(key, version)
    asked = ask(message, version, access_of([], super_users=["User:bob"]), lambda _: sample(response_of(key), version))
    assert asked.went_on == [message]
    assert not asked.refusals


def test_an_api_without_a_row_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "GUARDS", {})
    asked = ask(sampled(ApiKey.HEARTBEAT, 4), 4, access_of([]))
    assert asked.answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert asked.refused == {("CLUSTER_ACTION", "CLUSTER", "kafka-cluster")}
