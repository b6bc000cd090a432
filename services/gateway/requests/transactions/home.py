"""Where a transactional id lives, and what its transactions may touch."""

from collections.abc import Iterable

import structlog

from services.gateway.requests.plan import MeshView
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


def foreign_topics(topics: Iterable[str], home: str | None, mesh: MeshView) -> dict[str, str]:
    """Those topics that live on another cluster, with its name. Topics that live nowhere are not among them."""
    owners = {topic: mesh.table.cluster_of(topic) for topic in topics}
    return {topic: owner for topic, owner in owners.items() if owner is not None and owner != home}


def tell_refused(what: str, transactional_id: str, home: str | None, foreign: dict[str, str]) -> None:
    """The sentence that an error code can't carry."""
    log.warning(
        f"{what} refused: a transaction lives on one cluster; move the topic or the transactional id by a rule",
        transactional_id=transactional_id,
        transaction_on=home,
        topics_on=foreign,
    )
