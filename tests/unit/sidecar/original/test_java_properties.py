"""Properties of Java's clients in librdkafka's words."""

from pathlib import Path
from typing import Any

import pytest

from services.sidecar.original.java_properties import Translation, jaas_options, translate

PEM = "-----BEGIN CERTIFICATE-----\n"
JKS = bytes.fromhex("feedfeed00000002")
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="mesh" password="p\\"w; =";'
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}


def translated(**given: Any) -> Translation:
    return translate({name.replace("__", "."): value for name, value in given.items()}, "kafka-producer.yml")


def test_a_line_for_jaas_is_taken_apart() -> None:
    assert jaas_options(PLAIN) == ("PlainLoginModule", {"username": "mesh", "password": 'p"w; ='})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_name_and_password(mechanism: str) -> None:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    line = f'org.apache.kafka.common.security.{module} required username="mesh" password="hunter2";'
    found = translate({**LOGIN, "sasl.mechanism": mechanism, "sasl.jaas.config": line}, "f")
    assert found.librdkafka == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "mesh",
        "sasl.password": "hunter2",
    }


def test_name_and_password_in_the_newer_form() -> None:
    login = {"sasl.jaas.config.username": "mesh", "sasl.jaas.config.password": ")(*&_p@5Sw0Rd_^%$#"}
    found = translate({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", **login}, "f")
    assert (found.librdkafka["sasl.username"], found.librdkafka["sasl.password"]) == ("mesh", ")(*&_p@5Sw0Rd_^%$#")


def test_without_sasl_there_is_no_login() -> None:
    found = translate({**LOGIN, "security.protocol": "PLAINTEXT", "sasl.mechanism": ""}, "f")
    assert found.librdkafka == {"security.protocol": "PLAINTEXT"}


def test_tokens_of_an_issuer() -> None:
    line = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="shop" clientSecret="hunter2" scope="kafka";'
    )
    url = "https://issuer.example/token"
    given = {**LOGIN, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": line}
    found = translate({**given, "sasl.oauthbearer.token.endpoint.url": url}, "f").librdkafka
    assert {name: value for name, value in found.items() if "oauthbearer" in name} == {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "shop",
        "sasl.oauthbearer.client.secret": "hunter2",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.scope": "kafka",
    }


def test_kerberos() -> None:
    line = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/k" principal="shop@EXAMPLE";'
    found = translate({**LOGIN, "sasl.mechanism": "GSSAPI", "sasl.jaas.config": line}, "f").librdkafka
    assert (found["sasl.kerberos.keytab"], found["sasl.kerberos.principal"]) == ("/k", "shop@EXAMPLE")


def test_a_login_module_of_somebodys_own_is_refused() -> None:
    (refusal,) = translate(
        {**LOGIN, "sasl.jaas.config": 'com.example.OwnLoginModule required key="hunter2";'}, "f"
    ).refusals
    assert "OwnLoginModule" in refusal
    assert "hunter2" not in refusal


@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("buffer.memory", 1_000_000, {"max_queued_bytes": 1_000_000}),
        ("max.request.size", 2_000_000, {"max_record_bytes": 2_000_000}),
        ("max.message.size", "2000000", {"max_record_bytes": 2_000_000}),
        ("linger.ms", 20, {"linger_ms": 20}),
        ("batch.size", 100_000, {"batch_bytes": 100_000}),
        ("max.poll.records", 10, {"max_poll_records": 10}),
        ("transactional.id", "T1000", {"transactional_ids": ("T1000",)}),
        ("schema.registry.url", "http://registry:8081", {"schema_registry_url": "http://registry:8081"}),
    ],
)
def test_what_is_a_setting_of_ours(name: str, value: object, setting: dict[str, object]) -> None:
    found = translate({name: value}, "f")
    assert (found.settings, found.librdkafka, found.warnings) == (setting, {}, [])


@pytest.mark.parametrize("name", ["retries", "client.rack", "session.timeout.ms", "isolation.level"])
def test_what_is_called_alike(name: str) -> None:
    assert translate({name: "9"}, "f").librdkafka == {name: "9"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("retries", 3), ("batch.size", 16384), ("fetch.max.bytes", 102400), ("max.poll.records", "100")],
)
def test_tuning_that_nobody_tuned_leaves_us_our_own(name: str, value: object) -> None:
    assert translate({name: value}, "f") == Translation()


