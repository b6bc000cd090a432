"""`/consumers/{group}` and the calls on its instances, but for their records."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.sidecar.api.authentication import caller_of, check_may_use
from services.sidecar.api.contract import CONTRACT, parameters
from services.sidecar.api.public_address import public_address
from services.sidecar.api.requests import checked_body
from services.sidecar.api.status import json_response, no_content
from services.sidecar.auditing.active import ActiveAudit
from services.sidecar.consuming.instance import ConsumerInstance
from services.sidecar.consuming.instance_values import GroupProtocol, HeaderShape, InstanceId, InstanceOptions
from services.sidecar.consuming.instances import Instances
from services.sidecar.consuming.positions import AtOffset, AtTime, Edge, Place, Seek, SeekTarget
from services.sidecar.faults import Fault, FaultKind, invalid
from services.sidecar.formats import Format
from services.sidecar.formats.format import available_labels
from services.sidecar.formats.registered import WHAT_TO_SET
from services.sidecar.records import Commit, Consumption, Partition
from services.sidecar.settings import SidecarSettings

_OFFSET_RESETS = {"latest": "latest", "earliest": "earliest", "none": "error"}
"""Kafka's words, and librdkafka's."""
_MAX_MS = 253_402_300_799_999
"""The end of the year 9999, as far as ISO 8601 goes."""


class ConsumerEndpoints:
    """The backend's calls on consumer instances: it makes, subscribes, moves and deletes them."""

    def __init__(self, instances: Instances, settings: SidecarSettings, audit: ActiveAudit) -> None:
        self._instances = instances
        self._settings = settings
        self._audit = audit

    def routes(self) -> list[Route]:
        return CONTRACT.routes(
            self.create_instance,
            self.delete_instance,
            self.subscribe,
            self.get_subscriptions,
            self.unsubscribe,
            self.assign,
            self.get_assignments,
            self.seek,
            self.seek_to_first,
            self.seek_to_last,
            self.commit_offsets,
            self.get_committed_offsets,
        )

    async def create_instance(self, request: Request) -> Response:
        name, uri = await self.created(request, await self._body(request), self._settings.public_url)
        # the recorded names, then those of the published specification
        return json_response({"instance_id": name, "base_uri": uri, "instanceId": name, "baseUri": uri})

    async def created(self, request: Request, asked: dict[str, Any], public_url: str) -> tuple[str, str]:
        """Makes an instance; its name, and its address below the public one."""
        group = parameters(request)["group"]
        instance = await self._instances.create(group, asked.get("id") or asked.get("name"), self._options(asked))
        name = instance.id.instance
        address = public_address(request, public_url, trust_forwarded=self._settings.trust_forwarded_headers)
        return name, f"{address}/consumers/{quote(group, safe='')}/instances/{quote(name, safe='')}"

    async def delete_instance(self, request: Request) -> Response:
        await self._instances.delete(self.instance(request).id)
        return no_content()

    # what is read

    async def subscribe(self, request: Request) -> Response:
        await self.subscribed(request, await self._body(request))
        return no_content()

    async def subscribed(self, request: Request, asked: dict[str, Any]) -> None:
        """Subscribes the instance to topics or to a pattern."""
        instance = self.instance(request)
        topics: list[str] | None = asked.get("topics")
        if topics:
            caller_of(request).check_reads(topics)
            await instance.subscribe(tuple(dict.fromkeys(topics)))
        elif topics is not None:
            await instance.unsubscribe()  # as Kafka's own client takes an empty list
        elif asked.get("topic_pattern"):
            caller_of(request).check_reads((), asked["topic_pattern"])
            await instance.subscribe_pattern(asked["topic_pattern"])
        await self._instances.changed(instance)

    async def get_subscriptions(self, request: Request) -> Response:
        return json_response({"topics": await self.instance(request).subscription()})

    async def unsubscribe(self, request: Request) -> Response:
        instance = self.instance(request)
        await instance.unsubscribe()
        await self._instances.changed(instance)
        return no_content()

    async def assign(self, request: Request) -> Response:
        partitions = await self._partitions(request)
        instance = self.instance(request)
        await instance.assign(tuple(dict.fromkeys(partitions)))
        await self._instances.changed(instance)
        return no_content()

    async def get_assignments(self, request: Request) -> Response:
        partitions = await self.instance(request).assignment()
        return json_response({"partitions": [{"topic": one.topic, "partition": one.partition} for one in partitions]})

    # where it goes on

    async def seek(self, request: Request) -> Response:
        asked = await self._body(request)
        instance = self.instance(request)
        seeks = [Seek(_partition(one), AtOffset(one["offset"])) for one in asked.get("offsets", ())]
        seeks += [
            Seek(_partition(one), AtTime(epoch_ms(one["timestamp"], f"/timestamps/{index}/timestamp")))
            for index, one in enumerate(asked.get("timestamps", ()))
        ]
        if seeks:
            check_reads(request, (one.partition for one in seeks))
            await instance.move(seeks)
        return no_content()

    async def seek_to_first(self, request: Request) -> Response:
        return await self._seek_to(request, Edge.FIRST)

    async def seek_to_last(self, request: Request) -> Response:
        return await self._seek_to(request, Edge.LAST)

    async def _seek_to(self, request: Request, edge: Place) -> Response:
        partitions = await self._partitions(request)
        instance = self.instance(request)
        if partitions:
            await instance.move([Seek(partition, edge) for partition in partitions])
        else:
            await instance.move_all(SeekTarget(edge))  # as Kafka's own client takes an empty list
        return no_content()

    # how far the group is

    async def commit_offsets(self, request: Request) -> Response:
        asked = await self._body(request)
        wait = not parameters(request).get("async", False)
        done = None if asked is None or "offsets" not in asked else consumptions(asked["offsets"])
        return json_response([committed(one, known=wait) for one in await self.commits(request, done, wait=wait)])

    async def commits(self, request: Request, done: list[Consumption] | None, *, wait: bool = True) -> list[Commit]:
        """Commits these records, or all that were read."""
        instance = self.instance(request)
        check_reads(request, (one.partition for one in done or ()))
        return await self._audit.commit(done, instance.commit(done, wait=wait), known=wait)

    async def get_committed_offsets(self, request: Request) -> Response:
        partitions = await self._partitions(request)
        commits = await self.instance(request).committed(partitions)
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

    def instance(self, request: Request) -> ConsumerInstance:
        """The instance of the request. Fault if there is none, or if the caller may not use it."""
        instance = self._instances.get(instance_id(request))
        check_may_use(request, instance)
        return instance

    async def _body(self, request: Request) -> Any:
        return await checked_body(request, self._settings.max_request_bytes)

    async def _partitions(self, request: Request) -> list[Partition]:
        partitions = [_partition(one) for one in (await self._body(request)).get("partitions", ())]
        check_reads(request, partitions)
        return partitions

    def _options(self, asked: dict[str, Any]) -> InstanceOptions:
        both = asked.get("format")
        usual_key, usual_value = self._settings.instance_formats
        key_format = Format.parse(asked.get("keyFormat", usual_key if both is None else both))
        value_format = Format.parse(asked.get("valueFormat", usual_value if both is None else both))
        for format_ in (key_format, value_format):
            check_available(format_, FaultKind.INVALID_EMBEDDED_FORMAT, self._settings)
        reset = asked.get("autoOffsetReset", self._settings.auto_offset_reset)
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
            auto_commit=str(asked.get("autoCommitEnable", False)).lower() == "true",
            headers=HeaderShape(asked.get("headers", HeaderShape.MAP.value)),
            group_instance_id=asked.get("groupInstanceId", ""),
            group_protocol=GroupProtocol(asked.get("groupProtocol", GroupProtocol.CLASSIC.value)),
        )


