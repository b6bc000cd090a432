"""The home cluster: what keeps a service from it is said, and never a secret."""

import pytest

from mesh.home_cluster import HomeAwayError, HomeCluster, OwnTopic

TOPIC = OwnTopic("mesh.traffic", 1, {})


def test_a_reference_that_leads_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME_PASSWORD", raising=False)
    home = HomeCluster(("127.0.0.1:1",), {"sasl.password": "${env:HOME_PASSWORD}"})
    with pytest.raises(HomeAwayError, match=r"sasl\.password: \$\{env:HOME_PASSWORD\} refers to"):
        home.producer_for(TOPIC, "test", {})


def test_properties_that_are_refused_are_said_without_the_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME_PASSWORD", "sesame")
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "mesh", "sasl.password": "${env:HOME_PASSWORD}"}
    tls = {"security.protocol": "sasl_ssl", "ssl.ca.location": "/there/is/none.pem"}
    home = HomeCluster(("127.0.0.1:1",), login | tls)
    with pytest.raises(HomeAwayError) as told:
        home.producer_for(TOPIC, "test", {})
    assert "ssl.ca.location" in str(told.value)
    assert "sesame" not in str(told.value) + repr(home)
