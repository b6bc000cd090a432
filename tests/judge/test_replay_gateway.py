"""The gateway answers as Kafka answers: recorded clients are replayed against both. `tests/soak` replays all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from judge.replay.recording import read
from judge.replay.replaying import replayed
from judge.replay.specification import Specifications
from judge.replay.verdict import Verdict
from judge.systems.client_jars import client_jars
from tests.judge.endpoints import fresh_clusters, gateway_before

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.rec"))
EACH_TIME = ("java-4.4",)
OVER_TWO = ("kafka-go",)
REPLAY_S = 300
Endpoints = tuple[str, str]


@pytest.fixture(scope="module")
def one_cluster(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """Kafka, and a gateway before another cluster."""
    with made_endpoints(1, tmp_path_factory.mktemp("one")) as found:
        yield found


@pytest.fixture(scope="module")
def two_clusters(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """Kafka, and a gateway before two other clusters."""
    with made_endpoints(2, tmp_path_factory.mktemp("two")) as found:
        yield found


@contextmanager
def made_endpoints(clusters: int, folder: Path) -> Iterator[Endpoints]:
    with (
        fresh_clusters(1 + clusters, folder) as [kafka, *behind],
        gateway_before(behind, folder / "state") as gateway,
    ):
        yield kafka, gateway


@pytest.mark.timeout(REPLAY_S)
@pytest.mark.parametrize("name", EACH_TIME)
def test_a_recorded_client_gets_the_answers_of_kafka(name: str, one_cluster: Endpoints) -> None:
    compare(name, one_cluster)


@pytest.mark.timeout(REPLAY_S)
@pytest.mark.parametrize("name", OVER_TWO)
def test_two_clusters_answer_as_one(name: str, two_clusters: Endpoints) -> None:
    compare(name, two_clusters)


def compare(name: str, endpoints: Endpoints) -> None:
    path = next(path for path in RECORDINGS if path.stem == name)
    kafka, gateway = endpoints
    verdict = Verdict()
    verdict.add(path.stem, *replayed(Specifications(client_jars()), read(path), [kafka], [gateway]))
    assert sum(verdict.compared.values()) > 100, "hardly anything was compared"
    assert not verdict.findings, verdict.text()
