"""The example of a new mesh: its clusters, two topics, and the rules `apples*` to the first and `bananas*` to the
second.

The first cluster also gets the topic in which sidecars report the outcome of records, with a rule that routes to this
topic.

A step of `kafka-mesh up`, over the admin API like any operator. Clusters are registered when they are missing, and
their addresses kept current. With `--no-example` the step does nothing else. The example sets each of its rules once
in the life of a mesh. If the log shows that the example has set a rule before, the rule is the operator's since then,
also when it was removed. If a first start was interrupted, the next start sets the remaining rules. Topics are
created on all clusters with equal partitions, so that a rule may move them at once.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

import grpc
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mesh.rpc import admin, admin_grpc, routing
from mesh.rpc.channels import open_blocking_channel
from mesh.rpc.tls import RpcTls, RpcTlsError
from meshctl.connection import ACTOR_METADATA, actor
from meshctl.failures import as_call

CALL_TIMEOUT_S = 30.0
CHANNEL_TIMEOUT_S = 20.0
TOPIC_TIMEOUT_S = 30.0
PARTITIONS = 3
RULES_STREAM = "rules"
TOPICS = ("apples", "bananas")
AUDIT_TOPIC = "sidecar-audit"
REASON = "example of kafka-mesh up"
_WHO = ((ACTOR_METADATA, actor()),)  # the person who started the mesh decides


def set_up(
    control: str, clusters: Mapping[str, str], tls: RpcTls | None = None, *, clusters_alone: bool = False
) -> None:
    """`clusters_alone`: without rules and topics. RpcTlsError if a file of `tls` can't be used."""
    with open_blocking_channel(control, tls) as channel:
        grpc.channel_ready_future(channel).result(timeout=CHANNEL_TIMEOUT_S)
        _register(admin_grpc.ClusterServiceStub(channel), clusters)
        if clusters_alone:
            return
        decided = _decided_before(admin_grpc.QueryServiceStub(channel))
        missing = {topic: target for topic, target in _targets(list(clusters)).items() if topic not in decided}
        if not missing:
            return
        for bootstrap in clusters.values():
            create_topics(bootstrap, tuple(missing))
        _set_rules(admin_grpc.RuleServiceStub(channel), missing)


def _targets(clusters: list[str]) -> dict[str, str]:
    """Topic prefix to the cluster where the example puts it."""
    fruit = {prefix: clusters[position % len(clusters)] for position, prefix in enumerate(TOPICS)}
    return fruit | {AUDIT_TOPIC: clusters[0]}


def _decided_before(service: admin_grpc.QueryServiceStub) -> set[str]:
    """Prefixes about which somebody has decided at some time: the log is read, because removed rules left the table."""
    decided: set[str] = set()
    request = admin.ListEventsRequest(page_size=1000, stream=RULES_STREAM)
    while True:
        page = service.ListEvents(request, timeout=CALL_TIMEOUT_S, metadata=_WHO)
        for event in page.events:
            for change in event.rule_set_changed.changes:
                decided |= {change.created.match.topic_prefix, change.updated.match.topic_prefix}
        if not page.next_page_token or decided >= {*TOPICS, AUDIT_TOPIC}:
            return decided
        request.page_token = page.next_page_token


def _register(service: admin_grpc.ClusterServiceStub, clusters: Mapping[str, str]) -> None:
    """Make control know the clusters at these addresses."""
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


def _set_rules(service: admin_grpc.RuleServiceStub, targets: Mapping[str, str]) -> None:
    for prefix, target in targets.items():
        request = admin.SetRuleRequest(
            match=routing.RuleMatch(topic_prefix=prefix),
            target_cluster=target,
            options=admin.ChangeOptions(request_id=str(uuid.uuid4()), reason=REASON),
        )
        service.SetRule(request, timeout=CALL_TIMEOUT_S, metadata=_WHO)


def create_topics(bootstrap: str, names: tuple[str, ...], partitions: int = PARTITIONS) -> None:
    """Create missing topics on one real cluster, with the replication that the cluster prefers."""
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
    parser.add_argument("--tls-folder", type=Path, help="ca.crt, tls.crt and tls.key of an admin; default: plaintext")
    parser.add_argument("--parts", choices=("all", "clusters"), default="all", help="all: rules and topics too")
    parser.add_argument("clusters", help="NAME=HOST:PORT[,HOST:PORT...][;NAME=...]")
    options = parser.parse_args()
    clusters = dict(pair.split("=", 1) for pair in options.clusters.split(";"))
    try:
        tls = options.tls_folder and RpcTls(options.tls_folder)
        set_up(options.control, clusters, tls, clusters_alone=options.parts == "clusters")
    except RpcTlsError as error:
        print(error, file=sys.stderr)
    except grpc.FutureTimeoutError:
        print(f"control at {options.control} does not answer", file=sys.stderr)
    except grpc.RpcError as error:
        if as_call(error).code() is grpc.StatusCode.ALREADY_EXISTS:  # this mesh has names of its own for these clusters
            print(f"the example is left out: {as_call(error).details()}")
            return 0
        words = as_call(error).details() or as_call(error).code().name
        print(f"control at {options.control} refused the example: {words}", file=sys.stderr)
    except KafkaException as error:
        print(f"the example's topics were not created: {error}", file=sys.stderr)
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
