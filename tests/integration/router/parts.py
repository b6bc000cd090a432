"""What the router's tests are made of: a log on a real cluster, router processes, data planes, a listening control."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc.aio
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from mesh import durations
from mesh.routing.codec import TABLE_FORMAT
from mesh.rpc import admin, discovery, discovery_grpc
from mesh.rpc.channels import open_channel
from mesh.rpc.server import RpcServer
from tests.fixtures.leaders import await_leaders
from tests.fixtures.releases import Release
from tests.unit.router.decisions import DecisionLog

WITHIN_S = 100.0
"""Bound of every wait here."""


class PublishedLog(DecisionLog):
    """A decision log whose events are carried to a topic, as control does."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self.bootstrap = bootstrap
        self.topic = topic
        self.snapshots_topic = f"{topic}.snapshots"
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
        self._published = 0

    def publish(self) -> None:
        """Carries what is new to the topic, in order. Creates it where nobody has, as control does."""
        if not self._published:
            create_topic(self.bootstrap, self.topic)
        for event in self.events[self._published :]:
            self.publish_raw(event.SerializeToString(), str(event.position).encode())
        self._published = len(self.events)

    def publish_raw(self, value: bytes, key: bytes = b"") -> None:
        self._producer.produce(self.topic, value, key, partition=0)
        assert self._producer.flush(WITHIN_S) == 0, f"{self.bootstrap} does not take records"

    def delete(self) -> None:
        cluster = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in cluster.delete_topics([self.topic, self.snapshots_topic]).values():
            future.exception(WITHIN_S)


def create_topic(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Where it is not there yet."""
    cluster = AdminClient({"bootstrap.servers": bootstrap})
    if topic not in cluster.list_topics(timeout=WITHIN_S).topics:
        with contextlib.suppress(KafkaException):  # a router may be first
            cluster.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WITHIN_S)
        await_leaders(cluster, topic, partitions)


class ServiceProcess:
    """A service of the mesh in a process of its own, on `port`; /metrics and /ready on the port after it."""

    def __init__(self, service: str, port: int, log_file: Path, settings: Mapping[str, str]) -> None:
        self.log_file = log_file
        self.release: Release | None = None
        """The next start is of an earlier release."""
        self._service = service
        self.address = f"127.0.0.1:{port}"
        self.management = f"http://127.0.0.1:{port + 1}"
        listens = {"LISTEN": self.address, "METRICS_LISTEN": f"127.0.0.1:{port + 1}"}
        prefix = f"KAFKA_MESH_{service.upper()}_"
        own = {f"{prefix}{key}": value for key, value in {**listens, **settings}.items()}
        self._environment = {**os.environ, **own}
        self._process: subprocess.Popen[bytes] | None = None

    def change(self, **settings: str) -> None:
        """From the next start on it has these settings, too."""
        prefix = f"KAFKA_MESH_{self._service.upper()}_"
        self._environment |= {f"{prefix}{key}": value for key, value in settings.items()}

    def start(self) -> None:
        with self.log_file.open("ab") as output:
            self._process = subprocess.Popen(
                [self.release.python if self.release else sys.executable, "-m", f"services.{self._service}"],
                cwd=self.release.folder if self.release else None,
                env=self._environment,
                stdout=output,
                stderr=output,
            )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Seconds that the stop took."""
        process, began = self._process, time.monotonic()
        if process is None:
            return 0.0
        self._process = None
        process.send_signal(number)
        process.wait(WITHIN_S)
        assert number is signal.SIGKILL or process.returncode == 0, self.log_file.read_text()
        return time.monotonic() - began

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """It does nothing; what others send to it waits in its sockets."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was started"
        return self._process.pid

    def ready(self) -> str:
        """What /ready says; empty when nobody answers yet. RuntimeError when the process has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
            raise RuntimeError(f"{self._service} ended:\n{self.log_file.read_text()}")
        try:
            with urllib.request.urlopen(f"{self.management}/ready", timeout=WITHIN_S) as answer:
                return str(answer.read().decode().strip())
        except urllib.error.HTTPError as refusal:
            return f"{refusal.code}: {refusal.read().decode().strip()}"
        except OSError:
            return ""

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.management}/metrics", timeout=WITHIN_S) as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"kafka_mesh_{self._service}_{name}")
        )


