"""What a client has said and heard before the request that a test is about."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)
from services.gateway.wire.schema import Struct
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.roundtrip.samples import Side, sample

Prepare = Callable[[RawClient, Any, int], Awaitable[Struct]]
"""Returns the request as it is sent then."""


async def _has_subscribed(client: RawClient, request: PushTelemetryRequest, version: int) -> Struct:
    told = await client.ask(GetTelemetrySubscriptionsRequest(), version, GetTelemetrySubscriptionsResponse)
    return replace(request, client_instance_id=told.client_instance_id, subscription_id=told.subscription_id)


async def _has_records(client: RawClient, request: Struct, version: int) -> Struct:
    """A share session has begun, and records were given in it."""
    first = sample(ShareFetchRequest, version, Side.CLIENT)
    for topic in first.topics:
        for partition in topic.partitions:
            partition.acknowledgement_batches = []
    opened = await client.ask(replace(first, share_session_epoch=0, max_wait_ms=1), version, ShareFetchResponse)
    assert opened.error_code == 0, opened
    return request


PREPARATIONS: Final[Mapping[int, Prepare]] = {
    ApiKey.PUSH_TELEMETRY: _has_subscribed,
    ApiKey.SHARE_FETCH: _has_records,
    ApiKey.SHARE_ACKNOWLEDGE: _has_records,
}
