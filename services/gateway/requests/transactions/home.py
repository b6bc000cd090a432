"""The home cluster of a transactional id, and the clusters that its transactions can reach."""

from collections.abc import Iterable, Mapping

import structlog

from services.gateway.requests.plan import MeshView
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode

FOREIGN_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
"""The error for a partition on a cluster that takes no part in transactions of other clusters. The send fails at once,
naming the topic, and the transaction can only be aborted. The producer stays usable."""

log = structlog.get_logger(__name__)


def transaction_home(transactional_id: str, mesh: MeshView) -> str | None:
    """Name of the cluster whose coordinator looks after the id; None in a mesh without clusters."""
    rule = mesh.table.transaction_rule(transactional_id)
    if rule is not None:
        return rule.target_cluster
    home = mesh.table.home
    return None if home is None else home.name


def foreign_topics(topics: Iterable[str], home: str | None, mesh: MeshView) -> dict[str, str]:
    """The topics on another cluster than home, with the cluster's name. Topics without a cluster are left out."""
    owners = {topic: mesh.table.cluster_of(topic) for topic in topics}
    return {topic: owner for topic, owner in owners.items() if owner is not None and owner != home}


def closed_topics(foreign: Mapping[str, str], home: str, mesh: MeshView) -> dict[str, str]:
    """The foreign topics that a transaction can't reach: their cluster, or the id's home, takes no part."""
    if not takes_part(home, mesh):
        return dict(foreign)
    return {topic: cluster for topic, cluster in foreign.items() if not takes_part(cluster, mesh)}


def takes_part(cluster: str, mesh: MeshView) -> bool:
    """Whether the cluster can describe a transactional id, as Kafka does since 3.0. A cluster that was never reached
    counts as able to, so the gateway waits for it."""
    spoken = mesh.clusters[cluster].versions
    return not spoken or ApiKey.DESCRIBE_TRANSACTIONS in spoken


def tell_refused(what: str, transactional_id: str, home: str | None, foreign: Mapping[str, str]) -> None:
    """Logs the reason, which an error code can't carry."""
    log.warning(
        f"{what} refused: Kafka takes part in transactions over several clusters from 3.0 on; "
        "move the topic or the transactional id by a rule",
        transactional_id=transactional_id,
        transaction_on=home,
        topics_on=dict(foreign),
    )
