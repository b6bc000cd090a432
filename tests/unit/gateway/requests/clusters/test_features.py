"""Features of clusters: what clients may rely on, whichever cluster their records go to."""

from mesh.routing import RoutingTable
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.mesh import api_versions
from services.gateway.wire.messages import ApiVersionsRequest, ApiVersionsResponse
from services.gateway.wire.messages.api_versions import FinalizedFeatureKey
from tests.unit.gateway.requests.playbook import Playbook, World


def shown(world: World, version: int = 4) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """Finalized levels and supported ranges, as a client sees them."""
    answer = Playbook(api_versions.handle, ApiVersionsRequest("java", "4.3.1"), version, world.view()).answer
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return finalized, {
        feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features
    }


def world(**finalized: dict[str, int]) -> World:
    made = World({cluster: [] for cluster in finalized})
    for cluster, levels in finalized.items():
        made.clusters[cluster].finalized_features = {name.replace("_", "."): n for name, n in levels.items()}
    return made


def test_the_lowest_level_of_all_clusters_counts() -> None:
    two = world(c1={"transaction_version": 2, "group_version": 1}, c2={"transaction_version": 1, "group_version": 1})
    assert shown(two)[0] == {"transaction.version": 1, "group.version": 1}


def test_what_one_cluster_has_not_switched_on_or_not_told_yet_is_not_shown() -> None:
    assert shown(world(c1={"transaction_version": 2}, c2={}))[0] == {}


def epoch(world: World) -> int:
    answer = Playbook(api_versions.handle, ApiVersionsRequest("java", "4.3.1"), 3, world.view()).answer
    shown: int = answer.finalized_features_epoch
    return shown


def test_the_epoch_grows_with_the_table_and_with_the_features_of_every_cluster() -> None:
    made = world(c1={"transaction_version": 2}, c2={"transaction_version": 1})
    epochs = [epoch(made)]
    made.move("apples", "c1")
    epochs.append(epoch(made))
    for cluster in ("c2", "c1"):
        told = ApiVersionsResponse(
            finalized_features_epoch=7, finalized_features=[FinalizedFeatureKey("transaction.version", 2, 2)]
        )
        made.clusters[cluster].learn_features(told)
        epochs.append(epoch(made))
    assert epochs == sorted(set(epochs))
    assert shown(made)[0] == {"transaction.version": 2}


def test_the_epoch_grows_also_when_a_cluster_leaves() -> None:
    """Java clients pass over features of a lower epoch than the highest that they have seen."""
    made = world(c1={"transaction_version": 2}, c2={"transaction_version": 2})
    made.clusters["c1"].features_epoch, made.clusters["c2"].features_epoch = 5, 3_000_000
    before = epoch(made)
    made.table = RoutingTable(made.table.revision + 1, [made.table.clusters["c1"]], made.table.versions)
    assert epoch(made) > before


def test_supported_ranges_are_those_of_all_and_old_clients_see_none_from_0() -> None:
    made = World({"c1": [], "c2": []})
    made.clusters["c1"].supported_features = {"a": VersionRange(1, 7), "b": VersionRange(0, 2), "c": VersionRange(1, 2)}
    made.clusters["c2"].supported_features = {"a": VersionRange(3, 9), "b": VersionRange(0, 1), "c": VersionRange(3, 4)}
    assert shown(made)[1] == {"a": (3, 7), "b": (0, 1)}
    assert shown(made, version=3)[1] == {"a": (3, 7)}
