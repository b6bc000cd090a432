"""A home cluster that wants to know who connects: the router comes in as its home_properties say, and says why not."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import ScramMechanism  # type: ignore[attr-defined]  # its own documented way

from mesh.cluster_access import cluster_access
from mesh.connection_security import ConnectionSecurity
from services.router.agents.log_topic import EventLogError, ensure_topic
from tests.fixtures.certificates import Authority
from tests.fixtures.secured_kafka import PASSWORD, SHORT_LIFE_MS, WAYS, SecuredKafka, Way
from tests.fixtures.sweeps import mostly
from tests.fixtures.waiting import wait_until
from tests.integration.router.conftest import StartRouter
from tests.integration.router.parts import WITHIN_S, DataPlane, PublishedLog, ServiceProcess

SOME_WAYS = {"mutual tls", "PLAIN", "SCRAM-SHA-512 over tls"}
RENEWED_WITHIN_S = 60.0
"""From the end of a password to the next reading: the silence has to be noticed first."""


@pytest.fixture
def home(secured: SecuredKafka) -> SecuredKafka:
    return secured


@pytest.fixture
def password(tmp_path: Path) -> Path:
    return tmp_path / "password"


def write(file: Path, password: str) -> None:
    """As operators and their tools renew a secret: a new file under the old name."""
    new = file.with_suffix(".new")
    new.write_text(f"{password}\n", encoding="ascii")
    new.rename(file)


def through(way: Way) -> dict[str, str]:
    """The router's settings."""
    return {"HOME_BOOTSTRAP_SERVERS": way.bootstrap, "HOME_PROPERTIES": json.dumps(way.properties)}


def logged(router: ServiceProcess) -> str:
    return router.log_file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", mostly(sorted(SOME_WAYS), sorted(set(WAYS) - SOME_WAYS)))
async def test_a_table_is_served_through_every_way_to_connect(
    name: str, secured: SecuredKafka, log: PublishedLog, start_router: StartRouter
) -> None:
    log.publish()
    router = start_router("r1", **through(secured.way(name)))
    async with DataPlane("g", router.address) as gateway:
        await gateway.expect("apply", 3)
        await gateway.ack(3)
        log.rule("bananas", to="c2")
        log.publish()
        await gateway.expect("apply", 4)
    assert PASSWORD not in logged(router)


def test_the_log_is_created_where_the_home_is_secured(
    log: PublishedLog, secured: SecuredKafka, start_router: StartRouter
) -> None:
    router = start_router("r1", **through(secured.way("SCRAM-SHA-512 over tls")))
    log.publish()
    wait_until(lambda: router.metric("position") == 3, "the events are folded", WITHIN_S)


@pytest.mark.soak
def test_a_reading_outlives_logins_that_the_broker_ends(
    secured: SecuredKafka, log: PublishedLog, start_router: StartRouter
) -> None:
    log.publish()
    router = start_router("r1", **through(secured.way("PLAIN over tls")))
    until = time.monotonic() + 1.2 * SHORT_LIFE_MS / 1000
    while time.monotonic() < until:
        log.rule(f"topic-{log.last.position}", to="c2")
        log.publish()
        wait_until(lambda: router.metric("position") == log.last.position, "it is folded", WITHIN_S)
    assert router.ready() == "ready"
    assert router.metric("readings_ended_total") == 0


def test_a_wrong_password_is_said_and_a_renewed_file_heals(
    secured: SecuredKafka, log: PublishedLog, start_router: StartRouter, password: Path
) -> None:
    log.publish()
    write(password, "wrong-horse")
    way = secured.way("SCRAM-SHA-256 over tls", password=f"${{file:{password}}}")
    router = start_router("r1", wait=False, **through(way))
    refusal = wait_until(lambda: router.ready() if "can't follow" in router.ready() else "", "it says why", WITHIN_S)
    assert f"{way.bootstrap}: [Error 58] SaslAuthenticationFailed: Authentication failed" in refusal
    assert "[Error 58] SaslAuthenticationFailed: Authentication failed" in logged(router)
    write(password, PASSWORD)
    wait_until(lambda: router.ready() == "ready", "the router is ready", WITHIN_S)
    assert router.metric("position") == 3
    assert "wrong-horse" not in logged(router)
    assert PASSWORD not in logged(router)


def test_a_password_that_changes_under_a_reading_counts_when_its_file_is_renewed(
    secured: SecuredKafka, log: PublishedLog, start_router: StartRouter, password: Path
) -> None:
    secured.set_password(ScramMechanism.SCRAM_SHA_256, "rotating", "first-horse")
    write(password, "first-horse")
    way = secured.way("SCRAM-SHA-256 over tls", "rotating", f"${{file:{password}}}")
    log.publish()
    router = start_router("r1", **through(way))
    secured.set_password(ScramMechanism.SCRAM_SHA_256, "rotating", "second-horse")
    wait_until(lambda: "the home cluster does not let the router in" in logged(router), "it says so", RENEWED_WITHIN_S)
    assert router.ready() == "ready"
    write(password, "second-horse")
    log.rule("bananas", to="c2")
    log.publish()
    wait_until(lambda: router.metric("position") == 4, "the decision is heard", RENEWED_WITHIN_S)
    assert "-horse" not in logged(router)


def test_what_is_missing_is_named(secured: SecuredKafka, start_router: StartRouter, tmp_path: Path) -> None:
    way = secured.way("mutual tls", password=f"${{file:{tmp_path}/not-there}}")
    router = start_router("r1", wait=False, **through(way))
    refusal = wait_until(lambda: router.ready() if "can't follow" in router.ready() else "", "it says why", WITHIN_S)
    assert f"ssl.key.password: ${{file:{tmp_path}/not-there}} can't be read: No such file" in refusal


async def test_who_is_kept_out_learns_why(secured: SecuredKafka, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    ours = stranger.sign("me")
    certificate = {"ssl.certificate.location": str(ours.certificate), "ssl.key.location": str(ours.key)}
    tls = secured.way("tls").properties
    closes = "the broker closes the connection; it may want another security.protocol, or a certificate"
    for way, reason in (
        (Way("127.0.0.1:1", {}), "Connect call failed"),
        (Way(secured.tls, {}), closes),
        (Way(secured.sasl, {}), closes),
        (Way(secured.bootstrap, tls), closes),
        (Way(secured.mutual_tls, tls), closes),
        (Way(secured.mutual_tls, tls | certificate), closes),
        (Way(secured.tls, tls | {"ssl.ca.location": str(stranger.certificate)}), "certificate verify failed"),
        (Way(secured.tls, secured.way("PLAIN over tls").properties), "IllegalSaslStateError"),
        (secured.way("PLAIN", password="wrong-horse"), "Authentication failed: Invalid username or password"),
        (secured.way("SCRAM-SHA-512", "nobody"), "invalid credentials with SASL mechanism SCRAM-SHA-512"),
    ):
        home = await cluster_access([way.bootstrap], ConnectionSecurity.of(way.properties))
        with pytest.raises(EventLogError) as fault:
            await ensure_topic(home, "mesh.events", 1)
        assert str(fault.value).startswith(f"home cluster {way.bootstrap}: ")
        assert reason in str(fault.value), way
        assert "wrong-horse" not in str(fault.value)
