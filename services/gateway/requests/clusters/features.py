"""Features that a cluster finalizes as a whole (KIP-584): clients see the features that all clusters of the mesh share.

A producer that sees transaction.version 2 no longer names the partitions that it adds to a transaction (KIP-890). A
cluster without that feature level would refuse the producer's records. So the gateway shows a feature at the lowest
level that any cluster has, and shows no feature while a cluster has never been reached. Java clients keep the features
with the highest epoch that they have seen. The gateway's epoch grows with the features of every cluster, and more with
the table's revision: the set of clusters changes with the revision, and a cluster that leaves takes its epoch along.
"""

from collections.abc import Collection

from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.topic_names import KnownCluster
from services.gateway.wire.messages.api_versions import FinalizedFeatureKey, SupportedFeatureKey

MINIMUM_0_SINCE = 4
"""Before this version of ApiVersions, clients can't read a supported feature that begins at level 0."""

EPOCHS_OF_A_REVISION = 1 << 36
"""More than the epochs of all clusters together: with KRaft an epoch is an offset in the log of the controllers."""


def features_epoch(revision: int, clusters: Collection[KnownCluster]) -> int:
    """The epoch of the features under the table of this revision."""
    epochs = sum(cluster.features_epoch for cluster in clusters)
    return revision * EPOCHS_OF_A_REVISION + min(epochs, EPOCHS_OF_A_REVISION - 1)


def supported_features(clusters: Collection[KnownCluster], version: int) -> list[SupportedFeatureKey]:
    shared: dict[str, VersionRange] | None = None
    for cluster in clusters:
        own = cluster.supported_features
        ranges = own if shared is None else {n: r.intersection(own[n]) for n, r in shared.items() if n in own}
        shared = {name: levels for name, levels in ranges.items() if levels is not None}
    return [
        SupportedFeatureKey(name, low, high)
        for name, (low, high) in sorted((shared or {}).items())
        if low > 0 or version >= MINIMUM_0_SINCE
    ]


def finalized_features(clusters: Collection[KnownCluster]) -> list[FinalizedFeatureKey]:
    levels = [cluster.finalized_features for cluster in clusters]
    shared = set(levels[0]).intersection(*levels[1:]) if levels else set()
    lowest = {name: min(each[name] for each in levels) for name in shared}
    return [FinalizedFeatureKey(name, level, level) for name, level in sorted(lowest.items())]
