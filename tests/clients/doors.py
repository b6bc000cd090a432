"""The doors of a gateway, by which clients come in, and each client library at each of them.

A library writes values to topics and reads them again. A function hides how a library is set up, never what it answers:
a client that is not let in becomes a `ClientError`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AioError
from aiokafka.helpers import create_ssl_context
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonError
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

from tests.clients.console.driver import ConsoleTools, Tool
from tests.clients.contract import ClientError
from tests.clients.go.driver import login_command
from tests.fixtures.certificates import Signed

ANSWER_S = 60.0
REFUSED_S = 5.0
"""A client without a connection does not hear whether it may try again, so it does until then."""
TOKEN_LIFE_S = 300.0
NO_GROUP = "none"
"""librdkafka asks for a coordinator, also where it reads without a group."""
MODULE = "org.apache.kafka.common.security"


class Kind(StrEnum):
    """How a client proves who it is."""

    TLS = "TLS"
    MUTUAL_TLS = "mutual TLS"
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"

    @property
    def logs_in(self) -> bool:
        """By SASL; the name is that of the mechanism."""
        return self not in (Kind.TLS, Kind.MUTUAL_TLS)


@dataclass(frozen=True, slots=True)
class Door:
    """A bootstrap address, and what one client shows there."""

    kind: Kind
    bootstrap: str
    authority: Path
    """The client trusts who has a certificate of this authority."""
    user: str = ""
    secret: str = ""
    """A password or a token."""
    certificate: Signed | None = None
    local: str = ""
    """The client's own address; the clients of Go can choose one."""
    patience_s: float = ANSWER_S
    """librdkafka, kafka-python and Java try again until then."""

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.kind.logs_in else "SSL"


Pass = Callable[[Door, Sequence[str], Sequence[str]], list[str]]
"""Writes the values to each of the topics, which have one partition. Returns all values in the topics. ClientError."""


REFUSED = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""librdkafka goes on after these errors, and would hear them again."""


def by_librdkafka(door: Door, topics: Sequence[str], values: Sequence[str]) -> list[str]:
    heard: list[KafkaError] = []
    config = of_librdkafka(door) | {"error_cb": heard.append}
    producer = Producer(config | {"enable.idempotence": True, "message.timeout.ms": int(door.patience_s * 1000)})
    failures: list[KafkaError] = []
    for topic in topics:
        for value in values:
            producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    while producer.flush(0.1):  # each record ends by its time-out
        if any(each.code() in REFUSED for each in heard):
            producer.purge()
    if failures:
        raise ClientError(f"{failures[0]}; heard: {[each.str() for each in heard]}")
    consumer = Consumer(config | {"group.id": NO_GROUP, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in topics])
    found: list[str] = []
    ends = 0
    deadline = time.monotonic() + ANSWER_S
    while ends < len(topics):
        message = consumer.poll(0.2)
        if time.monotonic() > deadline:
            raise ClientError(f"no end of {topics} after {ANSWER_S:g} s; heard: {[each.str() for each in heard]}")
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append((message.value() or b"").decode())
        elif error.code() == KafkaError._PARTITION_EOF:
            ends += 1
        else:
            raise ClientError(error.str())
    consumer.close()
    return found


def of_librdkafka(door: Door) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": door.bootstrap,
        "security.protocol": door.protocol,
        "ssl.ca.location": str(door.authority),
    }
    if door.certificate is not None:
        config["ssl.certificate.location"] = str(door.certificate.certificate)
        config["ssl.key.location"] = str(door.certificate.key)
    if door.kind.logs_in:
        config["sasl.mechanism"] = door.kind.value
    if door.kind is Kind.OAUTHBEARER:
        return config | {"oauth_cb": lambda _: (door.secret, time.time() + TOKEN_LIFE_S)}
    return config | ({"sasl.username": door.user, "sasl.password": door.secret} if door.kind.logs_in else {})


def by_aiokafka(door: Door, topics: Sequence[str], values: Sequence[str]) -> list[str]:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
        async def token(self) -> str:
            return door.secret

    async def passes() -> list[str]:
        certificate = door.certificate
        context = create_ssl_context(
            cafile=str(door.authority),
            certfile=str(certificate.certificate) if certificate else None,
            keyfile=str(certificate.key) if certificate else None,
        )
        config = _of_python(door) | {"ssl_context": context}
        if door.kind is Kind.OAUTHBEARER:
            config["sasl_oauth_token_provider"] = Provider()
        async with asyncio.timeout(ANSWER_S), AIOKafkaProducer(**config, enable_idempotence=True) as producer:
            for topic in topics:
                for value in values:
                    await producer.send_and_wait(topic, value.encode())
        found: list[str] = []
        async with (
            asyncio.timeout(ANSWER_S),
            AIOKafkaConsumer(*topics, **config, auto_offset_reset="earliest") as consumer,
        ):
            while len(found) < len(topics) * len(values):
                found.append((await consumer.getone()).value.decode())
        return found

    try:
        return asyncio.run(passes())
    except (AioError, OSError) as error:
        raise ClientError(f"{type(error).__name__}: {error}") from error


def _of_python(door: Door) -> dict[str, Any]:
    """For aiokafka and kafka-python."""
    config = {"bootstrap_servers": door.bootstrap, "security_protocol": door.protocol}
    if door.kind.logs_in:
        config["sasl_mechanism"] = door.kind.value
    if door.kind.logs_in and door.kind is not Kind.OAUTHBEARER:
        config |= {"sasl_plain_username": door.user, "sasl_plain_password": door.secret}
    return config


def by_kafka_python(door: Door, topics: Sequence[str], values: Sequence[str]) -> list[str]:
    class Provider(PythonTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        def token(self) -> str:
            return door.secret

        def extensions(self) -> dict[str, str]:
            return {}

    config = _of_python(door) | {"ssl_cafile": str(door.authority), "bootstrap_timeout_ms": int(door.patience_s * 1000)}
    if door.certificate is not None:
        config |= {"ssl_certfile": str(door.certificate.certificate), "ssl_keyfile": str(door.certificate.key)}
    if door.kind is Kind.OAUTHBEARER:
        config["sasl_oauth_token_provider"] = Provider()
    try:
        producer = KafkaProducer(**config, enable_idempotence=True)
        for sent in [producer.send(topic, value.encode()) for topic in topics for value in values]:
            sent.get(ANSWER_S)
        producer.close()
        consumer = KafkaConsumer(
            *topics, **config, auto_offset_reset="earliest", consumer_timeout_ms=int(ANSWER_S * 1000)
        )
        found: list[str] = []
        for record in consumer:
            found.append(record.value.decode())
            if len(found) == len(topics) * len(values):
                break
        consumer.close()
    except PythonError as error:
        raise ClientError(f"{type(error).__name__}: {error}") from error
    return found


def by_go(library: str, door: Door, topics: Sequence[str], values: Sequence[str]) -> list[str]:
    mechanism = door.kind.value if door.kind.logs_in else ""
    command = login_command(library, door.bootstrap, door.authority, mechanism, topics, values)
    secrets = {"NAME": door.user, "SECRET": door.secret, "LOCAL": door.local}
    if door.certificate is not None:
        secrets |= {"CERTIFICATE": str(door.certificate.certificate), "KEY": str(door.certificate.key)}
    environment = os.environ | secrets
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * ANSWER_S, check=False)
    if done.returncode:
        raise ClientError(done.stderr)
    return done.stdout.splitlines()


def by_java(door: Door, topics: Sequence[str], values: Sequence[str]) -> list[str]:
    """Kafka's console tools, in a JVM that stays."""

    async def passes(tools: ConsoleTools, config: Path) -> list[str]:
        found: list[str] = []
        for topic in topics:
            await tools.run(
                Tool.CONSOLE_PRODUCER, "--topic", topic, "--command-config", str(config), "--command-property",
                f"max.block.ms={door.patience_s * 1000:.0f}", stdin="".join(f"{value}\n" for value in values),
            )  # fmt: skip
            read = await tools.run(
                Tool.CONSOLE_CONSUMER, "--topic", topic, "--partition", "0", "--offset", "earliest",
                "--max-messages", str(len(values)), "--timeout-ms", f"{ANSWER_S * 1000:.0f}",
                "--command-config", str(config),
            )  # fmt: skip
            found += read.splitlines()
        return found

    with of_java(door) as (tools, config):
        return asyncio.run(passes(tools, config))


