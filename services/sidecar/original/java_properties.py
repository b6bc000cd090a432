"""Properties of Kafka's Java clients as librdkafka's properties, or as our settings. The only I/O is to read stores."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.sidecar.original.stores import NotPemError, pem_path

PLACEHOLDERS = {"algo-name", "also-name", "rack-name", "rack1", "placeholder"}
"""Values that the original ships in places that the user has to fill."""
SHIPPED_STORES = {"/config/client.truststore", "/truststore/kafka.server.truststore.jks"}

SAME = frozenset(
    {
        "client.id", "client.rack", "connections.max.idle.ms", "fetch.max.bytes", "fetch.min.bytes",
        "group.instance.id",
        "isolation.level", "max.in.flight.requests.per.connection", "max.partition.fetch.bytes", "max.poll.interval.ms",
        "metadata.max.age.ms", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retries",
        "retry.backoff.ms", "sasl.kerberos.service.name", "sasl.mechanism", "security.protocol", "session.timeout.ms",
        "ssl.cipher.suites", "heartbeat.interval.ms",
    }
)  # fmt: skip
"""Properties with the same name in librdkafka."""
NOT_OURS_TO_SET = {
    "acks": ("all", "-1"),
    "enable.idempotence": ("true",),
    "enable.auto.commit": ("false",),
}
"""Properties that are fixed for every sidecar, with their fixed values."""
QUIET = frozenset(
    {
        "consumer.id", "group.id", "key.deserializer", "key.serializer", "schema.registry.cache",
        "value.deserializer", "value.serializer", "ssl.truststore.password", "ssl.truststore.type",
        "schema.registry.ssl.truststore.password", "sasl.jaas.config.module", "sasl.jaas.config.username",
        "sasl.jaas.config.password", "basic.auth.credentials.source", "transactional.id.expiration.ms",
    }
)  # fmt: skip
"""Properties that are skipped without a warning: another property covers them, or they mean nothing to a sidecar."""
SHIPPED = {
    "batch.size": "16384", "buffer.memory": "33554432", "fetch.max.bytes": "102400", "linger.ms": "1",
    "max.in.flight.requests.per.connection": "5", "max.partition.fetch.bytes": "102400", "max.poll.records": "100",
    "max.request.size": "1048576", "max.message.size": "1048576", "retries": "3",
}  # fmt: skip
"""The original's shipped tuning. If a property still has its shipped value, our own default applies."""
SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "batch.size": ("batch_bytes", int),
    "buffer.memory": ("max_queued_bytes", int),
    "compression.type": ("compression_type", str),
    "delivery.timeout.ms": ("delivery_timeout_ms", int),
    "linger.ms": ("linger_ms", int),
    "max.message.size": ("max_record_bytes", int),
    "max.poll.records": ("max_poll_records", int),
    "max.request.size": ("max_record_bytes", int),
    "transaction.timeout.ms": ("transaction_timeout_ms", int),
    "transactional.id": ("transactional_ids", lambda given: (given,)),
}
_SSL, _SASL = ("SSL", "SASL_SSL"), ("SASL_PLAINTEXT", "SASL_SSL")
_OPTION = re.compile(r'([A-Za-z][\w.]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')


@dataclass
class Translation:
    """The result of a translation: properties and settings, and the warnings about them."""

    librdkafka: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


def translate(given: Mapping[str, Any], place: str) -> Translation:
    """Translates the `properties` of one file; `place` is the name of that file in warnings."""
    properties = {name: _text(value) for name, value in given.items() if name != "additionalKafkaProperties"}
    further = given.get("additionalKafkaProperties")
    if isinstance(further, dict):  # the file's own properties win, as in the original
        properties = {**{name: _text(value) for name, value in further.items()}, **properties}
    found = Translation()
    protocol = properties.get("security.protocol", "").upper()
    without = tuple(prefix for prefix, used in (("ssl.", protocol in _SSL), ("sasl.", protocol in _SASL)) if not used)
    for name, value in properties.items():
        if value and not _is_told_elsewhere(name) and not name.startswith(without):
            _one(name, value, place, found)
    _login(properties, place, found)
    _trust(properties, place, found)
    _registry(properties, place, found)
    if (address := properties.get("bootstrap.servers")) is not None:
        found.librdkafka["bootstrap.servers"] = address
    return found


def jaas_options(line: str) -> tuple[str, dict[str, str]]:
    """The login module of a JAAS line, without its package, and its options."""
    module = line.strip().partition(" ")[0].rpartition(".")[2].rstrip(";")
    options = {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else bare for name, quoted, bare in _OPTION.findall(line)
    }
    return module, options


def _is_told_elsewhere(name: str) -> bool:
    return (
        name in QUIET
        or name.startswith(("schema.registry.", "basic.auth."))
        or name in ("bootstrap.servers", "sasl.jaas.config", "ssl.truststore.location", "auto.offset.reset")
    )


