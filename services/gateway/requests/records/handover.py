"""The producers of a topic that come with the switch of its move: the gateway has to ask no cluster for them (`seams`).

Control asks the topic's last cluster while all gateways hold (`control/decisions/topic_moves/producers.py`). Nobody has
written to the new cluster yet, so it knows none of the producers. A gateway that gets no producers with the switch, or
starts later, asks the last cluster itself.
"""

from mesh.routing import RoutingTable
from mesh.rpc import topic_moves
from services.gateway.requests.records.producer_memory import LastWrite, Seams
from services.gateway.requests.records.seams import seam_of


def learn(handed: topic_moves.TopicMoveProducers, after: RoutingTable, seams: Seams, now: float) -> None:
    """`after`: the table of the switch. Only seams between the cluster that was asked and the next one are learnt."""
    if handed.source_cluster and not handed.topic:
        seams.give_up(handed.source_cluster, now)
        return
    for kind in (None, *after.conditions):
        route = after.for_clients(kind).route(handed.topic)
        if route is None or route.before is None or route.before.cluster != handed.source_cluster:
            continue
        if (route.before.upstream_topic or handed.topic) != handed.source_topic:
            continue
        for each in handed.partitions:
            key = seam_of(handed.topic, each.partition, route, route.before)
            if not seams.is_known(key):
                writes = {
                    last.producer_id: LastWrite(last.epoch, last.sequence, last.timestamp_ms) for last in each.producers
                }
                seams.learn(key, writes, now, frozenset())
