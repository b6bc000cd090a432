"""`/consumers/{group}` and the calls on its instances."""

from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.sidecar.api.requests import body_of, parsed, query_boolean, query_format, query_integer
from services.sidecar.api.shapes import CREATE_INSTANCE, OFFSETS, PARTITIONS, SUBSCRIPTION, name
from services.sidecar.api.status import json_response, no_content
from services.sidecar.consuming.instance import ConsumerInstance
from services.sidecar.consuming.instances import Instances
from services.sidecar.consuming.records import (
    Commit,
    Consumed,
    Consumption,
    InstanceId,
    InstanceOptions,
    Partition,
    ReadRequest,
)
from services.sidecar.faults import Fault, FaultKind, invalid
from services.sidecar.formats import Format
from services.sidecar.formats.format import available_labels
from services.sidecar.producing.records import CORRELATION_HEADER, new_correlation_id
from services.sidecar.settings import SidecarSettings

_OFFSET_RESETS = {"latest": "latest", "earliest": "earliest", "none": "error"}
"""Kafka's words, and librdkafka's."""


class ConsumerEndpoints:
    """Consumer instances that the backend makes, reads from and deletes."""

    def __init__(self, instances: Instances, settings: SidecarSettings) -> None:
        self._instances = instances
        self._settings = settings

    def routes(self) -> list[Route]:
        instance = "/consumers/{group}/instances/{instance}"
        return [
            Route("/consumers/{group}", self.create_instance, methods=["POST"]),
            Route(instance, self.delete_instance, methods=["DELETE"]),
            Route(f"{instance}/subscriptions", self.subscribe, methods=["POST"]),
            Route(f"{instance}/subscriptions", self.get_subscriptions, methods=["GET"]),
            Route(f"{instance}/subscriptions", self.unsubscribe, methods=["DELETE"]),
            Route(f"{instance}/assignments", self.get_assignments, methods=["GET"]),
            Route(f"{instance}/records", self.read_records, methods=["GET"]),
            Route(f"{instance}/offsets", self.commit_offsets, methods=["POST"]),
            Route(f"{instance}/offsets", self.get_committed_offsets, methods=["PUT"]),
        ]

    async def create_instance(self, request: Request) -> Response:
        asked = CREATE_INSTANCE(await self._json(request), "")
        group = name(request.path_params["group"], "/group")
        instance = await self._instances.create(group, asked.get("id") or asked.get("name"), self._options(asked))
        instance_id = instance.id.instance
        path = f"/consumers/{quote(group, safe='')}/instances/{quote(instance_id, safe='')}"
        # the recorded names, then those of the published specification
        return json_response({"instance_id": instance_id, "base_uri": path, "instanceId": instance_id, "baseUri": path})

    async def delete_instance(self, request: Request) -> Response:
        await self._instances.delete(_id(request))
        return no_content()

    async def subscribe(self, request: Request) -> Response:
        instance = self._instance(request)
        asked = SUBSCRIPTION(await self._json(request), "")
        topics: list[str] | None = asked.get("topics")
        if topics:
            await instance.subscribe(tuple(dict.fromkeys(topics)))
        elif topics is not None:
            await instance.unsubscribe()  # as Kafka's own client takes an empty list
        elif asked.get("topic_pattern"):
            await instance.subscribe_pattern(asked["topic_pattern"])
        self._instances.on_change()
        return no_content()

    async def get_subscriptions(self, request: Request) -> Response:
        return json_response({"topics": await self._instance(request).subscription()})

    async def unsubscribe(self, request: Request) -> Response:
        await self._instance(request).unsubscribe()
        self._instances.on_change()
        return no_content()

    async def get_assignments(self, request: Request) -> Response:
        partitions = await self._instance(request).assignment()
        return json_response({"partitions": [{"topic": one.topic, "partition": one.partition} for one in partitions]})

    async def read_records(self, request: Request) -> Response:
        instance = self._instance(request)
        timeout_ms = query_integer(request, "timeout")
        max_bytes = query_integer(request, "max_bytes", "maxBytes")
        format_ = query_format(request, "format")
        if format_ is not None:
            _check_available(format_, FaultKind.CONSUMER_FORMAT_MISMATCH)
        bound = self._settings.request_max_bytes
        asked = ReadRequest(
            max_bytes=bound if max_bytes is None else min(max_bytes, bound),
            timeout=None if timeout_ms is None else min(timeout_ms, self._settings.max_read_ms) / 1000,
            format=format_,
        )
        try:
            records = await instance.read(asked)
        except TimeoutError:
            raise Fault(
                FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION, "The consumer did not answer in time; read again later"
            ) from None
        if records and await request.is_disconnected():
            await instance.give_back(records)
        return json_response([_shown(record) for record in records])

    async def commit_offsets(self, request: Request) -> Response:
        instance = self._instance(request)
        wait = not query_boolean(request, "async")
        body = await body_of(request, self._settings.max_request_bytes)
        asked = OFFSETS(parsed(request, body), "").get("offsets") if body else None
        consumptions = None if asked is None else [_consumption(given) for given in asked]
        commits = await instance.commit(consumptions, wait=wait)
        return json_response([_committed(one, known=wait) for one in commits])

    async def get_committed_offsets(self, request: Request) -> Response:
        instance = self._instance(request)
        asked = PARTITIONS(await self._json(request), "")
        commits = await instance.committed(
            [Partition(given["topic"], given["partition"]) for given in asked["partitions"]]
        )
        offsets = [
            {
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "offset": one.offset,
                "metadata": one.metadata,
            }
            for one in commits
        ]
        return json_response({"offsets": offsets})

    def _instance(self, request: Request) -> ConsumerInstance:
        return self._instances.get(_id(request))

    async def _json(self, request: Request) -> Any:
        return parsed(request, await body_of(request, self._settings.max_request_bytes))

    def _options(self, asked: dict[str, Any]) -> InstanceOptions:
        both = asked.get("format")
        key_format = asked.get("keyFormat") or both or self._settings.key_format
        value_format = asked.get("valueFormat") or both or self._settings.value_format
        for format_ in (key_format, value_format):
            _check_available(format_, FaultKind.INVALID_EMBEDDED_FORMAT)
        reset = asked.get("autoOffsetReset", "earliest")
        if reset not in _OFFSET_RESETS:
            raise Fault(
                FaultKind.CONSUMER_CONFIG_EXCEPTION,
                f"Consumer configuration exception with message Invalid value {reset} for configuration "
                "auto.offset.reset: String must be one of: latest, earliest, none",
            )
        wait_ms = asked.get("requestWaitMs", self._settings.request_timeout_ms)
        if wait_ms > self._settings.max_read_ms:
            raise invalid("/requestWaitMs", f"must have a maximum value of {self._settings.max_read_ms}")
        return InstanceOptions(
            key_format=key_format,
            value_format=value_format,
            read_timeout=wait_ms / 1000,
            min_bytes=asked.get("responseMinBytes", -1),
            offset_reset=_OFFSET_RESETS[reset],
            auto_commit=asked.get("autoCommitEnable", False),
        )


