"""What the gateway remembers can be watched: how much it is, and when the oldest has to make way."""

from prometheus_client import REGISTRY

from services.gateway.downstream.mesh import ClientLimits, Mesh
from services.gateway.requests.memory import GROUP_HOMES_REMEMBERED
from services.gateway.upstream.brokers import UpstreamLimits
from services.gateway.upstream.clusters import Clusters


def test_entries_and_room_are_told_by_what_is_remembered() -> None:
    memory = Mesh(Clusters(UpstreamLimits()), "mesh", ClientLimits()).memory
    memory.group_homes.put("g", "c1", 0.0)
    memory.refusals.refuse((1, 0, "apples", 0), 5, 0.0)
    memory.passages.enter((1, 0, "apples", 0), "a request", 5, "a connection")
    assert told("remembered", what="group_homes") == 1
    assert told("remembered", what="refusals") == 1
    assert told("remembered", what="producers") == 0
    assert told("remembered_most", what="group_homes") == GROUP_HOMES_REMEMBERED
    assert told("passages") == 1


def told(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"kafka_mesh_gateway_{name}", labels)