@pytest.mark.parametrize("name", ["key.serializer", "value.deserializer", "consumer.id", "ssl.truststore.password"])
def test_what_needs_no_word(name: str) -> None:
    assert translate({name: "x"}, "f") == Translation()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ssl.endpoint.identification.algorithm", "algo-name", "is a placeholder, and left out"),
        ("client.rack", "rack-name", "is a placeholder, and left out"),
        ("ssl.endpoint.identification.algorithm", "odd", "neither https nor none"),
        ("acks", "1", "here it is always all"),
        ("enable.idempotence", False, "here it is always true"),
        ("interceptor.classes", "com.example.Spy", "is not known here, and left out"),
    ],
)
def test_what_is_left_out_is_said_by_name(name: str, value: object, said: str) -> None:
    found = translate({"security.protocol": "SSL", name: value}, "kafka-producer.yml")
    (warning,) = found.warnings
    assert warning.startswith(f"kafka-producer.yml: {name} ")
    assert said in warning
    assert found.librdkafka == {"security.protocol": "SSL"}


@pytest.mark.parametrize(("name", "value"), [("acks", "all"), ("acks", -1), ("enable.idempotence", True)])
def test_what_is_so_anyway_needs_no_word(name: str, value: object) -> None:
    assert translate({name: value}, "f") == Translation()


def test_nothing_is_said_of_an_unknown_value() -> None:
    (warning,) = translate({"some.password": "hunter2"}, "f").warnings
    assert "hunter2" not in warning


def test_more_properties_count_below_those_of_the_file() -> None:
    further = {"client.rack": "b", "receive.buffer.bytes": 1}
    found = translate({"client.rack": "a", "additionalKafkaProperties": further}, "f")
    assert found.librdkafka == {"client.rack": "a"}
    assert "receive.buffer.bytes" in found.warnings[0]


def test_a_trust_store_in_pem_is_used(tmp_path: Path) -> None:
    store = tmp_path / "ca.pem"
    store.write_text(PEM)
    found = translated(security__protocol="SSL", ssl__truststore__location=str(store))
    assert found.librdkafka == {"security.protocol": "SSL", "ssl.ca.location": str(store)}


def test_a_trust_store_of_java_is_refused_with_the_way_out(tmp_path: Path) -> None:
    store = tmp_path / "client.truststore"
    store.write_bytes(JKS)
    (refusal,) = translated(security__protocol="SSL", ssl__truststore__location=str(store)).refusals
    assert f"{store} is a Java store" in refusal
    assert f"keytool -list -rfc -keystore {store} > {tmp_path / 'client.pem'}" in refusal


def test_a_key_store_of_java_too(tmp_path: Path) -> None:
    store = tmp_path / "client.jks"
    store.write_bytes(JKS)
    (refusal,) = translated(security__protocol="SSL", ssl__keystore__location=str(store)).refusals
    assert "openssl pkcs12" in refusal


def test_a_key_store_in_pem_is_used(tmp_path: Path) -> None:
    store = tmp_path / "client.pem"
    store.write_text(PEM)
    given = {"ssl.keystore.location": str(store), "ssl.keystore.password": "x", "ssl.keystore.type": "PEM"}
    assert translate({"security.protocol": "SSL", **given}, "f").librdkafka == {
        "security.protocol": "SSL",
        "ssl.certificate.location": str(store),
        "ssl.key.location": str(store),
        "ssl.key.password": "x",
    }


def test_a_trust_store_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (refusal,) = translated(security__protocol="SSL", ssl__truststore__location=f"{tmp_path}/none").refusals
    assert "No such file" in refusal


def test_the_path_that_the_original_ships_is_one_that_nobody_chose() -> None:
    found = translated(
        security__protocol="SASL_SSL", sasl__jaas__config=PLAIN, ssl__truststore__location="/config/client.truststore"
    )
    assert not found.refusals
    assert "the authorities that this system trusts count" in found.warnings[0]


def test_without_tls_nobody_looks_at_stores() -> None:
    found = translated(security__protocol="PLAINTEXT", ssl__truststore__location="/nowhere")
    assert not found.refusals
    assert not found.warnings


def test_who_we_are_for_the_registry() -> None:
    given = {"schema.registry.url": "http://r", "basic.auth.user.info": "mesh:hunter2"}
    assert translate(given, "f").settings["schema_registry_user_info"] == "mesh:hunter2"
    shipped = {"schema.registry.url": "http://r", "basic.auth.user.info": "username:password"}
    assert "schema_registry_user_info" not in translate(shipped, "f").settings
