"""The metrics of data keys, and of the services that keep their masters."""

from prometheus_client import Counter, Gauge

from mesh.exposition.histograms import Histogram

data_keys = Gauge("kafka_mesh_gateway_data_keys", "Data keys of protected values that the gateway keeps now.")
key_service_seconds = Histogram(
    "kafka_mesh_gateway_key_service_seconds",
    "How long the service of keys took for a data key, to `make` one or to `unwrap` that of a record; or the registry "
    "for a `schema`.",
    ["call"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)
key_service_failures = Counter(
    "kafka_mesh_gateway_key_service_failures",
    "Calls of the service of keys, or of the schema registry (`schema`), that gave nothing: it is `gone`, or the "
    "service is `away`.",
    ["call", "why"],
)
