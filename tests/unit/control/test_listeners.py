"""The listeners that control takes, and those that it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mesh.listeners import Certificates, DecidedListener, Security
from mesh.listeners.codec import listener_to_proto
from mesh.rpc import events, listeners
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.listeners.listeners import MOST_LISTENERS, change_listeners
from services.control.presentation.listeners import changed

USUAL = ("SCRAM-SHA-512", "SCRAM-SHA-256")
OUTSIDE = DecidedListener("outside", Security.SASL_SSL, USUAL, port=9094)


def change(listener: DecidedListener) -> listeners.ListenerChange:
    return listeners.ListenerChange(name=listener.name, listener=listener_to_proto(listener))


def policy(*found: DecidedListener) -> listeners.ListenerPolicy:
    return listeners.ListenerPolicy(listeners=map(listener_to_proto, found))


def test_changes_that_are_so_already_make_no_event() -> None:
    same = DecidedListener("outside", Security.SASL_SSL, port=9094)
    assert change_listeners(policy(OUTSIDE), [change(same), listeners.ListenerChange(name="other")]) is None
    event = change_listeners(
        policy(OUTSIDE),
        [
            change(DecidedListener("plain")),
            change(DecidedListener("inside", Security.SSL, (), Certificates.REQUIRED, "RULE:^CN=(.*)$/$1/,DEFAULT")),
            listeners.ListenerChange(name="outside"),
        ],
    )
    assert event is not None
    assert list(changed(events.Event(listeners_changed=event))) == [
        "listener plain: closed",
        "listener inside: SSL, certificates required, principals by RULE:^CN=(.*)$/$1/,DEFAULT",
        "listener outside is as the settings of gateways say",
    ]


def wrong(**said: Any) -> DecidedListener:
    return replace(DecidedListener("outside", Security.SSL), **said)


@pytest.mark.parametrize(
    ("wanted", "field", "text"),
    [
        (wrong(name="Outside"), "changes[0].name", "is no id"),
        (wrong(security=None, port=1), "changes[0].listener.closed", "excludes all else"),
        (wrong(mechanisms=("PLAIN",)), "changes[0].listener.sasl_mechanisms", "nobody logs in at SSL"),
        (
            wrong(security=Security.SASL_SSL, mechanisms=("GSSAPI",)),
            "changes[0].listener.sasl_mechanisms",
            "are some of SCRAM-SHA-512, SCRAM-SHA-256, OAUTHBEARER, PLAIN, each once",
        ),
        (
            wrong(security=Security.PLAINTEXT, certificates=Certificates.REQUIRED),
            "changes[0].listener.tls_client_auth",
            "is for TLS",
        ),
        (wrong(mapping_rules="RULE:(/x/"), "changes[0].listener.principal_mapping_rules", "is no pattern"),
        (wrong(mapping_rules="D" * 2_001), "changes[0].listener.principal_mapping_rules", "longer than 2000"),
        (wrong(port=65_536), "changes[0].listener.port", "is 1 to 65535"),
        (wrong(advertised="kafka"), "changes[0].listener.advertised", "is no HOST:PORT"),
        (wrong(advertised="{zone}.kafka:9094"), "changes[0].listener.advertised", "may stand in HOST"),
        (
            wrong(security=Security.PLAINTEXT, advertised="{node}.kafka:9094"),
            "changes[0].listener.advertised",
            "which only TLS can tell apart",
        ),
    ],
)
def test_a_listener_that_no_gateway_could_open_is_refused(wanted: DecidedListener, field: str, text: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        change_listeners(policy(), [change(wanted)])
    assert refusal.value.field == field
    assert text in str(refusal.value)


def test_a_listener_without_a_security_is_refused() -> None:
    bare = listeners.ListenerChange(name="outside", listener=listeners.Listener(name="outside"))
    with pytest.raises(InvalidField, match="SASL_SSL, unless `closed` is set"):
        change_listeners(policy(), [bare])


def test_two_listeners_can_not_have_one_port() -> None:
    with pytest.raises(NotAllowed, match="which listener 'outside' has"):
        change_listeners(policy(OUTSIDE), [change(DecidedListener("zone", Security.SSL, port=9094))])


def test_there_is_a_bound() -> None:
    many = [DecidedListener(f"l{number}", Security.SSL) for number in range(MOST_LISTENERS)]
    with pytest.raises(NotAllowed, match="21 listeners"):
        change_listeners(policy(*many), [change(OUTSIDE)])
