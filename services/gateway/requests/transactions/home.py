"""Where a transactional id lives, and what its transactions may touch."""

from collections.abc import Iterable, Mapping

import structlog

from services.gateway.requests.plan import MeshView
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode

FOREIGN_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
"""For a partition that lives on another cluster than the transaction: the send fails at once, naming the topic, and the
transaction can only be aborted. The producer lives on."""

log = structlog.get_logger(__name__)


def transaction_home(transactional_id: str, mesh: MeshView) -> str | None:
    """Name of the cluster whose coordinator looks after the id; None in a mesh without clusters."""
    rule = mesh.table.transaction_rule(transactional_id)
    if rule is not None:
        return rule.target_cluster
    home = mesh.table.home
    return None if home is None else home.name


def spans_clusters(transactional_id: str, mesh: MeshView) -> bool:
    """Whether a rule lets its transactions write to several clusters."""
    rule = mesh.table.transaction_rule(transactional_id)
    return rule is not None and rule.span_clusters


def foreign_topics(topics: Iterable[str], home: str | None, mesh: MeshView) -> dict[str, str]:
    """Those topics that live on another cluster, with its name. Topics that live nowhere are not among them."""
    owners = {topic: mesh.table.cluster_of(topic) for topic in topics}
    return {topic: owner for topic, owner in owners.items() if owner is not None and owner != home}


def closed_topics(transactional_id: str, foreign: Mapping[str, str], mesh: MeshView) -> dict[str, str]:
    """Those of the foreign topics that its transactions may not write to: all, unless they may span clusters."""
    spans = spans_clusters(transactional_id, mesh)
    return {topic: cluster for topic, cluster in foreign.items() if not (spans and takes_part(cluster, mesh))}


def takes_part(cluster: str, mesh: MeshView) -> bool:
    """Whether the cluster can say what it knows of a transactional id, as Kafka does since 3.0. One that was never
    reached may, and is waited for."""
    spoken = mesh.clusters[cluster].versions
    return not spoken or ApiKey.DESCRIBE_TRANSACTIONS in spoken


def tell_refused(what: str, transactional_id: str, home: str | None, foreign: Mapping[str, str]) -> None:
    """The sentence that an error code can't carry."""
    log.warning(
        f"{what} refused: a transaction lives on one cluster; move the topic or the transactional id by a rule",
        transactional_id=transactional_id,
        transaction_on=home,
        topics_on=dict(foreign),
    )
