"""A reactive consumer and a real control: operators see it, and what they order is carried out."""

import asyncio

from google.protobuf import field_mask_pb2

from mesh.rpc import events, instances
from tests.fixtures.backend import Backend
from tests.integration.control.world import World, until
from tests.integration.sidecar.reactive_world import settings, wait_for_commit, write
from tests.integration.sidecar.test_with_control import Operator, control  # noqa: F401
from tests.integration.sidecar.world import Kafka, started_here


async def test_operators_see_it_as_an_instance_and_change_how_it_delivers(
    control: World,  # noqa: F811
    kafka: Kafka,
    orders: str,
    group: str,
) -> None:
    name, operator = f"instances/{group}.push", Operator(control)
    with Backend().running() as backend:
        chosen = settings(backend, orders, group, control_addresses=f"127.0.0.1:{control.control.port}")
        async with started_here(kafka.bootstrap, **chosen):

            async def is_listed() -> bool:
                return name in await operator.listed()

            await until(is_listed, "operators see it")
            described = (await operator.describe(name)).instance
            assert (described.kind, list(described.topics)) == (events.INSTANCE_KIND_REACTIVE, [orders])
            assert described.delivery.backend_url == backend.host_url
            change = events.DeliverySettings(backend_path="/elsewhere")
            mask = field_mask_pb2.FieldMask(paths=["backend_path"])
            await operator.done(name, configure=events.ConfigureInstance(delivery=change, delivery_mask=mask))
            await asyncio.to_thread(write, kafka, orders, 1)
            await asyncio.to_thread(wait_for_commit, kafka, group, orders, 0, 1)
            assert [call.path for call in backend.calls] == ["/elsewhere"]
            await operator.done(name, pause=events.PauseInstance())

            async def is_seen() -> bool:
                seen = await operator.describe(name)
                is_paused = seen.instance.paused and seen.status.state == instances.INSTANCE_STATE_PAUSED
                lags = {(one.partition, one.committed, one.lag) for one in seen.status.partitions}
                return is_paused and (0, 1, 0) in lags and seen.instance.delivery.backend_path == "/elsewhere"

            await until(is_seen, "operators see what they have ordered, and how far it is")
