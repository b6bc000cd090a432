"""The cluster aggregate: register, update and remove upstream clusters."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mesh.routing import RoutingTable, UpstreamCluster
from mesh.routing.codec import cluster_to_proto
from mesh.rpc import events, routing
from mesh.settings import host_port
from services.control.domain.clusters.properties import check_properties, check_security
from services.control.domain.errors import Conflict, Exists, InvalidField, NotAllowed, Unknown

CLUSTER_NAME = re.compile(r"[a-zA-Z0-9._-]{1,63}")
UPDATABLE = ("bootstrap_servers", "partition_count", "producer_config", "consumer_config")
MAX_CLUSTERS = 1000
MAX_BOOTSTRAP_SERVERS = 100
MAX_PROPERTIES = 200
MAX_PARTITIONS = 100_000


@dataclass(frozen=True, slots=True)
class Sighting:
    """The facts that control saw when it connected to a cluster. An empty id means that control did not reach it."""

    kafka_cluster_id: str = ""
    home: bool = False


@dataclass(frozen=True, slots=True)
class Clusters:
    """The registered clusters, and the ordinal for a new cluster."""

    table: RoutingTable
    next_ordinal: int

    def get(self, name: str) -> UpstreamCluster:
        if name not in self.table.clusters:
            known = ", ".join(self.table.clusters) or "none"
            raise Unknown(f"clusters/{name}", f"cluster {name!r} is not registered (known: {known})")
        return self.table.clusters[name]

    def register(self, spec: routing.ClusterSpec, seen: Sighting) -> events.ClusterRegistered | None:
        """A new cluster; None when it is registered already, exactly like this."""
        check_spec(spec)
        known = self.table.clusters.get(spec.cluster_name)
        if known is not None:
            if cluster_to_proto(known).spec == spec:
                return None
            raise Exists(
                f"clusters/{spec.cluster_name}",
                f"cluster {spec.cluster_name!r} is registered with other settings; update it, or choose another name",
            )
        if len(self.table.clusters) >= MAX_CLUSTERS:
            raise InvalidField("spec.cluster_name", f"the mesh has {MAX_CLUSTERS} clusters, and no more are possible")
        self._refuse_second_name(spec.cluster_name, seen.kafka_cluster_id)
        return events.ClusterRegistered(
            cluster=routing.UpstreamCluster(
                spec=spec,
                ordinal=self.next_ordinal,
                kafka_cluster_id=seen.kafka_cluster_id,
                home=seen.home and not any(cluster.home for cluster in self.table.clusters.values()),
            )
        )

    def merged(self, name: str, spec: routing.ClusterSpec, paths: Collection[str]) -> routing.ClusterSpec:
        """The spec of a cluster with the fields of `paths` (all for none or "*") taken from `spec`."""
        merged = cluster_to_proto(self.get(name)).spec
        wanted = UPDATABLE if not paths or "*" in paths else paths
        for path in wanted:
            if path not in UPDATABLE:
                raise InvalidField("update_mask", f"{path!r} can't be updated; possible are {', '.join(UPDATABLE)}")
            merged.ClearField(path)  # type: ignore[arg-type]  # checked above
            single = routing.ClusterSpec()
            single.CopyFrom(spec)
            for other in (*UPDATABLE, "cluster_name"):
                if other != path:
                    single.ClearField(other)  # type: ignore[arg-type]  # names of fields
            merged.MergeFrom(single)
        check_spec(merged)
        return merged

    def update(self, spec: routing.ClusterSpec, seen: Sighting) -> events.ClusterUpdated | None:
        """New addresses or configuration for a registered cluster; None when nothing changes."""
        known = self.get(spec.cluster_name)
        kafka_id = seen.kafka_cluster_id or known.kafka_cluster_id
        if known.kafka_cluster_id and kafka_id != known.kafka_cluster_id:
            raise NotAllowed(
                "CLUSTER_ID_CHANGED",
                f"clusters/{known.name}",
                f"cluster {known.name!r} is the Kafka cluster {known.kafka_cluster_id}, but these addresses lead to "
                f"{kafka_id}, which does not hold its records; register that one under a name of its own",
            )
        self._refuse_second_name(known.name, kafka_id)
        home = known.home or (seen.home and not any(cluster.home for cluster in self.table.clusters.values()))
        before = cluster_to_proto(known)
        updated = routing.UpstreamCluster(spec=spec, ordinal=known.ordinal, kafka_cluster_id=kafka_id, home=home)
        if before.HasField("identity"):
            updated.identity.CopyFrom(before.identity)
        return None if updated == before else events.ClusterUpdated(cluster=updated)

    def remove(
        self, name: str, record_rules: Sequence[str] = (), stitched: Sequence[str] = ()
    ) -> events.ClusterRemoved:
        """`record_rules`: ids of the record rules that read from the cluster or write to it; `stitched`: topics whose
        logs have parts on it."""
        cluster = self.get(name)
        rules = [rule.rule_id for rule in self.table.rules if rule.target_cluster == name]
        if rules:
            raise NotAllowed(
                "CLUSTER_IN_USE",
                f"clusters/{name}",
                f"cluster {name!r} is the target of rules: {_listed(rules)}; retarget or remove them first",
            )
        if record_rules:
            raise NotAllowed(
                "CLUSTER_IN_USE",
                f"clusters/{name}",
                f"cluster {name!r} is read or written by record rules: {_listed(record_rules)}; remove them first",
            )
        if stitched:
            raise NotAllowed(
                "CLUSTER_IN_USE",
                f"clusters/{name}",
                f"cluster {name!r} has parts of the logs of stitched topics: {_listed(stitched)}; wait until these "
                "parts have expired: `meshctl topic parts TOPIC` says when",
            )
        policy = self.table.policies.rehearsal_policy
        if policy is not None and any(each.cluster_name == name for each in policy.rehearsals):
            raise NotAllowed(
                "CLUSTER_IN_USE",
                f"clusters/{name}",
                f"cluster {name!r} is rehearsed: end that first, with `meshctl cluster rehearse {name} --end`",
            )
        if cluster.home:
            raise NotAllowed(
                "HOME_CLUSTER",
                f"clusters/{name}",
                f"cluster {name!r} holds mesh.events, which routers read; the home cluster of a mesh cannot be removed",
            )
        return events.ClusterRemoved(cluster_name=name)

    def _refuse_second_name(self, name: str, kafka_id: str) -> None:
        for other in self.table.clusters.values():
            if kafka_id and other.kafka_cluster_id == kafka_id and other.name != name:
                raise Exists(
                    f"clusters/{other.name}",
                    f"cluster {name!r}: these addresses lead to the Kafka cluster {kafka_id}, which is registered as "
                    f"{other.name!r}; a cluster has one name in the mesh: call it {other.name!r} here too, or give the "
                    "addresses of another one",
                )


def _listed(names: Sequence[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def expect_revision(name: str, expected: int, actual: int) -> None:
    """Compare-and-set for one cluster; 0 means any."""
    if expected and expected != actual:
        raise Conflict(
            "REVISION_MISMATCH",
            f"cluster {name!r} is at revision {actual}, not {expected}: read it again and decide anew",
            {"current_revision": str(actual), "expected_revision": str(expected)},
        )


def check_spec(spec: routing.ClusterSpec) -> None:
    """Refuses a spec that is wrong in any mesh."""
    if not CLUSTER_NAME.fullmatch(spec.cluster_name):
        raise InvalidField(
            "spec.cluster_name", f"{spec.cluster_name!r} is not 1 to 63 characters of a-z, A-Z, 0-9, '.', '_', '-'"
        )
    if not 1 <= len(spec.bootstrap_servers) <= MAX_BOOTSTRAP_SERVERS:
        raise InvalidField("spec.bootstrap_servers", f"needs 1 to {MAX_BOOTSTRAP_SERVERS} addresses as HOST:PORT")
    for number, address in enumerate(spec.bootstrap_servers):
        try:
            host_port(address)
        except ValueError as error:
            raise InvalidField(f"spec.bootstrap_servers[{number}]", str(error)) from None
    if not 0 <= spec.partition_count <= MAX_PARTITIONS:
        raise InvalidField(
            "spec.partition_count", f"{spec.partition_count} is not between 0 (the cluster's own) and {MAX_PARTITIONS}"
        )
    for field, properties in (("producer_config", spec.producer_config), ("consumer_config", spec.consumer_config)):
        if len(properties) > MAX_PROPERTIES:
            raise InvalidField(f"spec.{field}", f"{len(properties)} properties are more than {MAX_PROPERTIES}")
        check_properties(f"spec.{field}", properties)
    check_security("spec", spec.producer_config, spec.consumer_config)