def instance_id(request: Request) -> InstanceId:
    """The id of the instance that the request names."""
    given = parameters(request)
    return InstanceId(given["group"], given["instance"])


def check_reads(request: Request, partitions: Iterable[Partition]) -> None:
    """Fault if this caller may not read one of the partitions."""
    caller_of(request).check_reads(partition.topic for partition in partitions)


def check_available(format_: Format, kind: FaultKind, settings: SidecarSettings) -> None:
    """Fault when this sidecar cannot use a format."""
    if format_.kind is not None and not settings.schema_registry_url:
        raise Fault(kind, f"Format {format_.label} {WHAT_TO_SET}; formats without one: {available_labels()}")


def consumptions(asked: list[dict[str, Any]]) -> list[Consumption]:
    """Offsets of a body: of the last records that were read."""
    return [Consumption(_partition(one), one["offset"], one.get("metadata", "")) for one in asked]


def committed(commit: Commit, *, known: bool) -> dict[str, object]:
    """`consumed` is the last offset read.

    `committed` is the next offset to read, shown only if Kafka has confirmed the commit.
    """
    shown: dict[str, object] = {
        "topic": commit.partition.topic,
        "partition": commit.partition.partition,
        "consumed": commit.offset - 1,
    }
    if known:
        shown["committed"] = commit.offset
    return shown


def epoch_ms(given: str | int, pointer: str) -> int:
    """A time by ISO 8601 (UTC by default), or in milliseconds since 1970."""
    if isinstance(given, str) and not given.isdecimal():
        try:
            time = datetime.fromisoformat(given)
        except ValueError:
            raise invalid(
                pointer,
                f"{given[:50]!r} is no time; write 2026-01-31T12:00:00Z, or milliseconds since 1970",
            ) from None
        given = int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    ms = int(given)
    if not 0 <= ms <= _MAX_MS:
        raise invalid(pointer, "must be between 1970 and 9999")
    return ms


def _partition(given: dict[str, Any]) -> Partition:
    return Partition(given["topic"], given["partition"])
