"""Questions about topics."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from services.sidecar.admin.topics import Topics


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """A cluster that makes topics when it is asked for them, as many do."""
    cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1})
    yield ",".join(f"{one.host}:{one.port}" for one in cluster.list_topics(timeout=10).brokers.values())


async def test_a_question_makes_no_topic(bootstrap: str) -> None:
    topics = Topics({"bootstrap.servers": bootstrap})
    try:
        assert await topics.one("apples") is None
        assert await topics.all() == []
    finally:
        topics.close()
