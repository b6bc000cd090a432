"""Which drivers the suite runs. A test with the parameters `by_name(CLIENTS)` runs once for each name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest
from _pytest.mark import ParameterSet

from tests.clients.aiokafka.driver import AiokafkaAdmin, AiokafkaClient
from tests.clients.confluent.driver import ConfluentAdmin, ConfluentClient
from tests.clients.console.driver import ConsoleAdmin
from tests.clients.contract import Admin, Client
from tests.clients.go.driver import FranzAdmin, FranzClient, KafkaGoAdmin, KafkaGoClient, SaramaAdmin, SaramaClient
from tests.clients.java.driver import JavaAdmin, JavaClient
from tests.clients.kafka_python.driver import KafkaPythonAdmin, KafkaPythonClient
from tests.clients.kafka_python_1.driver import OldKafkaPythonClient
from tests.clients.kafkajs.driver import KafkaJsAdmin, KafkaJsClient
from tests.clients.kcat.driver import KcatClient
from tests.clients.load import Load, SteeredLoad
from tests.clients.load_python import AiokafkaLoad, KafkaPythonLoad, LibrdkafkaLoad
from tests.clients.steered import SteeredClient

CLIENTS: Mapping[str, Callable[[str], Client]] = {
    "java-4.4": lambda bootstrap: JavaClient(bootstrap, "4.4.0"),
    "java-4.3": lambda bootstrap: JavaClient(bootstrap, "4.3.1"),
    "java-3.9": lambda bootstrap: JavaClient(bootstrap, "3.9.1"),
    "java-2.8": lambda bootstrap: JavaClient(bootstrap, "2.8.2"),
    "java-1.1": lambda bootstrap: JavaClient(bootstrap, "1.1.1"),
    "java-0.10.2": lambda bootstrap: JavaClient(bootstrap, "0.10.2.2"),
    "java-0.8.2": lambda bootstrap: JavaClient(bootstrap, "0.8.2.2"),
    "confluent": ConfluentClient,
    "aiokafka": AiokafkaClient,
    "kafka-python": KafkaPythonClient,
    "kafka-python-1.4": lambda bootstrap: OldKafkaPythonClient(bootstrap, "0.10.1"),
    "kafka-python-1.4-0.8.2": lambda bootstrap: OldKafkaPythonClient(bootstrap, "0.8.2"),
    "kcat": KcatClient,
    "franz-go": FranzClient,
    "sarama": lambda bootstrap: SaramaClient(bootstrap, "4.3.1"),
    "sarama-2.8": lambda bootstrap: SaramaClient(bootstrap, "2.8.2"),
    "sarama-0.8.2": lambda bootstrap: SaramaClient(bootstrap, "0.8.2.0"),
    "kafka-go": KafkaGoClient,
    "kafkajs": KafkaJsClient,
}

BETWEEN = {"java-4.3", "java-3.9", "java-2.8", "java-1.1", "kafka-python-1.4-0.8.2", "sarama-2.8"}
"""Releases and settings between the newest and the oldest ones of their clients."""


def by_name(names: Iterable[str]) -> list[ParameterSet]:
    """Parameters of a test: one for each name. `make test` leaves out the clients that are `BETWEEN` others."""
    return [pytest.param(name, marks=pytest.mark.soak if name in BETWEEN else ()) for name in names]


ADMINS: Mapping[str, Callable[[str], Admin]] = {
    "java-4.4": lambda bootstrap: JavaAdmin(bootstrap, "4.4.0"),
    "java-4.3": lambda bootstrap: JavaAdmin(bootstrap, "4.3.1"),
    "java-3.9": lambda bootstrap: JavaAdmin(bootstrap, "3.9.1"),
    "java-2.8": lambda bootstrap: JavaAdmin(bootstrap, "2.8.2"),
    "java-1.1": lambda bootstrap: JavaAdmin(bootstrap, "1.1.1"),
    "confluent": ConfluentAdmin,
    "aiokafka": AiokafkaAdmin,
    "kafka-python": KafkaPythonAdmin,
    "console-tools": ConsoleAdmin,
    "franz-go": FranzAdmin,
    "sarama": lambda bootstrap: SaramaAdmin(bootstrap, "4.3.1"),
    "kafka-go": KafkaGoAdmin,
    "kafkajs": KafkaJsAdmin,
}

PYTHON_LOADS: Mapping[str, Callable[[str], Load]] = {
    "confluent": LibrdkafkaLoad,
    "aiokafka": AiokafkaLoad,
    "kafka-python": KafkaPythonLoad,
}


def load(name: str, bootstrap: str) -> Load:
    """The client as one that keeps running."""
    if name in PYTHON_LOADS:
        return PYTHON_LOADS[name](bootstrap)
    client = CLIENTS[name](bootstrap)
    assert isinstance(client, SteeredClient), f"{name} is not made to run under load"
    return SteeredLoad(client)


TITLES: Mapping[str, str] = {
    "java-4.4": "kafka-clients (Java) 4.4.0",
    "java-4.3": "kafka-clients 4.3.1",
    "java-3.9": "kafka-clients 3.9.1",
    "java-2.8": "kafka-clients 2.8.2",
    "java-1.1": "kafka-clients 1.1.1",
    "java-0.10.2": "kafka-clients 0.10.2.2",
    "java-0.8.2": "kafka-clients 0.8.2.2, a producer",
    "confluent": "confluent-kafka (librdkafka)",
    "aiokafka": "aiokafka",
    "kafka-python": "kafka-python",
    "kafka-python-1.4": "kafka-python 1.4.7, told Kafka 0.10.1",
    "kafka-python-1.4-0.8.2": "kafka-python 1.4.7, told Kafka 0.8.2",
    "kcat": "kcat",
    "franz-go": "franz-go",
    "sarama": "sarama, told Kafka 4.3.1",
    "sarama-2.8": "sarama, told Kafka 2.8.2",
    "sarama-0.8.2": "sarama, told Kafka 0.8.2.0",
    "kafka-go": "segmentio/kafka-go",
    "kafkajs": "KafkaJS",
    "console-tools": "Kafka's command-line tools 4.4.0",
    "streams": "Kafka Streams 4.4.0",
    "mirror-maker": "Connect and MirrorMaker 2, 4.3.1",
}
"""The clients as people call them, in the order of the README's table."""
