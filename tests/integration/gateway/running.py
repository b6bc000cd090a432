"""A gateway in a thread of the test, told its table by the test itself."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from mesh.lifecycle import Lifecycle
from mesh.listeners import DecidedListener
from mesh.listeners.codec import listener_to_proto
from mesh.protection.codec import rule_to_proto as protection_to_proto
from mesh.protection.rule import Rule as ProtectionRule
from mesh.routing import (
    ExactName,
    ForwardingRule,
    Match,
    NamePrefix,
    RoutingTable,
    RuleVersion,
    Subject,
    UpstreamCluster,
)
from mesh.routing.policies import Policies
from mesh.rpc import listeners, protection, rehearsals, stitches, topic_moves, validation
from mesh.stitches import StitchedLog
from mesh.stitches.codec import log_to_proto
from mesh.validation import Rule
from mesh.validation.codec import rule_to_proto
from services.gateway.downstream import last_table
from services.gateway.downstream.gateway import Gateway
from services.gateway.requests.records.handover import learn
from services.gateway.settings import GatewaySettings
from tests.fixtures.ports import free_block

T = TypeVar("T")
START_S = STOP_S = MOVE_S = 60.0


class Rules:
    """A routing table with its history: topics move, and the table counts their visits."""

    def __init__(self, clusters: Mapping[str, str]) -> None:
        self._clusters = [
            UpstreamCluster(name, tuple(bootstrap.split(",")), ordinal, home=ordinal == 1)
            for ordinal, (name, bootstrap) in enumerate(clusters.items(), start=1)
        ]
        self._versions: list[RuleVersion] = []
        self._validation: validation.ValidationPolicy | None = None
        self._protection: protection.ProtectionPolicy | None = None
        self._listeners: listeners.ListenerPolicy | None = None
        self._stitches: stitches.StitchPolicy | None = None
        self._rehearsals: rehearsals.RehearsalPolicy | None = None
        self.table = RoutingTable(1, self._clusters)

    def to(self, cluster: str, topics: Iterable[str]) -> RoutingTable:
        """The next revision, in which these topics live on `cluster`."""
        revision = self.table.revision + 1
        return self.put(*(ForwardingRule(f"r-{revision}-{topic}", ExactName(topic), cluster) for topic in topics))

    def transactions(self, prefix: str, cluster: str) -> RoutingTable:
        """The next revision, in which transactional ids that begin so live on `cluster`."""
        match = NamePrefix(prefix, Subject.TRANSACTIONAL_ID)
        name = f"t-{self.table.revision + 1}-{prefix}"
        return self.put(ForwardingRule(name, match, cluster))

    def validated(self, *rules: Rule) -> RoutingTable:
        """The next revision, with these rules of validation in the place of all before."""
        revision = self.table.revision + 1
        self._validation = validation.ValidationPolicy(rules=map(rule_to_proto, rules), revision=revision)
        return self._at(revision)

    def protected(self, *rules: ProtectionRule) -> RoutingTable:
        """The next revision, with these rules of protection in the place of all before."""
        revision = self.table.revision + 1
        self._protection = protection.ProtectionPolicy(rules=map(protection_to_proto, rules), revision=revision)
        return self._at(revision)

    def stitched(self, *logs: StitchedLog) -> RoutingTable:
        """The next revision, with these stitched logs in the place of all before."""
        revision = self.table.revision + 1
        self._stitches = stitches.StitchPolicy(logs=map(log_to_proto, logs), revision=revision)
        return self._at(revision)

    def rehearsed(self, *found: rehearsals.Rehearsal) -> RoutingTable:
        """The next revision, with these rehearsals in the place of all before."""
        revision = self.table.revision + 1
        self._rehearsals = rehearsals.RehearsalPolicy(rehearsals=found, revision=revision)
        return self._at(revision)

    def listening(self, *decided: DecidedListener) -> RoutingTable:
        """The next revision, with these decisions about listeners in the place of all before."""
        revision = self.table.revision + 1
        self._listeners = listeners.ListenerPolicy(listeners=map(listener_to_proto, decided), revision=revision)
        return self._at(revision)

    def put(self, *rules: ForwardingRule) -> RoutingTable:
        """The next revision, with these rules in the place of those with the same match, or behind all others."""
        revision = self.table.revision + 1
        for rule in rules:
            rank = self._end(rule.match, revision)
            self._versions.append(RuleVersion(rule, float(len(self._versions)) if rank is None else rank, revision))
        return self._at(revision)

    def without(self, match: Match) -> RoutingTable:
        """The next revision, in which there is no rule of this match."""
        revision = self.table.revision + 1
        self._end(match, revision)
        return self._at(revision)

    def _end(self, match: Match, revision: int) -> float | None:
        """The rank that the rule of this match had, if there was one."""
        ended = next((v for v in self._versions if v.alive and v.rule.match == match), None)
        if ended is None:
            return None
        self._versions[self._versions.index(ended)] = replace(ended, until_revision=revision)
        return ended.rank

    def _at(self, revision: int) -> RoutingTable:
        self.table = RoutingTable(
            revision,
            self._clusters,
            self._versions,
            policies=Policies(
                validation_policy=self._validation,
                protection_policy=self._protection,
                listener_policy=self._listeners,
                stitch_policy=self._stitches,
                rehearsal_policy=self._rehearsals,
            ),
        )
        return self.table


class RunningGateway:
    """Starts at once; `close` stops it in order."""

    def __init__(self, state_dir: Path, table: RoutingTable | None = None, **settings: Any) -> None:
        if table is not None:
            last_table.save(state_dir, table)
        self._settings = GatewaySettings(
            name=settings.pop("name", "gateway-test"),
            listen=settings.pop("listen", f"127.0.0.1:{free_block(1)}"),
            state_dir=state_dir,
            **settings,
        )
        self.address = self._settings.listen[0]
        self.lifecycle: Lifecycle
        self.state_dir = state_dir
        self.gateway: Gateway
        self._loop: asyncio.AbstractEventLoop
        self._started = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)
        self._thread.start()
        if not self._started.wait(START_S):
            raise TimeoutError(f"the gateway did not start within {START_S:g} s")
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self.lifecycle = Lifecycle()
            self.gateway = Gateway(self._settings, self.lifecycle)
            try:
                await self.gateway.start()
                await self.gateway.mesh.clusters.attempted(START_S)  # a busy broker answers after the gateway is ready
                self._started.set()
                await self.lifecycle.stopping.wait()
            finally:
                await self.gateway.stop()

        try:
            uvloop.run(serve())
        except BaseException as error:  # noqa: BLE001  # the test's own thread raises it
            self._fault = error
            self._started.set()

    def call(self, work: Callable[[], Awaitable[T]], timeout_s: float = MOVE_S) -> T:
        """Run a coroutine on the gateway's loop."""

        async def run() -> T:
            return await work()

        coroutine: Coroutine[Any, Any, T] = run()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout_s)

    def follow(self, table: RoutingTable) -> None:
        """Put a table in force that moves no topic."""

        async def work() -> None:
            self.gateway.mesh.run_table(table)

        self.call(work)

    def hold(self, after: RoutingTable) -> None:
        """Hold the topics that `after` moves, until the old clusters have answered."""

        async def work() -> None:
            hold = self.gateway.mesh.begin_hold(after)
            async with asyncio.timeout(MOVE_S):
                await hold.complete.wait()

        self.call(work)

    def switch(self, table: RoutingTable, producers: topic_moves.TopicMoveProducers | None = None) -> None:
        """End the hold under this table. `producers` come with it, if control has taken them at the cut."""

        async def work() -> None:
            if producers is not None:
                learn(producers, table, self.gateway.mesh.memory.seams, self._loop.time())
            self.gateway.mesh.end_hold(table)

        self.call(work)

    def move(self, table: RoutingTable) -> None:
        """Hold, wait for the old cluster's answers, switch: as a router orders it."""

        self.hold(table)
        self.switch(table)

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self.lifecycle.stop)
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            raise TimeoutError("the gateway did not stop")
        if self._fault is not None:
            raise self._fault
