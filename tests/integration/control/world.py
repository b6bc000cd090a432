"""Control in this process, on a real database and real clusters, and the callers and routers that tests play."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from tempfile import gettempdir
from types import TracebackType
from typing import Any

import grpc
import grpc.aio
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its own documented way
from google.rpc.status_pb2 import Status

from mesh import durations
from mesh.event_log import Assembler
from mesh.lifecycle import Lifecycle
from mesh.routing.codec import TABLE_FORMAT
from mesh.rpc import (
    acknowledgements,
    admin,
    admin_grpc,
    audit_grpc,
    discovery,
    discovery_grpc,
    events,
    instances_grpc,
    pipelines_grpc,
    replays_grpc,
    routing,
    subscriptions_grpc,
)
from mesh.rpc.channels import open_channel
from mesh.rpc.tls import RpcTls
from services.control.process import Control
from services.control.settings import ControlSettings
from services.control.verify_log import Report, VerifySettings, verify
from tests.fixtures import waiting
from tests.fixtures.leaders import await_leaders

WITHIN = 60.0
"""Seconds that a condition may take on a busy machine."""
CALL = 30.0
HOLD_MS = 10_000
"""Gateways on a busy machine hold in time."""


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str, within: float = WITHIN) -> None:
    """Waits for `condition`, within a bound."""
    await waiting.until(condition, what, within)


async def refused(call: Awaitable[object], code: grpc.StatusCode, *texts: str) -> grpc.aio.AioRpcError:
    """The error of a call that must be refused like this."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        assert error.code() is code, f"{error.code()}: {error.details()}"
        for text in texts:
            assert text in (error.details() or ""), error.details()
        return error
    raise AssertionError(f"not refused: {answer}")


def status_of(error: grpc.aio.AioRpcError) -> Status:
    """The google.rpc.Status of a refusal."""
    metadata = dict(error.trailing_metadata() or ())
    return Status.FromString(bytes(metadata["grpc-status-details-bin"]))


class World:
    """Control with its callers."""

    def __init__(self, database_url: str, home: str, events_topic: str, **settings: Any) -> None:
        self.settings = ControlSettings(
            database_url=database_url,  # type: ignore[arg-type]  # pydantic makes it a secret
            home_bootstrap_servers=(home,),
            events_topic=events_topic,
            audit_topic=f"{events_topic}.audit",
            listen="127.0.0.1:0",
            **{"hold_ms": HOLD_MS, "stop_grace_s": 4.0, "secrets_folder": gettempdir(), **settings},
        )
        self.home = home
        self.caller: RpcTls | None = None
        """The certificate of the operator who calls, where control asks for one."""
        self.lifecycle = Lifecycle()

    async def start(self, *, wait: bool = True) -> None:
        self.lifecycle = Lifecycle()
        self.control = Control(self.settings, self.lifecycle)
        await self.control.start()
        self.channel = open_channel(f"127.0.0.1:{self.control.port}", self.caller)
        self.clusters = admin_grpc.ClusterServiceStub(self.channel)
        self.rules = admin_grpc.RuleServiceStub(self.channel)
        self.decisions = admin_grpc.QueryServiceStub(self.channel)
        self.changes = admin_grpc.ChangeControlServiceStub(self.channel)
        self.instances = instances_grpc.InstanceServiceStub(self.channel)
        self.subscriptions = subscriptions_grpc.SubscriptionServiceStub(self.channel)
        self.pipelines = pipelines_grpc.PipelineServiceStub(self.channel)
        self.audit = audit_grpc.AuditServiceStub(self.channel)
        self.replays = replays_grpc.ReplayServiceStub(self.channel)
        self.rollouts = discovery_grpc.MemberReportServiceStub(self.channel)
        if wait:
            await until(lambda: self.lifecycle.is_ready, "control is ready")

    async def stop(self) -> None:
        await self.channel.close()
        await self.control.stop()

    async def __aenter__(self) -> World:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # What operators do

    async def register(self, name: str, *addresses: str, **how: Any) -> admin.Cluster:
        fields = {key: how.pop(key) for key in ("producer_config", "consumer_config", "partition_count") if key in how}
        spec = routing.ClusterSpec(cluster_name=name, bootstrap_servers=addresses, **fields)
        return await self.clusters.RegisterCluster(admin.RegisterClusterRequest(spec=spec, **how), timeout=CALL)

    async def set(self, topic: str, target: str, **options: Any) -> admin.RuleChangeResponse:
        return await self.set_rule({"topic": topic}, {"target_cluster": target}, **options)

    async def set_rule(self, match: dict[str, Any], fields: dict[str, Any], **options: Any) -> admin.RuleChangeResponse:
        request = admin.SetRuleRequest(
            match=routing.RuleMatch(**match), options=admin.ChangeOptions(**options), **fields
        )
        return await self.rules.SetRule(request, timeout=CALL)

    async def explain(self, topic: str = "", **about: Any) -> admin.ExplainResponse:
        request = admin.ExplainRequest(**about) if about else admin.ExplainRequest(topic=topic)
        return await self.decisions.Explain(request, timeout=CALL)

    async def status(self) -> admin.MeshStatus:
        return await self.decisions.GetStatus(admin.GetStatusRequest(), timeout=CALL)

    async def history(self, **request: Any) -> list[events.Event]:
        """Newest first."""
        response = await self.decisions.ListEvents(admin.ListEventsRequest(**request), timeout=CALL)
        return list(response.events)

    async def held(self) -> int:
        """Revision of the change that is being rolled out, as soon as there is one."""
        journal = self.control.journal
        while journal.view.rollout is None:
            await journal.grown_beyond(journal.view.position)
        return journal.view.rollout.position

    async def published(self, position: int) -> None:
        async def is_there() -> bool:
            return (await self.status()).published_position >= position

        await until(is_there, f"position {position} is published")


