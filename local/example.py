"""The example of a new mesh: its clusters, the rules `apples*` to the first and `bananas*` to the second, two topics.

A step of `kafka-mesh up`, over the admin API like any operator. Clusters are registered when they are missing, and
their addresses kept current; the rules are set only when a cluster was missing, so an operator's rules stay theirs.
The topics exist on all clusters with equal partitions, so that a rule may move them at once.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Mapping

import grpc
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mesh.rpc import admin, admin_grpc, routing
from meshctl.connection import ACTOR_METADATA, actor

CALL_TIMEOUT_S = 30.0
CHANNEL_TIMEOUT_S = 20.0
TOPIC_TIMEOUT_S = 30.0
PARTITIONS = 3
TOPICS = ("apples", "bananas")
REASON = "example of kafka-mesh up"
_WHO = ((ACTOR_METADATA, actor()),)  # the person who started the mesh decides


def set_up(control: str, clusters: Mapping[str, str]) -> None:
    with grpc.insecure_channel(control) as channel:
        grpc.channel_ready_future(channel).result(timeout=CHANNEL_TIMEOUT_S)
        new = _register(admin_grpc.ClusterServiceStub(channel), clusters)
        if not new:
            return
        for bootstrap in clusters.values():
            create_topics(bootstrap, TOPICS)
        _set_rules(admin_grpc.RuleServiceStub(channel), list(clusters))


def _register(service: admin_grpc.ClusterServiceStub, clusters: Mapping[str, str]) -> list[str]:
    """Make control know the clusters at these addresses; returns the names of those that it did not know."""
    listed = service.ListClusters(admin.ListClustersRequest(page_size=1000), timeout=CALL_TIMEOUT_S, metadata=_WHO)
    known = {cluster.spec.cluster_name: cluster for cluster in listed.clusters}
    for name, bootstrap in clusters.items():
        servers = bootstrap.split(",")
        request_id = str(uuid.uuid4())
        if name not in known:
            spec = routing.ClusterSpec(cluster_name=name, bootstrap_servers=servers)
            service.RegisterCluster(
                admin.RegisterClusterRequest(spec=spec, request_id=request_id, reason=REASON),
                timeout=CALL_TIMEOUT_S,
                metadata=_WHO,
            )
        elif list(known[name].spec.bootstrap_servers) != servers:
            update = admin.UpdateClusterRequest(
                name=known[name].name,
                spec=routing.ClusterSpec(cluster_name=name, bootstrap_servers=servers),
                request_id=request_id,
                reason=REASON,
            )
            update.update_mask.paths.append("bootstrap_servers")
            service.UpdateCluster(update, timeout=CALL_TIMEOUT_S, metadata=_WHO)
    return [name for name in clusters if name not in known]


def _set_rules(service: admin_grpc.RuleServiceStub, clusters: list[str]) -> None:
    for position, prefix in enumerate(TOPICS):
        request = admin.SetRuleRequest(
            match=routing.RuleMatch(topic_prefix=prefix),
            target_cluster=clusters[position % len(clusters)],
            options=admin.ChangeOptions(request_id=str(uuid.uuid4()), reason=REASON),
        )
        service.SetRule(request, timeout=CALL_TIMEOUT_S, metadata=_WHO)


def create_topics(bootstrap: str, names: tuple[str, ...], partitions: int = PARTITIONS) -> None:
    """Create what is missing on one real cluster, with the replication that the cluster prefers."""
    client = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": int(TOPIC_TIMEOUT_S * 1000)})
    wanted = [NewTopic(name, num_partitions=partitions, replication_factor=-1) for name in names]
    for future in client.create_topics(wanted, request_timeout=TOPIC_TIMEOUT_S).values():
        try:
            future.result(timeout=TOPIC_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local.example", description="Register clusters, rules and topics.")
    parser.add_argument("--control", required=True, help="HOST:PORT of control's gRPC")
    parser.add_argument("clusters", help="NAME=HOST:PORT[,HOST:PORT...][;NAME=...]")
    options = parser.parse_args()
    clusters = dict(pair.split("=", 1) for pair in options.clusters.split(";"))
    try:
        set_up(options.control, clusters)
    except grpc.FutureTimeoutError:
        print(f"control at {options.control} does not answer", file=sys.stderr)
    except grpc.RpcError as error:
        print(f"control at {options.control} refused the example: {error}", file=sys.stderr)
    except KafkaException as error:
        print(f"the example's topics were not created: {error}", file=sys.stderr)
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
