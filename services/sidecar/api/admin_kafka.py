"""`/adm/kafka/...`: topics and consumer instances as operators see them, and the operators' orders to instances."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mesh.instance_names import INSTANCES
from mesh.rpc import subscriptions as rpc
from services.sidecar.admin.topics import Topics, WantedTopic
from services.sidecar.api.consumers import epoch_ms
from services.sidecar.api.contract import CONTRACT, parameters
from services.sidecar.api.requests import checked_body
from services.sidecar.api.status import json_response
from services.sidecar.consuming.positions import AtOffset, AtTime, Edge, Place, SeekTarget
from services.sidecar.control.messages import resource_name
from services.sidecar.control.orders import Consumer, Orders
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.settings import SidecarSettings

DEFAULT_DRAIN_MS = 30_000

Reports = Sequence[rpc.SubscriptionReport]

log = structlog.get_logger(__name__)


class AdminKafkaEndpoints:
    """The endpoints for this sidecar's work with Kafka."""

    def __init__(
        self, settings: SidecarSettings, orders: Orders, topics: Topics, subscriptions: Callable[[], Reports]
    ) -> None:
        self._settings = settings
        self._orders = orders
        self._topics = topics
        self._subscriptions = subscriptions
        self._open: set[asyncio.Task[Any]] = set()

    def routes(self) -> list[Route]:
        return CONTRACT.routes(
            self.list_topics,
            self.create_topic,
            self.describe_topic,
            self.list_consumers,
            self.list_subscriptions,
            self.pause_consumer,
            self.resume_consumer,
            self.seek_consumer,
            self.drain_consumer,
        )

    async def list_topics(self, request: Request) -> Response:
        return json_response([asdict(topic) for topic in await self._topics.all()])

    async def create_topic(self, request: Request) -> Response:
        asked = await checked_body(request, self._settings.max_request_bytes)
        wanted = WantedTopic(
            asked["topic"], asked.get("partitions"), asked.get("replicationFactor"), asked.get("settings", {})
        )
        return json_response(asdict(await self._topics.create(wanted)), 201)

    async def describe_topic(self, request: Request) -> Response:
        name = parameters(request)["topic"]
        topic = await self._topics.one(name)
        if topic is None:
            raise Fault(FaultKind.TOPIC_NOT_FOUND, f"There is no topic {name[:249]!r} that this sidecar can see")
        return json_response(asdict(topic))

    async def list_consumers(self, request: Request) -> Response:
        return json_response(await asyncio.gather(*(_detail(each) for each in self._orders.consumers())))

    async def list_subscriptions(self, request: Request) -> Response:
        return json_response([_subscription(each) for each in self._subscriptions()])

    async def pause_consumer(self, request: Request) -> Response:
        instance = self._named(request)
        return await self._ordered("pause", instance, self._orders.pause(resource_name(instance.id)))

    async def resume_consumer(self, request: Request) -> Response:
        instance = self._named(request)
        return await self._ordered("resume", instance, self._orders.resume(resource_name(instance.id)))

    async def seek_consumer(self, request: Request) -> Response:
        asked = await checked_body(request, self._settings.max_request_bytes)
        instance = self._named(request)
        to = SeekTarget(_place(asked), asked.get("topic", ""), asked.get("partition"))
        return await self._ordered("seek", instance, self._orders.seek(resource_name(instance.id), to))

    async def drain_consumer(self, request: Request) -> Response:
        asked = await checked_body(request, self._settings.max_request_bytes) or {}
        instance = self._named(request)
        patience = (asked.get("timeoutMs") or DEFAULT_DRAIN_MS) / 1000
        return await self._ordered("drain", instance, self._orders.drain(resource_name(instance.id), patience))

    async def _ordered(self, command: str, instance: Consumer, work: Coroutine[Any, Any, object]) -> Response:
        """Carried out to its end, even if that comes after the time that a call may take."""
        task = asyncio.create_task(work, name=f"order {command}")
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may be gone
        await asyncio.shield(task)
        log.info("an operator's order over HTTP", command=command, target=resource_name(instance.id))
        return json_response(await _detail(instance))

    def _named(self, request: Request) -> Consumer:
        name = parameters(request)["name"]
        for instance in self._orders.consumers():
            if _name(instance) == name:
                return instance
        raise Fault(
            FaultKind.CONSUMER_INSTANCE_NOT_FOUND,
            f"No consumer instance {name[:499]!r} (group.instance); GET /adm/kafka/consumers has them all",
        )


def _subscription(report: rpc.SubscriptionReport) -> dict[str, object]:
    shown: dict[str, object] = {
        "name": report.name,
        "source": rpc.SubscriptionSource.Name(report.source).removeprefix("SUBSCRIPTION_SOURCE_").lower(),
        "state": rpc.SubscriptionState.Name(report.state).removeprefix("SUBSCRIPTION_STATE_").lower(),
    }
    more = {
        "consumer": report.instance.removeprefix(INSTANCES),
        "problem": report.problem,
        "revision": report.revision,
    }
    return shown | {name: value for name, value in more.items() if value}


def _name(instance: Consumer) -> str:
    return f"{instance.id.group}.{instance.id.instance}"


def _place(asked: dict[str, Any]) -> Place:
    if "offset" in asked:
        return AtOffset(asked["offset"])
    if "timestamp" in asked:
        return AtTime(epoch_ms(asked["timestamp"], "/timestamp"))
    return Edge.FIRST if asked["to"] == "first" else Edge.LAST


async def _detail(instance: Consumer) -> dict[str, object]:
    status = await instance.status()
    shown: dict[str, object] = {
        "name": _name(instance),
        "group": instance.id.group,
        "instance": instance.id.instance,
        "topics": instance.interest.topics,
        "state": status.state.value,
        "lastUsed": int(status.last_used_at * 1000),
        "partitions": [
            {
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "position": one.position,
                "committed": one.committed,
                "lag": one.lag,
            }
            for one in status.partitions
        ],
    }
    if instance.interest.pattern:
        shown["topicPattern"] = instance.interest.pattern
    if status.problem:
        shown["problem"] = status.problem
    return shown
