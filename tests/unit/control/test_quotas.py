"""The quotas that control takes, and those that it refuses."""

from __future__ import annotations

import math

import pytest

from mesh.rpc import events, quotas
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.quotas.quotas import MOST_QUOTAS, change_quotas
from services.control.presentation.quotas import changed

PRODUCE, CONNECT = quotas.QUOTA_KEY_PRODUCER_BYTE_RATE, quotas.QUOTA_KEY_CONNECTION_CREATION_RATE
NOTHING = quotas.QuotaPolicy()


def named(name: str) -> quotas.QuotaName:
    return quotas.QuotaName(name=name)


def change(
    value: float | None = 1000.0, key: quotas.QuotaKey.ValueType = PRODUCE, **entity: quotas.QuotaName
) -> quotas.QuotaChange:
    return quotas.QuotaChange(entity=quotas.QuotaEntity(**entity), key=key, value=value)


def test_changes_that_are_so_already_make_no_event() -> None:
    policy = quotas.QuotaPolicy(
        quotas=[quotas.Quota(entity=quotas.QuotaEntity(user=named("ann")), key=PRODUCE, value=1000.0)]
    )
    assert change_quotas(policy, [change(user=named("ann")), change(None, user=named("bob"))]) is None
    event = change_quotas(policy, [change(user=named("ann")), change(7.0, user=named("bob"))])
    assert event is not None
    assert [each.entity.user.name for each in event.changes] == ["bob"]


def test_an_address_is_kept_in_the_form_that_gateways_compare() -> None:
    event = change_quotas(NOTHING, [change(5.0, CONNECT, ip=named("::ffff:10.0.0.1"))])
    assert event is not None
    assert event.changes[0].entity.ip.name == "10.0.0.1"
    assert list(changed(events.Event(quotas_changed=event))) == [
        "quota: connection_creation_rate of ip '10.0.0.1' is 5 connections/s"
    ]


@pytest.mark.parametrize(
    ("wanted", "field", "text"),
    [
        (change(), "changes[0].entity", "names nobody"),
        (change(user=named("")), "changes[0].entity.user", "is no name"),
        (change(client_id=named("a\nb")), "changes[0].entity.client_id", "is no name"),
        (change(0.0, user=named("ann")), "changes[0].value", "at least 1"),
        (change(math.nan, user=named("ann")), "changes[0].value", "at least 1"),
        (change(1e18, user=named("ann")), "changes[0].value", "at most"),
        (change(0.0, quotas.QUOTA_KEY_REQUEST_PERCENTAGE, user=named("ann")), "changes[0].value", "above 0"),
        (change(key=quotas.QUOTA_KEY_UNSPECIFIED, user=named("ann")), "changes[0].key", "no key"),
        (change(key=CONNECT, user=named("ann")), "changes[0].entity", "set for IP addresses"),
        (change(ip=named("10.0.0.1")), "changes[0].entity", "set for users and client ids"),
        (change(key=CONNECT, ip=named("*")), "changes[0].entity.ip", "no IP address"),
        (change(key=CONNECT, ip=named("10.0.0.1"), user=named("ann")), "changes[0].entity", "stands alone"),
    ],
)
def test_a_quota_that_kafka_does_not_know_is_refused(wanted: quotas.QuotaChange, field: str, text: str) -> None:
    with pytest.raises(InvalidField, match=text) as refusal:
        change_quotas(NOTHING, [wanted])
    assert refusal.value.field == field


def test_two_changes_of_one_quota_in_a_call_are_refused() -> None:
    with pytest.raises(InvalidField, match="say it once"):
        change_quotas(NOTHING, [change(user=named("ann")), change(None, user=named("ann"))])


def test_the_policy_is_bounded() -> None:
    known = [
        quotas.Quota(entity=quotas.QuotaEntity(user=named(f"u{number}")), key=PRODUCE, value=1.0)
        for number in range(MOST_QUOTAS)
    ]
    policy = quotas.QuotaPolicy(quotas=known)
    with pytest.raises(NotAllowed, match="use defaults"):
        change_quotas(policy, [change(user=named("one-more"))])
    assert change_quotas(policy, [change(user=named("one-more")), change(None, user=named("u1"))]) is not None