def _one(name: str, value: str, place: str, found: Translation) -> None:
    if name in NOT_OURS_TO_SET:
        if value.lower() not in NOT_OURS_TO_SET[name]:
            found.warnings.append(f"{place}: {name} {value} is not used: here it is always {NOT_OURS_TO_SET[name][0]}")
    elif value in PLACEHOLDERS:
        found.warnings.append(f"{place}: {name} {value} is a placeholder, and left out")
    elif SHIPPED.get(name) == value:
        return
    elif name in SETTINGS:
        setting, kind = SETTINGS[name]
        found.settings[setting] = kind(value)
    elif name == "ssl.endpoint.identification.algorithm":
        _identification(value, place, found)
    elif name.startswith(("ssl.keystore.", "ssl.key.")):
        _keystore(name, value, place, found)
    elif name in SAME:
        found.librdkafka[name] = value
    else:
        found.warnings.append(
            f"{place}: {name} is not known here, and left out; librdkafka's own properties go into kafka_properties"
        )


def _identification(value: str, place: str, found: Translation) -> None:
    if value.lower() in ("https", "none"):
        found.librdkafka["ssl.endpoint.identification.algorithm"] = value.lower()
    else:
        found.warnings.append(
            f"{place}: ssl.endpoint.identification.algorithm {value} is neither https nor none; left out"
        )


def _keystore(name: str, value: str, place: str, found: Translation) -> None:
    if name == "ssl.keystore.location":
        try:
            path = str(pem_path(Path(value), with_key=True))
        except NotPemError as error:
            found.refusals.append(f"{place}: {name}: {error}")
        else:
            found.librdkafka |= {"ssl.certificate.location": path, "ssl.key.location": path}
    elif name in ("ssl.key.password", "ssl.keystore.password"):
        found.librdkafka.setdefault("ssl.key.password", value)
    elif name != "ssl.keystore.type":
        found.warnings.append(f"{place}: {name} is not used; give PEM files by ssl.keystore.location")


def _login(properties: Mapping[str, str], place: str, found: Translation) -> None:
    if properties.get("security.protocol", "").upper() not in _SASL:
        return
    module, options = jaas_options(properties.get("sasl.jaas.config", ""))
    module = module or properties.get("sasl.jaas.config.module", "PlainLoginModule").rpartition(".")[2]
    match module:
        case "PlainLoginModule" | "ScramLoginModule":
            for ours, theirs in (("sasl.username", "username"), ("sasl.password", "password")):
                found.librdkafka[ours] = options.get(theirs, properties.get(f"sasl.jaas.config.{theirs}", ""))
        case "OAuthBearerLoginModule":
            found.librdkafka |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": options.get("clientId", ""),
                "sasl.oauthbearer.client.secret": options.get("clientSecret", ""),
                "sasl.oauthbearer.token.endpoint.url": properties.get("sasl.oauthbearer.token.endpoint.url", ""),
            } | ({"sasl.oauthbearer.scope": options["scope"]} if "scope" in options else {})
        case "Krb5LoginModule":
            names = {"sasl.kerberos.keytab": "keyTab", "sasl.kerberos.principal": "principal"}
            found.librdkafka |= {ours: options[theirs] for ours, theirs in names.items() if theirs in options}
        case _:
            found.refusals.append(
                f"{place}: login module {module} of sasl.jaas.config is not known; known are PlainLoginModule, "
                "ScramLoginModule, OAuthBearerLoginModule and Krb5LoginModule"
            )


def _trust(properties: Mapping[str, str], place: str, found: Translation) -> None:
    location = properties.get("ssl.truststore.location", "")
    if properties.get("security.protocol", "").upper() in _SSL:
        _authorities(location, f"{place}: ssl.truststore.location", found, found.librdkafka, "ssl.ca.location")


def _registry(properties: Mapping[str, str], place: str, found: Translation) -> None:
    url = properties.get("schema.registry.url", "")
    if not url:
        return
    found.settings["schema_registry_url"] = url
    login = properties.get("basic.auth.user.info", "")
    if login and login != SHIPPED_LOGIN and properties.get("basic.auth.credentials.source", "USER_INFO") == "USER_INFO":
        found.settings["schema_registry_user_info"] = login
    if "schema.registry.auto.register.schemas" in properties:
        found.settings["auto_register_schemas"] = properties["schema.registry.auto.register.schemas"].lower() == "true"
    if url.startswith("https://"):
        location = properties.get("schema.registry.ssl.truststore.location", "")
        name = f"{place}: schema.registry.ssl.truststore.location"
        _authorities(location, name, found, found.settings, "schema_registry_ca_location")


SHIPPED_LOGIN = "username:password"


def _authorities(location: str, name: str, found: Translation, target: dict[str, Any], property_: str) -> None:
    """Uses the authorities of a store. A missing store at a path that the original ships counts as not configured."""
    if not location:
        return
    if location in SHIPPED_STORES and not Path(location).exists():
        found.warnings.append(f"{name} {location} is not there; the authorities that this system trusts count")
        return
    try:
        target[property_] = str(pem_path(Path(location)))
    except NotPemError as error:
        found.refusals.append(f"{name}: {error}")


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case _:
            return str(value)
