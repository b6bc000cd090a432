"""AlterReplicaLogDirs: a directory has the name from DescribeLogDirs, `cluster/broker:path`, which names its broker.

All virtual nodes share one address, so a request does not show which node it is meant for. The answer has no field for
a sentence: the log says why the mesh refused a partition.
"""

import re
from typing import Final

import structlog

from services.gateway.requests.placement import Place
from services.gateway.requests.plan import Broker, Call, Lane, MeshView, Plan, Request, Unreachable
from services.gateway.requests.verdicts import LEFT_OUT, Verdict, refusal, silence
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
)

SHOWN_DIRECTORY: Final = re.compile(r"(?P<cluster>[^/:]+)/(?P<broker>\d+):(?P<path>.+)", re.DOTALL)

log = structlog.get_logger(__name__)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(AlterReplicaLogDirsRequest)
    verdicts: dict[tuple[str, int], Verdict] = {}
    parts: dict[Place, list[AlterReplicaLogDir]] = {}
    for directory in message.dirs:
        place, path = _place_of(directory.path, mesh)
        passed = []
        for topic in directory.topics:
            refusal = _refusal(directory.path, place, topic, mesh)
            if refusal is None:
                passed.append(topic)
            else:
                verdicts |= {(topic.name, partition): refusal for partition in topic.partitions}
        if place is not None and passed:
            parts.setdefault(place, []).append(AlterReplicaLogDir(path, passed))
    calls = [
        Call(place.cluster, AlterReplicaLogDirsRequest(part), request.version, Broker(place.broker_id), Lane.CLIENT)
        for place, part in parts.items()
    ]
    outcomes = yield from ask_fitting(mesh, calls, AlterReplicaLogDirsResponse)
    for part, outcome in zip(parts.values(), outcomes, strict=True):
        verdicts |= _verdicts(part, outcome)
    for text in dict.fromkeys(verdict.text for verdict in verdicts.values() if verdict.text):
        log.warning("replicas could not be moved to another directory", reason=text)
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, partition), verdict in verdicts.items():
        result = results.setdefault(name, AlterReplicaLogDirTopicResult(name))
        result.partitions.append(AlterReplicaLogDirPartitionResult(partition, verdict.code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _place_of(shown: str, mesh: MeshView) -> tuple[Place | None, str]:
    """The broker that a directory is on, and the broker's own name for the directory."""
    found = SHOWN_DIRECTORY.fullmatch(shown)
    if found is None or found["cluster"] not in mesh.table.clusters:
        return None, shown
    return Place(found["cluster"], int(found["broker"])), found["path"]


def _refusal(shown: str, place: Place | None, topic: AlterReplicaLogDirTopic, mesh: MeshView) -> Verdict | None:
    owner = mesh.table.cluster_of(topic.name)
    if owner is None:
        return refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no forwarding rule matches topic {topic.name!r}")
    if place is None:
        text = f"{shown!r} is no directory of the mesh: they are called `cluster/broker:path`, as DescribeLogDirs lists"
        return refusal(ErrorCode.LOG_DIR_NOT_FOUND, text)
    if owner != place.cluster:
        text = f"topic {topic.name!r} lives on cluster {owner}, and {shown!r} is a directory of cluster {place.cluster}"
        return refusal(ErrorCode.REPLICA_NOT_AVAILABLE, text)
    return None


def _verdicts(
    part: list[AlterReplicaLogDir], outcome: AlterReplicaLogDirsResponse | Unreachable
) -> dict[tuple[str, int], Verdict]:
    otherwise = silence(outcome) if isinstance(outcome, Unreachable) else LEFT_OUT
    verdicts = {
        (topic.name, partition): otherwise for each in part for topic in each.topics for partition in topic.partitions
    }
    if not isinstance(outcome, Unreachable):
        for topic in outcome.results:
            for p in topic.partitions:
                verdicts[topic.topic_name, p.partition_index] = Verdict(p.error_code)
    return verdicts