class Router:
    """Plays a router with its gateways, over a real Report stream."""

    def __init__(self, world: World, *gateways: str) -> None:
        self._call = world.rollouts.Report()
        self._world = world
        self._departed: dict[str, int] = {}
        self.standby: dict[str, acknowledgements.StandbyReport] = {}
        """What gateways report of clusters with standbys, by gateway."""
        self.members = {
            name: admin.Member(name=f"members/{name}", kind=admin.MEMBER_KIND_GATEWAY, phase=admin.MEMBER_PHASE_APPLIED)
            for name in gateways
        }

    async def connect(self) -> None:
        """Says hello; `hold_ms` is what control orders."""
        await self._report()
        order = await self._call.read()
        assert isinstance(order, discovery.RouterOrder)
        self.hold_ms = durations.whole_ms(order.hold_timeout)
        await until(self._is_known, "control knows the gateways")

    async def answers(self, name: str, revision: int, phase: admin.MemberPhase.ValueType, reason: str = "") -> None:
        """The gateway's answer for a revision."""
        member = self.members[name]
        member.revision, member.phase, member.phase_reason = revision, phase, reason
        await self._report()

    async def leaves(self, name: str) -> None:
        del self.members[name]
        await self._report()

    async def says_goodbye(self, name: str) -> None:
        """The gateway has stopped in order."""
        self._departed[f"members/{name}"] = 0
        await self.leaves(name)

    async def obeys(self, *names: str, every_s: float | None = None) -> None:
        """Lets gateways do what the log says, for ever: hold, then run. `every_s`: reports also while nothing happens,
        as routers do; control forgets one that is silent for 15 s.
        """
        journal = self._world.control.journal
        while True:
            view = journal.view
            held, effective = view.rollout, view.state.effective.revision
            for name in names:
                if held is not None:
                    await self.answers(name, held.position, admin.MEMBER_PHASE_HELD)
                else:
                    await self.answers(name, effective, admin.MEMBER_PHASE_APPLIED)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(journal.grown_beyond(view.position), every_s)

    def close(self) -> None:
        self._call.cancel()

    async def _report(self) -> None:
        router = admin.Member(name="members/router-1", kind=admin.MEMBER_KIND_ROUTER, table_format=TABLE_FORMAT)
        members = self.members.values()
        said = discovery.RouterReport(router=router, members=members, departed=self._departed)
        for name, each in self.standby.items():
            said.acknowledged.extend(each.logs)
            said.standby_reports[f"members/{name}"].unreachable.extend(each.unreachable)
        await self._call.write(said)

    async def _is_known(self) -> bool:
        names = {member.name for member in (await self._world.status()).members}
        return {f"members/{name}" for name in self.members} <= names


def create_topic(bootstrap: str, name: str, partitions: int, **config: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
    client.create_topics([new], request_timeout=WITHIN)[name].result(WITHIN)
    await_leaders(client, name, partitions)


def topics_of(bootstrap: str) -> dict[str, int]:
    metadata: Any = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=WITHIN)
    return {name: len(topic.partitions) for name, topic in metadata.topics.items()}


def log_in_kafka(bootstrap: str, topic: str, count: int) -> list[events.Event]:
    """The first `count` events of the log, as a plain Kafka client reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        found: list[events.Event] = []
        assembler = Assembler()
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=WITHIN)
            assert messages, f"{len(found)} of {count} events within {WITHIN:g} s"
            for message in messages:
                assert message.error() is None, message.error()
                headers: Any = message.headers() or ()  # pairs
                event = assembler.take(message.value() or b"", headers)
                if event is not None:
                    found.append(events.Event.FromString(event))
        return found
    finally:
        consumer.close()


@contextlib.asynccontextmanager
async def router(world: World, *gateways: str) -> AsyncIterator[Router]:
    """A connected router whose gateways say nothing by themselves."""
    played = Router(world, *gateways)
    try:
        await played.connect()
        yield played
    finally:
        played.close()


def checked(world: World, *, with_kafka: bool = True) -> Report:
    """The log in the database, and beside the log in Kafka."""
    settings = world.settings
    return verify(
        VerifySettings(
            database_url=settings.database_url,
            home_bootstrap_servers=settings.home_bootstrap_servers,
            events_topic=settings.events_topic,
            rpc_tls_folder=settings.rpc_tls_folder,
        ),
        with_kafka=with_kafka,
    )
