"""GroupService: consumer groups over all clusters, as their clusters describe them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from mesh.rpc import topics, topics_grpc
from services.control.api import pages
from services.control.api.lag_answers import LagAnswers
from services.control.decisions.topics.looking import Looking
from services.control.domain.errors import InvalidField, Unknown
from services.control.domain.log_ranges import LogRange
from services.control.domain.topics.groups import GroupState, GroupType, MeshGroup
from services.control.domain.topics.topics import lag_of
from services.control.store.journal import Journal

STATES = {
    GroupState.UNKNOWN: topics.CONSUMER_GROUP_STATE_UNSPECIFIED,
    GroupState.STABLE: topics.CONSUMER_GROUP_STATE_STABLE,
    GroupState.PREPARING_REBALANCE: topics.CONSUMER_GROUP_STATE_PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE: topics.CONSUMER_GROUP_STATE_COMPLETING_REBALANCE,
    GroupState.ASSIGNING: topics.CONSUMER_GROUP_STATE_ASSIGNING,
    GroupState.RECONCILING: topics.CONSUMER_GROUP_STATE_RECONCILING,
    GroupState.NOT_READY: topics.CONSUMER_GROUP_STATE_NOT_READY,
    GroupState.EMPTY: topics.CONSUMER_GROUP_STATE_EMPTY,
    GroupState.DEAD: topics.CONSUMER_GROUP_STATE_DEAD,
}
TYPES = {
    GroupType.UNKNOWN: topics.CONSUMER_GROUP_TYPE_UNSPECIFIED,
    GroupType.CLASSIC: topics.CONSUMER_GROUP_TYPE_CLASSIC,
    GroupType.CONSUMER: topics.CONSUMER_GROUP_TYPE_CONSUMER,
    GroupType.SHARE: topics.CONSUMER_GROUP_TYPE_SHARE,
    GroupType.STREAMS: topics.CONSUMER_GROUP_TYPE_STREAMS,
}
GROUPS = "groups"
NOT_KNOWN = -1
Logs = Mapping[str, Mapping[int, LogRange]]
Offsets = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> committed offset, of one group."""


class GroupService(topics_grpc.GroupServiceServicer):
    """See GroupService in topics.proto."""

    def __init__(self, journal: Journal, looking: Looking, lag: LagAnswers) -> None:
        self._journal = journal
        self._looking = looking
        self._lag = lag

    async def ListGroups(self, request: topics.ListGroupsRequest, context: Any) -> topics.ListGroupsResponse:
        self._journal.require_loaded()
        known = await self._looking.groups()
        found = [
            each
            for each in known.groups.values()
            if request.part in each.name and (not request.state or STATES[each.there.state] == request.state)
        ]
        listing = f"{GROUPS} {request.state} {request.part}"
        keys = [each.name for each in found]
        page, token = pages.cut(listing, found, keys, request.page_size, request.page_token)
        members, offsets, logs, problems = await self._looked_at(page)
        return topics.ListGroupsResponse(
            groups=[_shape(each, members.get(each.name), offsets.get(each.name), logs) for each in page],
            next_page_token=token,
            total=len(found),
            problems=dict.fromkeys([*known.problems, *problems]),
        )

    async def GetGroup(self, request: topics.GetGroupRequest, context: Any) -> topics.GetGroupResponse:
        self._journal.require_loaded()
        name = _group_of(request.name)
        known = await self._looking.groups()
        group = known.groups.get(name)
        if group is None:
            also = f"; {'; '.join(known.problems)}" if known.problems else ""
            raise Unknown(request.name, f"no cluster that answers knows a group {name!r}{also}")
        members, offsets, logs, problems = await self._looked_at([group])
        who, mine = members.get(name), offsets.get(name)
        answer = topics.GetGroupResponse(
            group=_shape(group, who, mine, logs), problems=dict.fromkeys([*known.problems, *problems])
        )
        for each in who or ():
            answer.members.add(
                client_id=each.client_id, host=each.host.lstrip("/"), instance_id=each.instance_id,
                member_id=each.member_id, partitions=each.partitions,
            )  # fmt: skip
        for topic, partitions in sorted((mine or {}).items()):
            route = self._journal.view.state.effective.route(topic)
            for partition, committed in sorted(partitions.items()):
                log = logs.get(topic, {}).get(partition)
                answer.positions.add(
                    topic=topic, partition=partition, cluster="" if route is None else route.cluster,
                    committed=committed, start=NOT_KNOWN if log is None else log.start,
                    end=NOT_KNOWN if log is None else log.end,
                )  # fmt: skip
        return answer

    async def QueryLag(self, request: topics.QueryLagRequest, context: Any) -> topics.QueryLagResponse:
        return await self._lag.answer(_group_of(request.name), request)

    async def _looked_at(
        self, groups: Collection[MeshGroup]
    ) -> tuple[Mapping[str, tuple[Any, ...]], Mapping[str, Offsets], Logs, list[str]]:
        """Members by group, offsets by group, logs by topic, and sentences about what is not known."""
        (members, untold), offsets = await asyncio.gather(self._looking.members(groups), self._looking.offsets(groups))
        read = {topic for topics_of in offsets.by_group.values() for topic in topics_of}
        logs, away = await self._looking.logs_of(read)
        return members, offsets.by_group, logs, [*untold, *offsets.problems, *away]


def _group_of(resource: str) -> str:
    collection, _, name = resource.partition("/")
    if collection != GROUPS or not name:
        raise InvalidField("name", f"{resource!r} is not a resource name of the form {GROUPS}/GROUP")
    return name


def _shape(
    group: MeshGroup, members: tuple[Any, ...] | None, offsets: Offsets | None, logs: Logs
) -> topics.ConsumerGroup:
    shape = topics.ConsumerGroup(
        name=f"{GROUPS}/{group.name}", state=STATES[group.there.state], type=TYPES[group.there.type], home=group.home,
        clusters=group.clusters,
    )  # fmt: skip
    if members is not None:
        shape.members = len(members)
    if offsets is not None and all(topic in logs for topic in offsets):
        shape.lag = sum(lag_of(partitions, logs[topic]) for topic, partitions in offsets.items())
    return shape
