"""A whole gateway in front of two scripted brokers that answer everything with samples.

The topics of all samples live on c1. c2, which owns other topics, knows no group and no transaction; what has no owner
it has as c1 has it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from mesh.lifecycle import Lifecycle
from mesh.routing import (
    ExactName,
    ForwardingRule,
    Match,
    NameRegex,
    RoutingTable,
    RuleVersion,
    Subject,
    UpstreamCluster,
)
from services.gateway.downstream import last_table
from services.gateway.downstream.gateway import Gateway
from services.gateway.downstream.sweeping import Sweeping
from services.gateway.requests.groups.group_kinds import CLASSIC, KINDS
from services.gateway.requests.table import HANDLERS
from services.gateway.settings import GatewaySettings
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader
from services.gateway.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from services.gateway.wire.messages.delete_groups import DeletableGroupResult
from services.gateway.wire.messages.metadata import MetadataRequestTopic
from services.gateway.wire.schema import Kind, Struct, fields_of, message_of
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.roundtrip.samples import (
    MESH_ID,
    ORDINAL,
    PARTITION_COUNT,
    TOPICS,
    Mood,
    Side,
    cluster_topic_id,
    sample,
)
from tests.unit.gateway.scripted_broker import BROKER_ID, Script, ScriptedBroker, broker

TRANSACTION_STATE: Final = "__transaction_state"
UNASKED_OPERATIONS: Final = -0x8000_0000
"""What brokers write in the place of operations that they were not asked for."""
IDENTITIES: Final = ("group_id", "transactional_id", "resource_name", "producer_id")
"""By which items of a request and items of its answer belong together, where brokers are asked for one at a time."""
LISTS: Final = {"groups": "group_id", "group_ids": "group_id", "groups_names": "group_id"} | {
    "transactional_ids": "transactional_id"
}
"""Lists of a request that hold nothing but such names."""


@dataclass
class Stage:
    """The gateway, its brokers and its clients."""

    gateway: Gateway
    c1: ScriptedBroker
    c2: ScriptedBroker

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RawClient]:
        connected = await RawClient.connect(self.gateway.port)
        try:
            yield connected
        finally:
            connected.close()


@asynccontextmanager
async def stage(directory: Path, *, alone: bool = False) -> AsyncIterator[Stage]:
    """`alone`: c2 is no part of the mesh."""
    settings = GatewaySettings(
        name="round-trip", listen=("127.0.0.1:0",), state_dir=directory, mesh_id=MESH_ID, drain_timeout_s=0
    )
    topics = dict.fromkeys(TOPICS, PARTITION_COUNT) | {TRANSACTION_STATE: 1}
    async with broker(topics) as c1, broker({"bananas": 1}) as c2:
        last_table.save(directory, _table(c1.address, None if alone else c2.address))
        gateway = Gateway(settings, Lifecycle())
        with patch.object(Sweeping, "run", _looks_for_nothing):  # brokers shall see what the client asks, no more
            await gateway.start()
        try:
            for each in (c1,) if alone else (c1, c2):
                await until(partial(_has_told_all, each))
            yield Stage(gateway, c1, c2)
        finally:
            await gateway.stop()


def _has_told_all(each: ScriptedBroker) -> bool:
    """Its versions at its bootstrap address, its features, and its versions under its id, for which no start waits."""
    return len(each.requests(ApiKey.API_VERSIONS)) == 3


async def _looks_for_nothing(_: Sweeping) -> None: ...


def _table(c1: str, c2: str | None) -> RoutingTable:
    matches: list[tuple[Match, str]] = [(ExactName(topic), "c1") for topic in TOPICS]
    matches.append((NameRegex(".*", Subject.GROUP), "c1"))
    matches.append((NameRegex(".*", Subject.TRANSACTIONAL_ID), "c1"))
    clusters = [UpstreamCluster("c1", (c1,), ORDINAL)]
    if c2 is not None:
        matches.append((ExactName("bananas"), "c2"))
        clusters.append(UpstreamCluster("c2", (c2,), ORDINAL + 1))
    rules = [ForwardingRule(f"r{rank}", match, cluster) for rank, (match, cluster) in enumerate(matches)]
    return RoutingTable(1, clusters, [RuleVersion(rule, float(rank), 1) for rank, rule in enumerate(rules)])


def scripts(there: ScriptedBroker, answer: Script) -> dict[int, Script]:
    """All that a broker answers with `answer`; it finds coordinators and tells of topics by itself."""

    def coordinator(header: RequestHeader, message: Any) -> Struct:
        return FindCoordinatorResponse(node_id=BROKER_ID, host="127.0.0.1", port=there.port)

    found = dict.fromkeys(HANDLERS.keys() - {ApiKey.API_VERSIONS}, answer)
    found[ApiKey.FIND_COORDINATOR] = coordinator
    found[ApiKey.METADATA] = lambda header, message: there.metadata(_by_name(there, message))
    return found


def rich_metadata(there: ScriptedBroker, mood: Mood) -> Script:
    """Metadata in which the topics of samples are told of as in samples."""

    def answer(header: RequestHeader, message: MetadataRequest) -> MetadataResponse:
        told = there.metadata(_by_name(there, message))
        samples = sample(MetadataResponse, header.api_version, Side.BROKER, mood)
        rich = {topic.name: topic for topic in samples.topics}
        topics = [rich.get(topic.name, topic) for topic in told.topics]
        if not message.include_topic_authorized_operations:
            topics = [replace(topic, topic_authorized_operations=UNASKED_OPERATIONS) for topic in topics]
        return replace(samples, brokers=told.brokers, controller_id=told.controller_id, topics=topics)

    return answer


def _by_name(there: ScriptedBroker, asked: MetadataRequest) -> MetadataRequest:
    names = {cluster_topic_id(topic): topic for topic in there.topics}
    topics = [MetadataRequestTopic(name=t.name or names.get(t.topic_id)) for t in asked.topics or ()]
    return asked if asked.topics is None else replace(asked, topics=topics)


def told_of(asked: Struct, answer: Struct) -> Struct:
    """Of an answer, the items that the request is about."""
    wanted: dict[str, set[Any]] = {}
    for name, spec, _ in fields_of(type(asked)):
        for item in getattr(asked, name) or () if spec.repeated else ():
            if identity := identity_of(item, name):
                wanted.setdefault(identity[0], set()).add(identity[1])
    for name, spec, _ in fields_of(type(answer)):
        if spec.repeated:
            items = getattr(answer, name) or []
            setattr(answer, name, [item for item in items if _is_wanted(identity_of(item, name), wanted)])
    return answer


def identity_of(item: Any, list_name: str) -> tuple[str, Any] | None:
    if isinstance(item, str):
        return (LISTS[list_name], item) if list_name in LISTS else None
    return next(((name, getattr(item, name)) for name in IDENTITIES if hasattr(item, name)), None)


def _is_wanted(identity: tuple[str, Any] | None, wanted: dict[str, set[Any]]) -> bool:
    return identity is None or identity[0] not in wanted or identity[1] in wanted[identity[0]]


def knows_nothing(header: RequestHeader, asked: Struct) -> Struct:
    """What the other cluster says."""
    return nothing_known(header.api_key, asked)


def nothing_known(api_key: int, asked: Struct) -> Struct:
    """Of groups, that there is none, and of anything else nothing."""
    spec = message_of(api_key, Kind.RESPONSE)
    assert spec is not None
    answer = spec.cls()
    if isinstance(asked, DeleteGroupsRequest):
        results = [DeletableGroupResult(name, ErrorCode.GROUP_ID_NOT_FOUND) for name in asked.groups_names]
        return DeleteGroupsResponse(results=results)
    kind = next((kind for kind in KINDS if kind.api_key == api_key), None)
    if kind is None:
        return answer
    groups = []
    for group_id in getattr(asked, "group_ids" if kind is not CLASSIC else "groups"):
        group = kind.description()
        group.group_id, group.group_state = group_id, "Dead"
        group.error_code = ErrorCode.NONE if kind is CLASSIC else ErrorCode.GROUP_ID_NOT_FOUND
        groups.append(group)
    setattr(answer, "groups", groups)  # noqa: B010  # four classes have it
    return answer
