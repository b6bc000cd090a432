"""The metrics of the supervisor, apart from those of its workers: it has a registry of its own."""

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from mesh.telemetry import build_info

registry = CollectorRegistry()
registry.register(build_info)
ProcessCollector(registry=registry)

workers_ready = Gauge("kafka_mesh_gateway_workers_ready", "Workers that serve clients.", registry=registry)
worker_ends = Counter(
    "kafka_mesh_gateway_worker_ends",
    "Workers that have ended unasked, and were started again.",
    ["worker"],
    registry=registry,
)
handed_connections = Counter(
    "kafka_mesh_gateway_handed_connections",
    "Connections of clients by the worker that they were given to.",
    ["worker"],
    registry=registry,
)
refused_connections = Counter(
    "kafka_mesh_gateway_refused_connections", "Connections that no worker could be given.", registry=registry
)
