"""What has settings is listed as clients may name it."""

import pytest
from structlog.testing import capture_logs

from services.gateway.requests.plan import Unreachable
from services.gateway.requests.topics import list_config_resources
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tests.unit.gateway.requests.playbook import Playbook, World

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples"], "c2": ["bananas"]}, by_node_id=True)


def asking(world: World, *kinds: int, version: int = 1) -> Playbook:
    return Playbook(list_config_resources.handle, ListConfigResourcesRequest(list(kinds)), version, world.view())


def listed(*resources: tuple[str, int]) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(config_resources=[ConfigResource(*resource) for resource in resources])


def shown(book: Playbook) -> list[tuple[str, int]]:
    return [(resource.resource_name, resource.resource_type) for resource in book.answer.config_resources]


def test_everything_is_listed_once_and_brokers_are_virtual(world: World) -> None:
    book = asking(world)
    assert [call.message for call in book.asked()] == [ListConfigResourcesRequest([TOPIC, METRICS, GROUP])] * 2
    book.answered(
        listed(("apples", TOPIC), ("bananas", TOPIC), ("__consumer_offsets", TOPIC), ("g", GROUP), ("m", METRICS)),
        listed(("bananas", TOPIC), ("g", GROUP), ("h", GROUP), ("m", METRICS)),
    )
    brokers = [(name, kind) for kind in (BROKER, LOGGER) for name in ("101", "102")]
    others = [("apples", TOPIC), ("g", GROUP), ("m", METRICS), ("bananas", TOPIC), ("h", GROUP)]
    assert shown(book) == brokers + others


def test_brokers_alone_are_no_question_for_clusters(world: World) -> None:
    assert shown(asking(world, BROKER)) == [("101", BROKER), ("102", BROKER)]


def test_the_first_version_lists_metrics(world: World) -> None:
    book = asking(world, version=0)
    assert [(call.cluster, call.version) for call in book.asked()] == [("c1", 0), ("c2", 0)]
    book.answered(listed(("m", METRICS)), listed(("n", METRICS)))
    assert shown(book) == [("m", METRICS), ("n", METRICS)]


def test_a_cluster_that_does_not_tell_fails_the_list_and_the_log_names_it(world: World) -> None:
    book = asking(world, GROUP)
    with capture_logs() as logs:
        book.answered(listed(("g", GROUP)), Unreachable("c2", "down"))
    assert (book.answer.error_code, shown(book)) == (ErrorCode.REQUEST_TIMED_OUT, [])
    assert "c2" in logs[0]["reason"]
