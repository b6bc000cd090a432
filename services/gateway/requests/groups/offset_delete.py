"""OffsetDelete: the cluster that keeps a group's offsets of a topic deletes them.

That is the owner of the topic or, with shadow topics, the group's home.

A broker keeps offsets of topics that members of the group subscribe to. Only the group's home knows its members, so the
gateway reads their subscriptions there, and applies them to topics of the other clusters too. A cluster that does not
know the group has nothing to delete, which is no error as long as any cluster knows the group.
"""

from collections.abc import Container, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.gateway.requests.groups.group_home import (
    ALIVE,
    REAL,
    claim_of,
    describe_patiently,
    hindrance,
    offsets_place,
    strongest,
)
from services.gateway.requests.groups.group_kinds import (
    CLASSIC,
    CONSUMER,
    COORDINATOR_MOVED,
    NOT_YET_KNOWN,
    Description,
    GroupKind,
    for_clients,
    questions,
)
from services.gateway.requests.groups.group_subscription import matching
from services.gateway.requests.groups.partition_errors import PartitionErrors
from services.gateway.requests.plan import (
    Call,
    Command,
    Coordinator,
    Forget,
    Lane,
    MeshView,
    Plan,
    Request,
    Unreachable,
    ask_all,
)
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.consumer_protocol import subscription_of
from services.gateway.wire.messages.describe_groups import DescribedGroup
from services.gateway.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from services.gateway.wire.primitives import WireError

WITH_SUBSCRIPTIONS: Sequence[GroupKind[Any]] = (CLASSIC, CONSUMER)
"""The kinds of groups whose members may subscribe to topics of several clusters."""


class _EveryTopic(Container[str]):
    def __contains__(self, topic: object) -> bool:
        return True


@dataclass(slots=True)
class _Deletion:
    """Offsets that are being deleted: parts by cluster, and the error code of each partition as it becomes known."""

    message: OffsetDeleteRequest
    known: bool = False
    """Whether any cluster is known to have the group."""
    parts: dict[str, list[OffsetDeleteRequestTopic]] = field(default_factory=dict)
    errors: PartitionErrors = field(default_factory=PartitionErrors)

    def answer(self) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(
            topics=[
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(
                            partition_index=p.partition_index,
                            error_code=self.errors.of(topic.name, p.partition_index),
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in self.message.topics
            ]
        )


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(OffsetDeleteRequest)
    deletion = _Deletion(message)
    for topic in message.topics:
        place = offsets_place(message.group_id, topic.name, mesh)
        if place is None:
            deletion.errors.settle([topic], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            deletion.parts.setdefault(place, []).append(topic)
    if deletion.parts and len(mesh.table.clusters) > 1:
        refusal = yield from _hold_back_subscribed(deletion, mesh)
        if refusal is not None:
            return OffsetDeleteResponse(error_code=refusal)
    refusal = yield from _delete(deletion, request.version)
    return deletion.answer() if refusal is None else OffsetDeleteResponse(error_code=refusal)


def _hold_back_subscribed(deletion: _Deletion, mesh: MeshView) -> Generator[Command, Any, int | None]:
    """Settles foreign topics that members subscribe to; returns the error that bars the whole request, if any."""
    asked = [question for kind in WITH_SUBSCRIPTIONS for question in questions(kind, deletion.message.group_id, mesh)]
    found = [(question.cluster, group) for question, group in (yield from describe_patiently(asked, mesh)).items()]
    home, (claim, _) = strongest(found)
    if claim < REAL:
        code = hindrance(group for _, group in found)
        if code is not None:
            return code
    deletion.known = home is not None
    group = next((group for name, group in found if name == home and claim_of(group)[0] == ALIVE), None)
    foreign = [name for name in deletion.parts if name != home]
    if not foreign or group is None or isinstance(group, Unreachable):
        return None
    if isinstance(group, DescribedGroup):
        if group.protocol_type != "consumer":
            return ErrorCode.NON_EMPTY_GROUP
        if group.group_state != "Stable":
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # brokers show subscriptions only between rebalances
        subscribed = _subscriptions(group)
    else:
        subscribed = _newer_subscriptions(group, [topic.name for name in foreign for topic in deletion.parts[name]])
    for name in foreign:
        part = deletion.parts.pop(name)
        deletion.errors.settle(
            [topic for topic in part if topic.name in subscribed], ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        )
        free = [topic for topic in part if topic.name not in subscribed]
        if free:
            deletion.parts[name] = free
    return None


def _subscriptions(group: DescribedGroup) -> Container[str]:
    """Topics of all members; every topic if a member's subscription can't be read, as on a broker."""
    topics: set[str] = set()
    for member in group.members:
        try:
            topics.update(subscription_of(member.member_metadata).topics)
        except WireError:
            return _EveryTopic()
    return topics


def _newer_subscriptions(group: Description, topics: list[str]) -> Container[str]:
    """The topics that members of a KIP-848 group subscribe to; of those by expression only the ones among `topics`."""
    subscribed = {topic for member in group.members for topic in member.subscribed_topic_names}
    for regex in {member.subscribed_topic_regex for member in group.members if member.subscribed_topic_regex}:
        subscribed.update(matching(regex, topics))
    return subscribed


def _delete(deletion: _Deletion, version: int) -> Generator[Command, Any, int | None]:
    """Sends each part to its cluster; returns the error of the whole request, if any.

    A passing error of one part becomes the error of the whole request: clients repeat the request, and a second
    deletion does no harm. An error of the group in which all parts agree also becomes the request's; any other error
    goes to the part's partitions.
    """
    group_id = deletion.message.group_id
    coordinator = Coordinator(group_id)
    calls = [
        Call(name, OffsetDeleteRequest(group_id=group_id, topics=part), version, coordinator, Lane.CLIENT)
        for name, part in deletion.parts.items()
    ]
    outcomes = yield from ask_all(calls, OffsetDeleteResponse)
    codes: dict[str, int] = {}
    for name, outcome in zip(deletion.parts, outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            codes[name] = ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            codes[name] = outcome.error_code
            deletion.errors.take(outcome.topics)
        if codes[name] in COORDINATOR_MOVED:
            yield Forget(name, coordinator)
    if any(code in NOT_YET_KNOWN for code in codes.values()):
        return next(for_clients(code) for code in codes.values() if code in NOT_YET_KNOWN)
    if set(codes.values()) - {ErrorCode.GROUP_ID_NOT_FOUND}:
        deletion.known = True
    for name, code in codes.items():
        if code == ErrorCode.GROUP_ID_NOT_FOUND and deletion.known:
            codes[name] = ErrorCode.NONE
            deletion.errors.settle(deletion.parts[name], ErrorCode.NONE)
        elif code:
            deletion.errors.settle(deletion.parts[name], code)
    agreed = set(codes.values())
    return agreed.pop() if len(agreed) == 1 and ErrorCode.NONE not in agreed else None