def _id(request: Request) -> InstanceId:
    return InstanceId(request.path_params["group"], request.path_params["instance"])


def _check_available(format_: Format, kind: FaultKind) -> None:
    if not format_.codec.available:
        raise Fault(
            kind,
            f"Format {format_.label} needs a schema registry, which this sidecar does not use yet; "
            f"formats without one: {available_labels()}",
        )


def _consumption(given: dict[str, Any]) -> Consumption:
    return Consumption(Partition(given["topic"], given["partition"]), given["offset"], given.get("metadata", ""))


def _committed(commit: Commit, *, known: bool) -> dict[str, object]:
    """`consumed` is the last offset read, `committed` the next one to read; the latter only if Kafka has said so."""
    shown: dict[str, object] = {
        "topic": commit.partition.topic,
        "partition": commit.partition.partition,
        "consumed": commit.offset - 1,
    }
    if known:
        shown["committed"] = commit.offset
    return shown


def _shown(record: Consumed) -> dict[str, object]:
    """A record; null keys and values are left out, and there is always a correlation id."""
    shown: dict[str, object] = {"topic": record.topic}
    if record.key is not None:
        shown["key"] = record.key
    if record.value is not None:
        shown["value"] = record.value
    headers = record.headers
    if CORRELATION_HEADER not in headers:
        headers = {**headers, CORRELATION_HEADER: new_correlation_id()}
    shown.update(headers=headers, partition=record.partition, offset=record.offset, timestamp=record.timestamp)
    return shown