@contextmanager
def of_java(door: Door) -> Iterator[tuple[ConsoleTools, Path]]:
    """Kafka's tools, and the file with their properties."""
    with TemporaryDirectory() as folder:
        config, token = Path(folder) / "client.properties", TOKENS / "token"
        said: dict[str, object] = {
            "security.protocol": door.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": door.authority,
        }
        if door.certificate is not None:
            keystore = Path(folder) / "keystore.pem"
            parts = (door.certificate.key, door.certificate.certificate)
            keystore.write_bytes(b"".join(each.read_bytes() for each in parts))
            said |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": keystore}
        module = {Kind.PLAIN: "plain.Plain", Kind.OAUTHBEARER: "oauthbearer.OAuthBearer"}.get(door.kind, "scram.Scram")
        if door.kind.logs_in:
            said["sasl.mechanism"] = door.kind.value
            login = "" if door.kind is Kind.OAUTHBEARER else f' username="{door.user}" password="{door.secret}"'
            said["sasl.jaas.config"] = f"{MODULE}.{module}LoginModule required{login};"
        if door.kind is Kind.OAUTHBEARER:
            token.write_text(door.secret, encoding="ascii")
            said["sasl.login.callback.handler.class"] = f"{MODULE}.oauthbearer.OAuthBearerLoginCallbackHandler"
            said["sasl.oauthbearer.token.endpoint.url"] = token.as_uri()
        config.write_text("".join(f"{name}={value}\n" for name, value in said.items()), encoding="ascii")
        yield ConsoleTools(door.bootstrap, MAY_READ), config


_FOLDER = TemporaryDirectory(prefix="tokens-")
TOKENS = Path(_FOLDER.name)
"""Kafka's clients read a token from no file that a property of their JVM does not name, and the JVM stays."""
MAY_READ = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(TOKENS / 'token').as_uri()}"

LIBRARIES: Mapping[str, Pass] = {
    "Java": by_java,
    "librdkafka": by_librdkafka,
    "aiokafka": by_aiokafka,
    "kafka-python": by_kafka_python,
    "franz-go": partial(by_go, "franz-go"),
    "sarama": partial(by_go, "sarama"),
}


def with_wrong_proof(door: Door, stranger: Signed, strangers: Path) -> Door:
    """The same door for a client that can't come in: each secret is wrong. `strangers`: another authority."""
    match door.kind:
        case Kind.TLS:
            return replace(door, authority=strangers, patience_s=REFUSED_S)
        case Kind.MUTUAL_TLS:
            return replace(door, certificate=stranger, patience_s=REFUSED_S)
        case Kind.OAUTHBEARER:
            header, claims, signature = door.secret.split(".")
            forged = ("B" if signature[0] == "A" else "A") + signature[1:]
            return replace(door, secret=f"{header}.{claims}.{forged}")
        case _:
            return replace(door, secret=f"not {door.secret}")
