"""TopicService: topics over all clusters, as their clusters describe them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, MutableSequence
from typing import Any

from mesh.routing import Place
from mesh.rpc import topics, topics_grpc
from services.control.api import pages, shapes
from services.control.api.calls import caller, once, once_with_revision
from services.control.decisions.answers import stored_response
from services.control.decisions.forks.commands import ForkDecisions
from services.control.decisions.stitches.parts import PartAnswers
from services.control.decisions.topics.looking import Looking
from services.control.decisions.topics.owners import OwnerDecisions
from services.control.domain.errors import InvalidField, Unavailable, Unknown
from services.control.domain.stitches.forks import fork_of, forks_of
from services.control.domain.topics.owners import owner_of
from services.control.domain.topics.topics import Order, SeenTopic, Setting, Wanted, lag_of
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections, UnreachableError

ORDERS = {
    topics.TOPIC_ORDER_UNSPECIFIED: Order.NAME,
    topics.TOPIC_ORDER_NAME: Order.NAME,
    topics.TOPIC_ORDER_CLUSTER: Order.CLUSTER,
    topics.TOPIC_ORDER_PARTITIONS: Order.PARTITIONS,
}
TOPICS = "topics"
FORKS = "topicforks"
MOST_NAMES = 1000
"""As many as a page may have."""


class TopicService(topics_grpc.TopicServiceServicer):
    """See TopicService in topics.proto."""

    def __init__(self, journal: Journal, connections: Connections, looking: Looking, forks: ForkDecisions) -> None:
        self._journal = journal
        self._connections = connections
        self._looking = looking
        self._forks = forks
        self._owners = OwnerDecisions(journal)
        self._parts = PartAnswers(journal, connections)

    async def ListTopics(self, request: topics.ListTopicsRequest, context: Any) -> topics.ListTopicsResponse:
        self._journal.require_loaded()
        if request.order not in ORDERS:
            raise InvalidField("order", f"{request.order} is no order that this release knows")
        if len(request.topics) > MOST_NAMES:
            raise InvalidField("topics", f"has {len(request.topics):,} names, and may have {MOST_NAMES:,}")
        order, names = ORDERS[request.order], frozenset(request.topics)
        wanted = Wanted(request.prefix, request.part, request.cluster, names)
        known = await self._looking.topics()
        let_through = filter(wanted.lets_through, known.topics)
        if request.owner:
            owners = self._owners.known
            let_through = filter(lambda each: owner_of(owners, each.name) == request.owner, let_through)
        found = sorted(let_through, key=lambda each: each.key(order))
        keys = [each.key(order) for each in found]
        page, token = pages.cut(pages.listing_of(TOPICS, request), found, keys, request.page_size, request.page_token)
        answer = topics.ListTopicsResponse(
            topics=map(self._shape, page), next_page_token=token, total=len(found), unreached=known.unreached,
            problems=known.problems, revision=known.revision,
        )  # fmt: skip
        if request.groups:
            reading, logs, problems = await self._read(page)
            silent = (await self._looking.readers()).silent
            for shape in answer.topics:
                if shape.cluster not in silent:
                    _add_groups(shape, reading, logs)
            answer.problems.extend(each for each in problems if each not in answer.problems)
        if request.sizes:
            await self._add_sizes(page, answer.topics, answer.problems)
        return answer

    async def GetTopic(self, request: topics.GetTopicRequest, context: Any) -> topics.GetTopicResponse:
        self._journal.require_loaded()
        topic = shapes.id_of(TOPICS, request.name)
        shapes.check_topic(topic)
        seen = await self._seen(topic)
        answer = topics.GetTopicResponse(topic=self._shape(seen))
        (settings, untold), (reading, logs, problems) = await asyncio.gather(self._settings(seen), self._read([seen]))
        answer.settings.extend(topics.TopicSetting(name=each.name, value=each.value, own=each.own) for each in settings)
        answer.problems.extend(dict.fromkeys([*untold, *problems]))
        if seen.place.cluster not in (await self._looking.readers()).silent:
            _add_groups(answer.topic, reading, logs)
        for group, offsets in sorted(reading.get(topic, {}).items()):
            lag = lag_of(offsets, logs[topic]) if topic in logs else None
            answer.readers.add(group=group, partitions=len(offsets), lag=lag)
        await self._add_sizes([seen], [answer.topic], answer.problems)
        return answer

    async def GetTopicParts(self, request: topics.GetTopicPartsRequest, context: Any) -> topics.GetTopicPartsResponse:
        self._journal.require_loaded()
        topic = shapes.id_of(TOPICS, request.name)
        shapes.check_topic(topic)
        return await self._parts.of(topic)

    async def ForkTopic(self, request: topics.ForkTopicRequest, context: Any) -> topics.TopicFork:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)
        forking = self._forks.fork(request, who, lambda fork: stored_response(who, fork))
        return await once(topics.TopicFork, forking)

    async def DeleteTopicFork(self, request: topics.DeleteTopicForkRequest, context: Any) -> topics.TopicFork:
        self._journal.require_loaded()
        topic = shapes.id_of(TOPICS, request.name)
        shapes.check_topic(topic)
        who = caller(request, request.request_id, request.reason)
        deleting = self._forks.delete(topic, who, lambda fork: stored_response(who, fork))
        return await once(topics.TopicFork, deleting)

    async def ListTopicForks(
        self, request: topics.ListTopicForksRequest, context: Any
    ) -> topics.ListTopicForksResponse:
        self._journal.require_loaded()
        found = [*map(fork_of, forks_of(self._journal.view.state.effective, request.source_topic))]
        keys = [each.name for each in found]
        page, token = pages.cut(pages.listing_of(FORKS, request), found, keys, request.page_size, request.page_token)
        return topics.ListTopicForksResponse(forks=page, next_page_token=token)

    async def _add_sizes(
        self, seen: Collection[SeenTopic], listed: Collection[topics.Topic], problems: MutableSequence[str]
    ) -> None:
        sizes, untold = await self._looking.sizes(seen)
        for shape in listed:
            name = shape.name.removeprefix(f"{TOPICS}/")
            if name in sizes:
                shape.size_bytes = sizes[name]
        problems.extend(each for each in untold if each not in problems)

    async def SetTopicOwner(self, request: topics.SetTopicOwnerRequest, context: Any) -> topics.SetTopicOwnerResponse:
        self._journal.require_loaded()
        topic = shapes.id_of(TOPICS, request.name)
        shapes.check_topic(topic)
        if request.owner:
            await self._seen(topic)
        who = caller(request, request.request_id, request.reason)
        return await once_with_revision(
            topics.SetTopicOwnerResponse, who, lambda answer: self._owners.set(topic, request.owner, who, answer)
        )

    async def _settings(self, seen: SeenTopic) -> tuple[list[Setting], list[str]]:
        """The settings, and a sentence if the cluster does not say them."""
        cluster = self._journal.view.state.effective.clusters.get(seen.place.cluster)
        if cluster is None:  # removed amid the call
            return [], [f"cluster {seen.place.cluster!r} is not registered any more"]
        try:
            return await self._connections.all_settings(cluster, seen.place.upstream_topic), []
        except UnreachableError as error:
            return [], [str(error)]

    def _shape(self, seen: SeenTopic) -> topics.Topic:
        return topics.Topic(
            name=f"{TOPICS}/{seen.name}", cluster=seen.place.cluster, upstream_topic=seen.place.upstream_topic,
            partitions=seen.partitions, rule=f"rules/{seen.rule_id}", owner=owner_of(self._owners.known, seen.name),
        )  # fmt: skip

    async def _seen(self, topic: str) -> SeenTopic:
        table = self._journal.view.state.effective
        route = table.route(topic)
        if route is None:
            raise Unknown(f"topics/{topic}", f"topic {topic!r} lives nowhere: no rule leads to a registered cluster")
        try:
            partitions = await self._connections.partitions_of(table.clusters[route.cluster], route.upstream_topic)
        except UnreachableError as error:
            raise Unavailable("CLUSTER_UNREACHABLE", str(error), {"cluster": route.cluster}) from None
        if partitions is None:
            text = f"topic {topic!r} does not exist on cluster {route.cluster!r}, where the rules look for it"
            raise Unknown(f"topics/{topic}", text)
        return SeenTopic(topic, Place(route.cluster, route.upstream_topic), partitions, route.rule.rule_id)

    async def _read(self, seen: Collection[SeenTopic]) -> tuple[Mapping[str, Any], Mapping[str, Any], list[str]]:
        """Topic -> group -> offsets, topic -> log, and sentences about what is not known."""
        readers, (logs, problems) = await asyncio.gather(
            self._looking.readers(), self._looking.logs((each.name, each.place, each.partitions) for each in seen)
        )
        return readers.reading, logs, list(dict.fromkeys([*readers.silent.values(), *problems]))


def _add_groups(shape: topics.Topic, reading: Mapping[str, Any], logs: Mapping[str, Any]) -> None:
    topic = shape.name.removeprefix(f"{TOPICS}/")
    groups = reading.get(topic, {})
    shape.groups = len(groups)
    if groups and topic in logs:
        shape.lag = max(lag_of(offsets, logs[topic]) for offsets in groups.values())