class DataPlane:
    """A gateway as the router sees one: a watch whose orders a test answers."""

    def __init__(self, name: str, address: str, revision: int = 0, *, not_awaited: bool = False) -> None:
        self.member = admin.Member(
            name=f"members/{name}",
            kind=admin.MEMBER_KIND_GATEWAY,
            version="1",
            address="127.0.0.1:19092",
            table_format=TABLE_FORMAT,
            process=uuid4().hex,
        )
        self._address = address
        self._revision = revision
        self._not_awaited = not_awaited
        self._call: Any = None
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> DataPlane:
        self._channel = open_channel(self._address)
        self._call = discovery_grpc.DiscoveryServiceStub(self._channel).Watch(wait_for_ready=True)
        hello = discovery.Hello(member=self.member, revision=self._revision, not_awaited=self._not_awaited)
        await self._call.write(discovery.WatchRequest(hello=hello))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._call.cancel()
        assert self._channel is not None
        await self._channel.close()

    async def order(self, within_s: float = WITHIN_S) -> discovery.WatchResponse:
        """The next order; grpc.aio.AioRpcError when the router ended the watch."""
        async with asyncio.timeout(within_s):
            order = await self._call.read()
        if order is grpc.aio.EOF:
            raise AssertionError(f"the watch ended: {await self._call.code()} {await self._call.details()}")
        assert isinstance(order, discovery.WatchResponse)
        return order

    async def expect(self, kind: str, revision: int) -> discovery.WatchResponse:
        """The next order, which must be this one."""
        order = await self.order()
        assert (order.WhichOneof("kind"), revision_of(order)) == (kind, revision)
        return order

    async def ack(self, revision: int, phase: admin.MemberPhase.ValueType = admin.MEMBER_PHASE_APPLIED) -> None:
        await self._call.write(discovery.WatchRequest(ack=discovery.Ack(revision=revision, phase=phase)))

    async def nack(self, revision: int, reason: str) -> None:
        await self._call.write(discovery.WatchRequest(nack=discovery.Nack(revision=revision, reason=reason)))

    async def report_clients(self, total: int) -> None:
        await self._call.write(discovery.WatchRequest(clients=discovery.ClientReport(total=total)))

    async def say_goodbye(self) -> None:
        await self._call.write(discovery.WatchRequest(goodbye=discovery.Goodbye()))

    async def end(self) -> tuple[grpc.StatusCode, str]:
        """How the router ended the watch."""
        async with asyncio.timeout(WITHIN_S):
            return await self._call.code(), await self._call.details()


def revision_of(order: discovery.WatchResponse) -> int:
    match order.WhichOneof("kind"):
        case "apply":
            return order.apply.revision
        case "hold":
            return order.hold.table.revision
        case "switch":
            return order.switch.revision
        case _:
            return order.release.revision


class ListeningControl(discovery_grpc.MemberReportServiceServicer):
    """Control as the router sees it: takes reports, says how long to hold."""

    def __init__(self, hold_ms: int) -> None:
        self._hold_ms = hold_ms
        self._latest: discovery.RouterReport | None = None
        self._news = asyncio.Event()

    async def Report(self, request_iterator: Any, context: Any) -> AsyncIterator[discovery.RouterOrder]:
        yield discovery.RouterOrder(hold_timeout=durations.of_ms(self._hold_ms))
        async for report in request_iterator:
            self._latest = report
            self._news.set()

    async def until(self, condition: Callable[[discovery.RouterReport], bool]) -> discovery.RouterReport:
        """The first report, from the latest on, that fulfils the condition."""
        async with asyncio.timeout(WITHIN_S):
            while self._latest is None or not condition(self._latest):
                self._news.clear()
                await self._news.wait()
        return self._latest


@asynccontextmanager
async def listening_control(port: int, hold_ms: int = 3000) -> AsyncIterator[ListeningControl]:
    control = ListeningControl(hold_ms)
    name = discovery.DESCRIPTOR.services_by_name["MemberReportService"].full_name
    server = RpcServer(
        f"127.0.0.1:{port}",
        {name: lambda grpc_server: discovery_grpc.add_MemberReportServiceServicer_to_server(control, grpc_server)},
    )
    await server.start()
    try:
        yield control
    finally:
        await server.stop(0)
