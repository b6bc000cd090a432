"""Settings are changed where they are read: a topic's on its owner, a broker's on its own cluster and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from services.gateway.requests.knowledge import BrokerAddress
from services.gateway.requests.plan import AnyBroker, Broker, Handle, Unreachable
from services.gateway.requests.topics import alter_configs, describe_configs
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import alter_configs as whole
from services.gateway.wire.messages import incremental_alter_configs as incremental
from services.gateway.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.unit.gateway.requests.lookups import EMPTY, MEMBERS, look_up
from tests.unit.gateway.requests.playbook import Playbook, World

TOPIC, BROKER, LOGGER, METRICS, GROUP, UNKNOWN = 2, 4, 8, 16, 32, 64
Resource = tuple[int, str]


class Api:
    """One of the two APIs, in the words of the tests."""

    def __init__(self, module: Any, request: type[Any], response: type[Any], handle: Handle, version: int) -> None:
        self._module, self._request, self._response = module, request, response
        self._handle, self._version = handle, version

    def change(self, *resources: Resource) -> Any:
        setting = self._module.AlterableConfig(name="retention.ms", value="1000")
        wanted = [
            self._module.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[setting])
            for kind, name in resources
        ]
        return self._request(resources=wanted, validate_only=True)

    def changed(self, *resources: Resource, error: int = ErrorCode.NONE) -> Any:
        responses = [self._module.AlterConfigsResourceResponse(error, None, kind, name) for kind, name in resources]
        return self._response(responses=responses)

    def book(self, world: World, *resources: Resource) -> Playbook:
        return Playbook(self._handle, self.change(*resources), self._version, world.view())


def whole_api(version: int) -> Api:
    return Api(whole, whole.AlterConfigsRequest, whole.AlterConfigsResponse, alter_configs.handle, version)


def incremental_api(version: int) -> Api:
    request, response = incremental.IncrementalAlterConfigsRequest, incremental.IncrementalAlterConfigsResponse
    return Api(incremental, request, response, alter_configs.handle_incremental, version)


APIS: list[tuple[Callable[[int], Api], int]] = [
    *((whole_api, version) for version in (0, 1, 2)),
    *((incremental_api, version) for version in (0, 1)),
]


@pytest.fixture(params=APIS, ids=lambda each: f"{each[0].__name__}-v{each[1]}")
def api(request: pytest.FixtureRequest) -> Api:
    make, version = request.param
    found: Api = make(version)
    return found


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples", "apricots"], "c2": ["bananas"]}, by_node_id=True)


def errors_of(answer: Any) -> list[tuple[Resource, int]]:
    return [((r.resource_type, r.resource_name), r.error_code) for r in answer.responses]


def test_topics_are_changed_on_their_owners_one_call_for_each_cluster(api: Api, world: World) -> None:
    resources = [(TOPIC, "apples"), (TOPIC, "bananas"), (TOPIC, "apricots")]
    book = api.book(world, *resources)
    on_c1, on_c2 = book.asked()
    assert [(on_c1.cluster, on_c1.target), (on_c2.cluster, on_c2.target)] == [("c1", AnyBroker()), ("c2", AnyBroker())]
    assert on_c1.message == api.change((TOPIC, "apples"), (TOPIC, "apricots"))
    assert on_c2.message == api.change((TOPIC, "bananas"))
    book.answered(
        api.changed((TOPIC, "apricots"), (TOPIC, "apples")),
        api.changed((TOPIC, "bananas"), error=ErrorCode.INVALID_CONFIG),
    )
    codes = [ErrorCode.NONE, ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert errors_of(book.answer) == list(zip(resources, codes, strict=True))


@pytest.mark.parametrize("kind", [BROKER, LOGGER])
def test_a_virtual_broker_is_a_real_one_of_its_own_cluster(api: Api, world: World, kind: int) -> None:
    book = api.book(world, (kind, "102"))
    [call] = book.asked()
    assert (call.cluster, call.target) == ("c2", Broker(2))
    assert call.message == api.change((kind, "2"))
    book.answered(api.changed((kind, "2")))
    assert errors_of(book.answer) == [((kind, "102"), ErrorCode.NONE)]


def test_a_virtual_broker_is_all_brokers_of_its_cluster_and_no_other(api: Api, world: World) -> None:
    world.clusters["c2"].brokers[7] = BrokerAddress(7, "c2", 9093, None)
    book = api.book(world, (BROKER, "102"))
    assert [(call.cluster, call.target, call.message) for call in book.asked()] == [
        ("c2", Broker(2), api.change((BROKER, "2"))),
        ("c2", Broker(7), api.change((BROKER, "7"))),
    ]
    book.answered(api.changed((BROKER, "2")), api.changed((BROKER, "7"), error=ErrorCode.INVALID_CONFIG))
    [result] = book.answer.responses
    assert (result.resource_name, result.error_code) == ("102", ErrorCode.INVALID_CONFIG)
    assert result.error_message == "Configuration is invalid (on c2/7); done on c2/2"


@pytest.mark.parametrize("name", ["2000007", "c2/7"])
def test_a_real_broker_has_a_number_of_its_own(api: Api, world: World, name: str) -> None:
    world.clusters["c2"].brokers[7] = BrokerAddress(7, "c2", 9093, None)
    book = api.book(world, (BROKER, name))
    [call] = book.asked()
    assert (call.cluster, call.target, call.message) == ("c2", Broker(7), api.change((BROKER, "7")))
    book.answered(api.changed((BROKER, "7")))
    assert errors_of(book.answer) == [((BROKER, name), ErrorCode.NONE)]


def test_the_single_node_of_several_clusters_is_changed_nowhere(api: Api) -> None:
    [result] = api.book(World({"c1": [], "c2": []}), (BROKER, "101")).answer.responses
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "name a real broker (1000001 (c1/1), 2000002 (c2/2))" in str(result.error_message)


def test_subscriptions_to_metrics_are_the_same_on_all_clusters(api: Api, world: World) -> None:
    book = api.book(world, (METRICS, "m"))
    assert [(call.cluster, call.target) for call in book.asked()] == [("c1", AnyBroker()), ("c2", AnyBroker())]
    book.answered(api.changed((METRICS, "m")), Unreachable("c2", "down"))
    [result] = book.answer.responses
    assert result.error_message == "The request timed out: cluster c2 can't be reached: down (on c2); done on c1"


@pytest.mark.parametrize("name", ["1", "99", "103", "c1", "c1/2", "c3/1", "c1/", "1000002", "3000001"])
def test_a_broker_that_the_mesh_does_not_show_is_changed_nowhere(api: Api, world: World, name: str) -> None:
    [result] = api.book(world, (BROKER, name)).answer.responses
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert f"node {name} is not of this mesh: 101 = c1, 102 = c2" in str(result.error_message)


def test_the_defaults_of_all_brokers_are_refused_where_there_are_several_clusters(api: Api, world: World) -> None:
    [result] = api.book(world, (BROKER, "")).answer.responses
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "the mesh has several (c1, c2)" in str(result.error_message)


def test_the_defaults_of_the_only_clusters_brokers_are_changed(api: Api) -> None:
    book = api.book(World({"c1": ["apples"]}, by_node_id=True), (BROKER, ""))
    [call] = book.asked()
    assert (call.cluster, call.message) == ("c1", api.change((BROKER, "")))
    book.answered(api.changed((BROKER, "")))
    assert errors_of(book.answer) == [((BROKER, ""), ErrorCode.NONE)]


def changing_a_group(api: Api, world: World, **found: Any) -> Playbook:
    book = api.book(world, (GROUP, "g"))
    look_up(book, **found)
    return book


@pytest.mark.parametrize("found", [{}, {"c1": EMPTY}])
def test_a_group_without_members_is_changed_wherever_its_next_member_may_find_it(
    api: Api, world: World, found: dict[str, Any]
) -> None:
    book = changing_a_group(api, world, **found)
    assert [(call.cluster, call.target) for call in book.asked()] == [("c1", AnyBroker()), ("c2", AnyBroker())]
    book.answered(api.changed((GROUP, "g")), Unreachable("c2", "down"))
    [result] = book.answer.responses
    assert (result.error_code, "done on c1" in result.error_message) == (ErrorCode.REQUEST_TIMED_OUT, True)


def test_a_cluster_that_is_too_old_for_a_groups_setting_is_no_hindrance(api: Api, world: World) -> None:
    refused = api.changed((GROUP, "g"), error=ErrorCode.INVALID_CONFIG)
    book = changing_a_group(api, world)
    book.answered(api.changed((GROUP, "g")), refused)
    assert errors_of(book.answer) == [((GROUP, "g"), ErrorCode.NONE)]
    book = changing_a_group(api, world)
    book.answered(refused, refused)
    assert errors_of(book.answer) == [((GROUP, "g"), ErrorCode.INVALID_CONFIG)]


def test_the_home_of_a_groups_members_decides_whether_it_is_changed(api: Api, world: World) -> None:
    book = changing_a_group(api, world, c2=MEMBERS)
    assert [call.cluster for call in book.asked()] == ["c2", "c1"]
    book.answered(api.changed((GROUP, "g")), Unreachable("c1", "down"))
    assert errors_of(book.answer) == [((GROUP, "g"), ErrorCode.NONE)]
    book = changing_a_group(api, World({"c1": ["apples"], "c2": ["bananas"]}), c2=MEMBERS)
    book.answered(api.changed((GROUP, "g"), error=ErrorCode.INVALID_CONFIG), api.changed((GROUP, "g")))
    assert errors_of(book.answer) == [((GROUP, "g"), ErrorCode.INVALID_CONFIG)]


def test_what_has_no_place_is_refused_and_the_rest_is_changed(api: Api, world: World) -> None:
    book = api.book(world, (TOPIC, "cherries"), (TOPIC, "apples"), (UNKNOWN, "m"))
    book.answered(api.changed((TOPIC, "apples")))
    assert [code for _, code in errors_of(book.answer)] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]


def test_a_cluster_that_is_gone_fails_its_resources_only(api: Api, world: World) -> None:
    book = api.book(world, (TOPIC, "apples"), (TOPIC, "bananas"))
    book.answered(Unreachable("c1", "connection refused"), api.changed((TOPIC, "bananas")))
    first, second = book.answer.responses
    assert (first.error_code, second.error_code) == (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE)
    assert "connection refused" in str(first.error_message)


def test_brokers_are_changed_where_they_are_described(api: Api, world: World) -> None:
    for node in world.view().nodes.all:
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name=str(node.node_id))
        request = DescribeConfigsRequest(resources=[resource])
        [read] = Playbook(describe_configs.handle, request, 4, world.view()).asked()
        [written] = api.book(world, (BROKER, str(node.node_id))).asked()
        assert (written.cluster, written.target) == (read.cluster, read.target)
