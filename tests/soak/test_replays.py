"""All recorded clients get the answers of Kafka, over one cluster and over two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.judge.test_replay_gateway import RECORDINGS, REPLAY_S, Endpoints, compare, made_endpoints


@pytest.fixture(scope="module", params=[1, 2], ids=["one cluster", "two clusters"])
def endpoints(
    request: pytest.FixtureRequest, kafka_jars: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Endpoints]:
    with made_endpoints(request.param, tmp_path_factory.mktemp("replays")) as made:
        yield made


@pytest.mark.timeout(REPLAY_S)
@pytest.mark.parametrize("name", [path.stem for path in RECORDINGS])
def test_a_recorded_client_gets_the_answers_of_kafka(name: str, endpoints: Endpoints) -> None:
    compare(name, endpoints)
