"""Which Kafka clusters there are and how a job connects to them: as control tells it, or as the operator does.

Control keeps secrets as references (`${env:NAME}`, `${file:/path}`); they are resolved here, in the driver's process,
and go to Spark's workers as properties of their clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from mesh.connection_security import connection_properties
from mesh.rpc import admin, admin_grpc
from mesh.secret_references import UnresolvedReferenceError, resolve_property
from mesh.settings import host_port

BOOTSTRAP = "bootstrap.servers"
PAGE_SIZE = 1000  # the largest that control gives
CHANNEL_OPTIONS = (("grpc.enable_http_proxy", 0),)  # control is a neighbour; a proxy for the web is not on the way


class ClustersError(Exception):
    """The clusters are not known; the message says why, and never a secret."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster, as clients of the pipeline reach it."""

    name: str
    properties: Mapping[str, str] = field(repr=False)
    """librdkafka's, `bootstrap.servers` among them, secrets resolved."""
    home: bool = False
    """Whether the mesh keeps its own topics there."""


def read_clusters(control_address: str, timeout_s: float) -> dict[str, Cluster]:
    """The registered clusters by name, in the order of their registration."""
    with grpc.insecure_channel(control_address, options=CHANNEL_OPTIONS) as channel:
        stub = admin_grpc.ClusterServiceStub(channel)
        asked = admin.ListClustersRequest(page_size=PAGE_SIZE)
        found: list[admin.Cluster] = []
        while True:
            try:
                page = stub.ListClusters(asked, timeout=timeout_s)
            except grpc.RpcError as error:
                raise ClustersError(
                    f"control at {control_address} does not tell the clusters: {_reason(error)}; "
                    "start it, set KAFKA_MESH_PIPELINE_CONTROL_ADDRESS, or name them: --cluster NAME=HOST:PORT"
                ) from error
            found += page.clusters
            if not page.next_page_token:
                return {each.spec.cluster_name: _registered(each) for each in found}
            asked.page_token = page.next_page_token


def _reason(error: Any) -> str:
    status: grpc.Call = error  # what a stub raises is both
    return f"{status.code().name}: {status.details()}"


def _registered(cluster: admin.Cluster) -> Cluster:
    spec = cluster.spec
    security = connection_properties(spec.producer_config, spec.consumer_config)
    bootstrap = {BOOTSTRAP: ",".join(spec.bootstrap_servers)}
    return Cluster(spec.cluster_name, resolved(spec.cluster_name, security | bootstrap), cluster.home)


def told_clusters(words: Iterable[str], properties: Mapping[str, str]) -> dict[str, Cluster]:
    """From `NAME=HOST:PORT,...`, all with the same further properties. The first one is home."""
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
        clusters[name] = Cluster(name, resolved(name, {**properties, **bootstrap}), home=not clusters)
    return clusters


def set_clusters(properties: Mapping[str, Mapping[str, str]]) -> dict[str, Cluster]:
    """From librdkafka's properties by name of the cluster. The first one is home."""
    clusters: dict[str, Cluster] = {}
    for name, each in properties.items():
        if not each.get(BOOTSTRAP):
            raise ClustersError(f"cluster {name!r} has no {BOOTSTRAP}")
        clusters[name] = Cluster(name, resolved(name, each), home=not clusters)
    return clusters


def home_of(clusters: Mapping[str, Cluster]) -> Cluster:
    """The one that holds the mesh's own topics."""
    for cluster in clusters.values():
        if cluster.home:
            return cluster
    raise ClustersError(f"none of the clusters is home (known: {', '.join(clusters) or 'none'})")


def resolved(cluster: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with what their references refer to."""
    try:
        return {name: resolve_property(name, value) for name, value in properties.items()}
    except UnresolvedReferenceError as error:
        raise ClustersError(f"cluster {cluster!r}: {error}") from None
