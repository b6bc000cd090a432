"""The listeners that a gateway should have by its settings and by control, and the fate of connections."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.listeners import Certificates, DecidedListener, Policy, Security, name_rules
from services.gateway.listeners import Listener
from services.gateway.requests.nodes import Advertised, NodePorts
from services.gateway.wanted_listeners import Fate, Means, Wanted, fate, wanted

SCRAM, PLAIN = "SCRAM-SHA-512", "PLAIN"
INSIDE = Listener(
    "10.0.0.1", 9092, Security.PLAINTEXT, Advertised("inside", 9092, NodePorts(9100, 9109)), name="inside"
)
ALL = Means(has_certificate=True, has_client_ca=True, has_users=True, has_issuers=True, allow_insecure=True)
LOGIN = Listener("h", 1, Security.SASL_SSL, Advertised("h", 1), (SCRAM, PLAIN), name="login")
OPEN = Listener("h", 1, Security.PLAINTEXT, Advertised("h", 1), name="open")
SHOWN = Listener("h", 1, Security.SSL, Advertised("h", 1), (), Certificates.REQUESTED, "shown")


def by(*decided: DecidedListener, means: Means = ALL) -> Wanted:
    return wanted([INSIDE], Policy(decided, 7), means)


def test_without_decisions_settings_count() -> None:
    assert by() == Wanted({"inside": INSIDE}, {}, {}, frozenset())


def test_a_decision_changes_the_policy_and_leaves_the_addresses() -> None:
    found = by(DecidedListener("inside", Security.SASL_PLAINTEXT, (SCRAM,), mapping_rules="DEFAULT", port=1))
    secured = replace(INSIDE, security=Security.SASL_PLAINTEXT, mechanisms=(SCRAM,), rules=name_rules("DEFAULT"))
    assert found.listeners == {"inside": secured}


def test_a_closed_listener_is_not_wanted() -> None:
    assert by(DecidedListener("inside")).listeners == {}
    assert by(DecidedListener("inside")).decided == {"inside"}


@pytest.mark.parametrize(
    ("advertised", "told"),
    [
        ("", Advertised("inside", 9094)),
        ("{host}:19094", Advertised("inside", 19094)),
        ("{node}.{host}:9094", Advertised("{node}.inside", 9094)),
        ("kafka.example.com:9094", Advertised("kafka.example.com", 9094)),
    ],
)
def test_a_new_listener_is_beside_the_first_one(advertised: str, told: Advertised) -> None:
    found = by(DecidedListener("new", Security.SSL, port=9094, advertised=advertised))
    assert found.listeners["new"] == Listener("10.0.0.1", 9094, Security.SSL, told, name="new")
    assert found.listeners["inside"] == INSIDE


def test_without_a_port_only_gateways_with_the_listener_have_it() -> None:
    assert by(DecidedListener("zone-b", Security.SSL)).listeners == {"inside": INSIDE}


@pytest.mark.parametrize(
    ("decided", "means", "reason"),
    [
        (DecidedListener("new", Security.SSL, port=1), replace(ALL, has_certificate=False), "set tls_certificate"),
        (DecidedListener("new", Security.SASL_SSL, (SCRAM,), port=1), replace(ALL, has_users=False), "need users"),
        (
            DecidedListener("new", Security.SASL_SSL, ("OAUTHBEARER",), port=1),
            replace(ALL, has_issuers=False),
            "issuers",
        ),
        (
            DecidedListener("new", Security.SSL, (), Certificates.REQUIRED, port=1),
            replace(ALL, has_client_ca=False),
            "asks for certificates",
        ),
        (
            DecidedListener("new", Security.SASL_PLAINTEXT, (PLAIN,), port=1),
            replace(ALL, allow_insecure=False),
            "everyone on the way could read",
        ),
        (
            DecidedListener("new", Security.PLAINTEXT, port=1),
            replace(ALL, allow_insecure=False),
            "everyone who reaches",
        ),
        (DecidedListener("new", Security.SSL, port=9105), ALL, "port 9105 belongs to listener inside"),
        (DecidedListener("inside", Security.SSL, advertised="{node}.x:1"), ALL, "one of them is enough"),
        (DecidedListener("new", Security.SSL, port=1, mapping_rules="NO"), ALL, "expected DEFAULT"),
    ],
)
def test_what_a_gateway_can_not_have_is_not_open_at_all(decided: DecidedListener, means: Means, reason: str) -> None:
    found = by(decided, means=means)
    assert decided.name not in found.listeners
    assert reason in found.faults[decided.name]
    assert found.faulty[decided.name].security is decided.security


@pytest.mark.parametrize(
    ("before", "after", "proof", "becomes"),
    [
        (LOGIN, None, SCRAM, Fate.DRAIN),
        (LOGIN, None, "", Fate.CLOSE),
        (LOGIN, replace(LOGIN, mechanisms=(SCRAM,)), SCRAM, Fate.STAY),
        (LOGIN, replace(LOGIN, mechanisms=(SCRAM,)), PLAIN, Fate.CLOSE),
        (LOGIN, replace(LOGIN, mechanisms=(SCRAM,)), "", Fate.CLOSE),
        (LOGIN, replace(LOGIN, advertised=Advertised("other", 1)), SCRAM, Fate.STAY),
        (LOGIN, replace(LOGIN, port=2), SCRAM, Fate.DRAIN),
        (LOGIN, replace(LOGIN, certificates=Certificates.REQUIRED), SCRAM, Fate.CLOSE),
        (LOGIN, replace(LOGIN, rules=name_rules("RULE:^CN=(.*)$/$1/")), SCRAM, Fate.STAY),
        (LOGIN, replace(LOGIN, security=Security.SASL_PLAINTEXT), SCRAM, Fate.DRAIN),
        (OPEN, replace(OPEN, security=Security.SSL), "", Fate.CLOSE),
        (OPEN, replace(OPEN, security=Security.SASL_PLAINTEXT, mechanisms=(SCRAM,)), "", Fate.CLOSE),
        (SHOWN, replace(SHOWN, certificates=Certificates.REQUIRED), "certificate", Fate.STAY),
        (SHOWN, replace(SHOWN, certificates=Certificates.REQUIRED), "", Fate.CLOSE),
        (SHOWN, replace(SHOWN, certificates=Certificates.NONE), "certificate", Fate.DRAIN),
        (SHOWN, replace(SHOWN, rules=name_rules("RULE:^CN=(.*)$/$1/")), "certificate", Fate.DRAIN),
        (SHOWN, replace(SHOWN, rules=name_rules("RULE:^CN=(.*)$/$1/")), "", Fate.STAY),
        (SHOWN, replace(SHOWN, security=Security.SASL_SSL, mechanisms=(SCRAM,)), "certificate", Fate.CLOSE),
    ],
)
def test_the_fate_of_a_connection(before: Listener, after: Listener | None, proof: str, becomes: Fate) -> None:
    assert fate(before, after, proof) is becomes
