"""The metrics of rehearsals of clusters: a rehearsal has at most 100 topics, and a mesh 10 rehearsals."""

from prometheus_client import Counter, Gauge

from mesh.exposition.histograms import Histogram

produces = Counter(
    "kafka_mesh_gateway_rehearsal_produces",
    "Produces in the shares of rehearsals by the cluster that answered, and by Kafka's name of the code.",
    ["cluster", "topic", "code"],
)
seconds = Histogram(
    "kafka_mesh_gateway_rehearsal_seconds",
    "How long a cluster took for such a produce: from the request's way to the connection to its answer.",
    ["cluster", "topic"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
dropped = Counter(
    "kafka_mesh_gateway_rehearsal_dropped",
    "Produces in the shares of rehearsals that were not written to the candidate: no room, above its rate, or the "
    "candidate is away.",
    ["cluster", "topic", "why"],
)
waiting_bytes = Gauge(
    "kafka_mesh_gateway_rehearsal_waiting_bytes", "Copies of batches on their way to candidates of rehearsals."
)
