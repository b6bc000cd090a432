"""Two real gateways on a real router, or on one each, which hear a control of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from mesh.rpc import admin
from tests.fixtures.cables import Cable
from tests.fixtures.certificates import Authority
from tests.fixtures.members import certificate_of
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.control.world import World, create_topic, until
from tests.integration.gateway.records import produce, read_all
from tests.integration.router.parts import ServiceProcess

START_S = 100.0


class GatewayPair:
    """Gateways g1 and g2 on one router; the link of g2 can be cut. The topic is on both clusters, and lives on c1."""

    def __init__(self, world: World, topic: str, clusters: dict[str, str], folder: Path) -> None:
        self.world = world
        self.topic = topic
        self._clusters = clusters
        self._folder = folder
        self._ending = AsyncExitStack()
        self.authority: Authority | None = None
        """Signs a certificate for each router and gateway that starts from now on."""

    async def start(self, home: str = "c1", standbys: Sequence[World] = (), *, two_routers: bool = False) -> None:
        """The topic lives at `home`; the router knows the standbys of control too. `two_routers`: g2 has its own."""
        for bootstrap in self._clusters.values():
            create_topic(bootstrap, self.topic, 1)
        await self.world.set(self.topic, home)
        self.routers = [
            await self._service(
                "router",
                name,
                HOME_BOOTSTRAP_SERVERS=self.world.home,
                EVENTS_TOPIC=self.world.settings.events_topic,
                CONTROL_ADDRESSES=",".join(f"127.0.0.1:{each.control.port}" for each in (self.world, *standbys)),
            )
            for name in (("r1", "r2") if two_routers else ("r1",))
        ]
        self.cable = Cable(f"router://{self.routers[-1].address}")
        await self.cable.mend()
        self._ending.push_async_callback(self.cable.cut)
        self.g1, self.g2 = await asyncio.gather(
            self.gateway("g1", self.routers[0].address), self.gateway("g2", self.cable.address)
        )
        for name in ("g1", "g2"):
            await self.runs(name, self.world.control.journal.view.state.effective.revision)

    async def stop(self) -> None:
        await self._ending.aclose()

    async def member(self, name: str) -> admin.Member | None:
        members = (await self.world.status()).members
        return next((each for each in members if each.name == f"members/{name}"), None)

    async def runs(self, name: str, revision: int) -> None:
        async def does() -> bool:
            member = await self.member(name)
            return member is not None and not member.left_behind and member.revision == revision

        await until(does, f"{name} runs revision {revision}")

    async def is_gone(self, name: str) -> None:
        async def is_so() -> bool:
            return await self.member(name) is None

        await until(is_so, f"{name} has said goodbye, through its router")

    async def is_left_behind(self, name: str) -> None:
        async def is_so() -> bool:
            member = await self.member(name)
            return member is not None and member.left_behind

        await until(is_so, f"{name} is left behind")

    async def starts(self, process: ServiceProcess) -> None:
        process.start()
        await asyncio.to_thread(wait_until, lambda: process.ready() == "ready", "it is ready", START_S)

    async def produce(self, gateway: ServiceProcess, value: str) -> None:
        await asyncio.to_thread(produce, gateway.address, self.topic, [value])

    async def records(self, cluster: str) -> list[str]:
        """What stands on the real cluster."""
        return await asyncio.to_thread(read_all, self._clusters[cluster], self.topic)

    async def gateway(self, name: str, router: str) -> ServiceProcess:
        """Starts a gateway. Two processes of one name share their state, as those that a supervisor starts."""
        return await self._service(
            "gateway",
            name,
            ROUTER_ADDRESSES=router,
            STATE_DIR=str(self._folder / name),
            DRAIN_TIMEOUT_S="1",
        )

    async def _service(self, service: str, name: str, **settings: str) -> ServiceProcess:
        if self.authority is not None:
            settings["RPC_TLS_FOLDER"] = str(certificate_of(self.authority, service, name).folder)
        process = ServiceProcess(service, free_block(2), self._folder / f"{name}.log", {"NAME": name, **settings})
        self._ending.callback(process.stop)
        await self.starts(process)
        return process
