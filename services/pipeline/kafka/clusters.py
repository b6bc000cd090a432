"""The Kafka clusters and how a job connects to them: from control, or from the operator's settings.

1. Control keeps secrets as references (`${env:NAME}`, `${file:/path}`). The driver resolves them when a job uses the
   cluster, and Spark's workers get them as properties of their clients. If a reference can't be resolved, only its
   cluster fails.
2. The answer of control can be kept in a file, with unresolved references. A job that restarts while control is away
   reads this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
import structlog
from google.protobuf import json_format

from mesh.cluster_properties import allowed
from mesh.connection_security import connection_properties
from mesh.routing import FIRST_CLUSTER_NODE_ID
from mesh.rpc import admin, admin_grpc
from mesh.rpc.channels import open_blocking_channel
from mesh.rpc.tls import RpcTls
from mesh.secret_references import UnresolvedReferenceError, resolve_property
from mesh.settings import host_port
from mesh.whole_files import replace_file
from services.pipeline.settings import PipelineSettings, in_clear

BOOTSTRAP = "bootstrap.servers"
PAGE_SIZE = 1000  # the most clusters of one page
KEPT_FILE = "clusters.json"
ABORTED = "aborted"  # the beginning of `HistoryEntry.outcome` of a move that did not happen
Answer = TypeVar("Answer")

log = structlog.get_logger(__name__)


class ClustersError(Exception):
    """The clusters are not known; the message says why, and contains no secret."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster, as the pipeline's clients connect to it."""

    name: str
    said: Mapping[str, str] = field(repr=False)
    """librdkafka's properties, including `bootstrap.servers`; secrets may be references."""
    home: bool = False
    """Whether this cluster has the mesh's own topics."""
    node: str = ""
    """The node id that a gateway shows for this cluster; empty if it is not known."""

    @property
    def properties(self) -> dict[str, str]:
        """The properties with resolved secrets. ClustersError if a secret can't be resolved."""
        try:
            return {name: resolve_property(name, value) for name, value in self.said.items()}
        except UnresolvedReferenceError as error:
            raise ClustersError(f"cluster {self.name!r}: {error}") from None


def read_clusters(
    control_addresses: tuple[str, ...], timeout_s: float, kept_in: Path | None = None, tls: RpcTls | None = None
) -> dict[str, Cluster]:
    """The registered clusters by name, in the order of their registration.

    The answer is kept in the folder `kept_in`, and read from there while control does not answer.
    """
    try:
        found = _asked(control_addresses, timeout_s, tls)
    except ClustersError as error:
        kept = _kept(kept_in) if kept_in is not None else None
        if kept is None:
            raise
        log.warning(
            "control does not answer; the pipeline uses the list of clusters that it kept in a file",
            file=str(kept_in),
            reason=str(error),
        )
        found = kept
    else:
        if kept_in is not None:
            _keep(kept_in, found)
    return {each.spec.cluster_name: _registered(each) for each in found}


def read_places(
    control_addresses: tuple[str, ...], topic: str, timeout_s: float, tls: RpcTls | None = None
) -> list[str]:
    """The places that a topic has had, the newest first, as `HistoryEntry.place` has them. ClustersError."""

    def ask(channel: grpc.Channel) -> list[str]:
        stub = admin_grpc.QueryServiceStub(channel)
        asked = admin.ListHistoryRequest(topic=topic, page_size=PAGE_SIZE)
        found: list[str] = []
        while True:
            page = stub.ListHistory(asked, timeout=timeout_s)
            found += [each.place for each in page.entries if each.place and not each.outcome.startswith(ABORTED)]
            if not page.next_page_token:
                return found
            asked.page_token = page.next_page_token

    return _answered(control_addresses, tls, f"the places of topic {topic}", ask)


def _asked(control_addresses: tuple[str, ...], timeout_s: float, tls: RpcTls | None) -> list[admin.Cluster]:
    def ask(channel: grpc.Channel) -> list[admin.Cluster]:
        stub = admin_grpc.ClusterServiceStub(channel)
        asked = admin.ListClustersRequest(page_size=PAGE_SIZE)
        found: list[admin.Cluster] = []
        while True:
            page = stub.ListClusters(asked, timeout=timeout_s)
            found += page.clusters
            if not page.next_page_token:
                return found
            asked.page_token = page.next_page_token

    way_out = ", or name them: --cluster NAME=HOST:PORT"
    return _answered(control_addresses, tls, "the clusters", ask, way_out)


def _answered(
    control_addresses: tuple[str, ...],
    tls: RpcTls | None,
    what: str,
    ask: Callable[[grpc.Channel], Answer],
    way_out: str = "",
) -> Answer:
    """The answer of the first replica of control that responds; any replica knows the clusters and the past."""
    failure: ClustersError | None = None
    for address in control_addresses:
        with open_blocking_channel(address, tls) as channel:
            try:
                return ask(channel)
            except grpc.RpcError as error:
                failure = ClustersError(
                    f"control at {address} does not tell {what}: {_reason(error)}; "
                    f"start it, set KAFKA_MESH_PIPELINE_CONTROL_ADDRESSES{way_out}"
                )
                failure.__cause__ = error
    raise failure or ClustersError("no address of control is set: set KAFKA_MESH_PIPELINE_CONTROL_ADDRESSES")


