"""The topics that routers read at a start: each must exist, with one partition and the configuration of its purpose.
The log is kept for ever; control or a router creates its topic, whichever starts first. The topic of snapshots is
compacted; only routers create it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaConnectionError, KafkaError, TopicAlreadyExistsError, for_code

from mesh.cluster_access import ClusterAccess, reason_of
from services.router.agents.home import why_kept_out

TIMEOUT = 10.0
"""Seconds to reach the cluster and to create the topic."""
MOST_REPLICAS = 3
"""Replicas of the log if no number is set: as many as the cluster has brokers, at most this many."""
LOG_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""The log is kept for ever and never compacted: the table follows from all of it."""


class EventLogError(RuntimeError):
    """The log can't be read, and why."""


SNAPSHOTS_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(60 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
"""Compaction does not touch the active segment: with small segments, replaced records do not pile up."""


async def ensure_topic(
    home: ClusterAccess, topic: str, replication_factor: int, config: Mapping[str, str] = LOG_CONFIG
) -> None:
    """Creates the topic if it is not there yet. EventLogError when that can't be, or when it has several partitions."""
    admin: Any = AIOKafkaAdminClient(
        bootstrap_servers=list(home.bootstrap), request_timeout_ms=int(1000 * TIMEOUT), **home.for_aiokafka()
    )
    try:
        async with asyncio.timeout(TIMEOUT):
            await admin.start()
            if topic not in await admin.list_topics():
                await _create(admin, topic, replication_factor, config)
            [described] = await admin.describe_topics([topic])
            if (partitions := len(described["partitions"])) > 1:
                raise EventLogError(
                    f"topic {topic} on {home} has {partitions} partitions, the log has one, and so have its snapshots: "
                    "set another topic, or delete this one if it is not the mesh's"
                )
    except KafkaConnectionError as error:
        raise EventLogError(f"home cluster {await why_kept_out(home) or reason_of(error)}") from error
    except (KafkaError, TimeoutError, OSError) as error:
        raise EventLogError(f"home cluster {home}: {reason_of(error)}") from error
    finally:
        await admin.close()


async def _create(admin: Any, topic: str, replication_factor: int, config: Mapping[str, str]) -> None:
    brokers = (await admin.describe_cluster())["brokers"]
    replicas = replication_factor or min(MOST_REPLICAS, len(brokers))
    answer = await admin.create_topics([NewTopic(topic, 1, replicas, topic_configs=dict(config))])
    for _, code, reason in answer.topic_errors:
        if code not in (0, TopicAlreadyExistsError.errno):
            raise EventLogError(f"topic {topic} can't be created: {for_code(code).__name__} {reason or ''}")
