"""What clients are told that the mesh can do."""

import pytest

from services.gateway.requests.handler import Reach
from services.gateway.requests.knowledge import ClusterKnowledge, VersionRange
from services.gateway.requests.mesh import api_versions
from services.gateway.requests.table import HANDLERS, served_ranges
from services.gateway.requests.transactions import init_producer_id
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import ApiVersionsRequest, ApiVersionsResponse, InitProducerIdRequest
from tests.unit.gateway.requests.playbook import Playbook, World


def test_says_what_is_served_and_notes_the_software() -> None:
    world = World({"c1": ["apples"]})
    book = Playbook(api_versions.handle, ApiVersionsRequest("apache-kafka-java", "4.3.1"), 3, world.view())
    assert {v.api_key for v in book.answer.api_keys} == set(HANDLERS)
    assert (world.session.software_name, world.session.software_version) == ("apache-kafka-java", "4.3.1")


def greeted(cluster_id: str | None, node_id: int, address: int | None = None) -> tuple[int, int | None]:
    """The answer's error, and the node that the connection counts as one to."""
    world = World({"c1": [], "c2": []}, by_node_id=True)
    world.session.asked_node = address
    message = ApiVersionsRequest("apache-kafka-java", "4.4.0", cluster_id, node_id)
    return Playbook(api_versions.handle, message, 5, world.view()).answer.error_code, world.session.asked_node


def test_a_connection_that_reaches_whom_it_was_meant_for_counts_as_one_to_that_node() -> None:
    assert greeted("mesh-id", 102) == (0, 102)
    assert greeted("mesh-id", 102, address=102) == (0, 102)
    assert greeted(None, -1) == (0, None)


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "address"),
    [
        ("real-id-of-c1", 101, None),
        ("mesh-id", 1, None),
        ("mesh-id", 103, None),
        ("mesh-id", 101, 102),
        ("", 101, None),
    ],
)
def test_a_client_that_was_meant_for_another_cluster_or_node_begins_again(
    cluster_id: str, node_id: int, address: int | None
) -> None:
    """KIP-1242, checked with the mesh's own ids: those of the clusters behind it count for nothing."""
    assert greeted(cluster_id, node_id, address) == (ErrorCode.REBOOTSTRAP_REQUIRED, address)


def test_a_mesh_without_clusters_has_one_node() -> None:
    for node, error in ((101, 0), (102, ErrorCode.REBOOTSTRAP_REQUIRED)):
        book = Playbook(api_versions.handle, ApiVersionsRequest("", "", "mesh-id", node), 5, World({}).view())
        assert book.answer.error_code == error


def test_ranges_are_what_all_known_clusters_speak() -> None:
    everything = {handler.api_key: handler.versions for handler in HANDLERS.values()}
    modern = ClusterKnowledge("c1", versions=everything)
    unknown = ClusterKnowledge("c2")
    assert served_ranges([modern, unknown]) == {key: row.widened(row.versions) for key, row in HANDLERS.items()}
    old = ClusterKnowledge("c3", versions={key: VersionRange(low, low) for key, (low, _) in everything.items()})
    narrowed = served_ranges([modern, unknown, old])
    for key, handler in HANDLERS.items():
        lowest = VersionRange(handler.versions.low, handler.versions.low)
        offered = lowest if handler.reach is Reach.ALL_CLUSTERS else handler.versions
        assert narrowed[key] == handler.widened(offered)


def test_older_versions_are_offered_although_no_cluster_speaks_them() -> None:
    spoken: dict[int, VersionRange] = {ApiKey.FETCH: VersionRange(4, 18), ApiKey.LIST_OFFSETS: VersionRange(1, 11)}
    served = served_ranges([ClusterKnowledge("c1", versions=spoken)])
    assert served[ApiKey.FETCH].low == served[ApiKey.LIST_OFFSETS].low == 0


def test_older_versions_are_not_offered_over_a_gap() -> None:
    """A broker to come may give up the version that they are translated to."""
    spoken: dict[int, VersionRange] = {ApiKey.LIST_OFFSETS: VersionRange(3, 15)}
    assert served_ranges([ClusterKnowledge("c1", versions=spoken)])[ApiKey.LIST_OFFSETS].low == 3


def test_each_version_has_one_handler() -> None:
    for handler in HANDLERS.values():
        if handler.older is not None:
            assert handler.older.versions.high + 1 == handler.versions.low
            assert handler.handle_of(handler.older.versions.low) is handler.older.handle
        assert handler.handle_of(handler.versions.low) is handler.handle


def test_what_one_cluster_lacks_is_offered_where_each_item_has_one_owner() -> None:
    everything = {handler.api_key: handler.versions for handler in HANDLERS.values()}
    lacking = ClusterKnowledge("c1", versions={ApiKey.METADATA: VersionRange(0, 9)})
    everywhere = served_ranges([ClusterKnowledge("c2", versions=everything), lacking])
    assert everywhere.keys() == {key for key, row in HANDLERS.items() if row.reach is not Reach.ALL_CLUSTERS}
    nowhere = served_ranges([lacking])
    assert nowhere.keys() == {key for key, row in HANDLERS.items() if row.reach is Reach.OWN}


def test_an_unknown_version_is_answered_in_version_0_with_error_35() -> None:
    answer = api_versions.unsupported_version(World({"c1": []}).view())
    assert answer.version == 0
    assert isinstance(answer.message, ApiVersionsResponse)
    assert answer.message.error_code == 35
    assert [(v.api_key, v.min_version, v.max_version) for v in answer.message.api_keys] == [(ApiKey.API_VERSIONS, 0, 5)]


def test_producer_ids_are_minted_above_what_brokers_hand_out() -> None:
    view = World({"c1": []}).view()
    book = Playbook(init_producer_id.handle, InitProducerIdRequest(None, 60_000), 4, view)
    assert book.answer.producer_id >= 1 << 62
    assert book.answer.producer_epoch == 0