def _keep(folder: Path, clusters: Iterable[admin.Cluster]) -> None:
    """Writes the fields that a job needs."""
    needed = admin.ListClustersResponse(
        clusters=[admin.Cluster(spec=each.spec, home=each.home, ordinal=each.ordinal) for each in clusters]
    )
    content = f"{json_format.MessageToJson(needed, preserving_proto_field_name=True)}\n".encode()
    file = folder / KEPT_FILE
    try:
        if not file.exists() or file.read_bytes() != content:
            replace_file(file, content)
    except OSError as error:
        log.warning("the clusters can't be kept for when control is away", file=str(file), reason=str(error))


def _kept(folder: Path) -> list[admin.Cluster] | None:
    """None if there is no readable file."""
    try:
        content = (folder / KEPT_FILE).read_text(encoding="utf-8")
        return list(json_format.Parse(content, admin.ListClustersResponse(), ignore_unknown_fields=True).clusters)
    except (OSError, UnicodeDecodeError, json_format.ParseError):
        return None


def _reason(error: Any) -> str:
    status: grpc.Call = error  # the error of a stub is also a grpc.Call
    return f"{status.code().name}: {status.details()}"


def _registered(cluster: admin.Cluster) -> Cluster:
    spec = cluster.spec
    security = connection_properties(allowed(spec.producer_config), allowed(spec.consumer_config))
    bootstrap = {BOOTSTRAP: ",".join(spec.bootstrap_servers)}
    node = str(FIRST_CLUSTER_NODE_ID + cluster.ordinal) if cluster.ordinal else ""
    return Cluster(spec.cluster_name, security | bootstrap, cluster.home, node)


def told_clusters(words: Iterable[str], properties: Mapping[str, str]) -> dict[str, Cluster]:
    """Parses `NAME=HOST:PORT,...`; all clusters get the same further properties. The first cluster is home."""
    clusters: dict[str, Cluster] = {}
    for word in words:
        name, separator, addresses = word.partition("=")
        try:
            if not name or not separator:
                raise ValueError("no name")
            for address in addresses.split(","):
                host_port(address.strip())
        except ValueError:
            raise ClustersError(f"{word!r} names no cluster: it is NAME=HOST:PORT[,HOST:PORT...]") from None
        bootstrap = {BOOTSTRAP: addresses.replace(" ", "")}
        clusters[name] = Cluster(name, {**properties, **bootstrap}, home=not clusters)
    return clusters


def set_clusters(properties: Mapping[str, Mapping[str, str]]) -> dict[str, Cluster]:
    """Makes clusters from librdkafka's properties by cluster name. The first cluster is home."""
    clusters: dict[str, Cluster] = {}
    for name, each in properties.items():
        if not each.get(BOOTSTRAP):
            raise ClustersError(f"cluster {name!r} has no {BOOTSTRAP}")
        clusters[name] = Cluster(name, each, home=not clusters)
    return clusters


def clusters_of(settings: PipelineSettings, told: Sequence[str] = (), *, kept: bool = False) -> dict[str, Cluster]:
    """The clusters by name: from the command line, else from the settings, else from control. ClustersError.

    `kept`: the last answer of control is used while control is away.
    """
    if told:
        return told_clusters(told, settings.client_properties)
    if settings.clusters:
        return set_clusters({name: in_clear(properties) for name, properties in settings.clusters.items()})
    return clusters_at_control(settings, kept=kept)


def clusters_at_control(settings: PipelineSettings, *, kept: bool = True) -> dict[str, Cluster]:
    """The clusters that control knows, by name; with `kept`, its last answer while control is away. ClustersError."""
    return read_clusters(
        settings.control_addresses,
        settings.request_timeout_s,
        settings.state_dir if kept else None,
        settings.rpc_tls,
    )


def places_of_topic(settings: PipelineSettings, topic: str) -> list[str]:
    """The places that a topic has had, the newest first, as control's history has them. ClustersError."""
    return read_places(settings.control_addresses, topic, settings.request_timeout_s, settings.rpc_tls)


def home_of(clusters: Mapping[str, Cluster]) -> Cluster:
    """The cluster with the mesh's own topics."""
    for cluster in clusters.values():
        if cluster.home:
            return cluster
    raise ClustersError(f"none of the clusters is home (known: {', '.join(clusters) or 'none'})")


def properties_of(clusters: Mapping[str, Cluster], names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The properties of these clusters, by name. ClustersError for an unknown cluster, or a missing secret."""
    wanted = sorted(set(names))
    if missing := [name for name in wanted if name not in clusters]:
        raise ClustersError(f"cluster {', '.join(missing)} is not registered (known: {', '.join(clusters) or 'none'})")
    return {name: clusters[name].properties for name in wanted}
