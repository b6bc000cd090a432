"""How this gateway gets routing tables: it watches a router, and carries out and answers its orders one by one.

Theory of operation
1. The gateway watches one router. When the stream of this router ends, the gateway watches the next router that it can
   reach (`routers`). The pause before that is short, and grows while no router sends anything. Meanwhile the last table
   stays in force; an older table never replaces it. If there are several routers, the gateway leaves a router that
   sends nothing for long (it still reads the log, it is behind) for the next one.
2. `apply` puts a table in force and keeps it on disk, then ACKs APPLIED. If the gateway can't serve the table (it does
   not understand a rule, or lacks the security of a cluster), it NACKs with the reason and keeps its present table.
3. `hold` holds the topics that move, and waits until what was on its way is answered. If a batch got no answer, its
   broker may store it late, and its producer may repeat it through another gateway, which asks the old cluster right
   after the switch. So the gateway also waits until brokers have had time (`SETTLED_SECONDS`). Then it keeps the table
   to come on disk, and ACKs HELD. `switch` runs the table of the hold and releases; `release` releases under the table
   before.
   The barrier: a gateway that has said HELD writes the moving topics to neither cluster until the log says how the move
   has ended. Control may have decided to switch on the strength of that HELD. So when the timeout is over, records for
   these topics are refused with an error that clients retry, and wait no longer (`Hold.refuse`). Neither a lost router
   nor a restart ends this state: `Hello` names the revision, and the next router tells how the move has ended. A table
   that rests on the revision ends the state too. Any other table is put in force, and the hold stays.
   A gateway that has not said HELD when the timeout is over releases under the table before: control can't count on it.
4. The gateway may get a table that moves topics without a complete hold before it (the gateway was cut off, or came
   late). It then holds these topics by itself before it puts the table in force, until the next order or for `DRAIN_S`.
5. A router that has sent a table on this watch sends of the next one what differs (`mesh.routing.delta`). The gateway
   compares the digest of the whole. If the delta does not fit, the gateway ends the watch, and takes whole tables on
   the next one.
6. The gateway reports its clients every few seconds while they change, and their parts of quotas every second.
7. At an orderly stop the gateway sends a goodbye when it serves no client any more and clusters have answered all
   records. Without the goodbye, control could not tell this gateway from a gateway that is cut off and serves on.
   Changes that move topics would then wait for it. After a goodbye topics move without the gateway. So before the
   goodbye the gateway notes on disk that its table may become old (`awaited.py`). The next start then serves no client
   until a router has sent a table. If the gateway has no router at its stop, it sends no goodbye and notes nothing:
   control waits for this gateway.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from uuid import uuid4

import grpc
import structlog

from mesh import VERSION, durations
from mesh.routing import InvalidRuleError, RoutingTable, came_into_force
from mesh.routing.codec import TABLE_FORMAT
from mesh.routing.errors import WrongBaseError
from mesh.rpc import admin, discovery, discovery_grpc
from mesh.rpc.cancellation import heed_cancellation
from mesh.rpc.tls import RpcTls
from services.gateway import metrics
from services.gateway.downstream.answers import Answers
from services.gateway.downstream.awaited import Awaited
from services.gateway.downstream.client import ClientConnection
from services.gateway.downstream.client_report import report_clients
from services.gateway.downstream.hold import Hold
from services.gateway.downstream.last_table import TableKeeper
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.quota_reports import QuotaReports
from services.gateway.downstream.received_tables import ReceivedTables, table_of
from services.gateway.downstream.routers import NoRouterError, Routers
from services.gateway.downstream.standby_reports import StandbyReports
from services.gateway.downstream.tables import RunningCanary
from services.gateway.requests.records.handover import learn
from services.gateway.upstream import security

log = structlog.get_logger(__name__)

FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 1.0
"""The pause between two watches. It is drawn from half of this to all of it: gateways lose a router all at once."""
FIRST_PATIENCE_S, MAX_PATIENCE_S = 3.0, 60.0
"""How long a router may send nothing if there are others. The time grows while no router sends anything."""
GOODBYE_S = 2.0
"""Time for the goodbye and for its note on disk; after that the gateway ends without an answer."""
DRAIN_S = 5.0
"""As long as control lets a hold last by default."""


class Discovery:
    """See above."""

    def __init__(
        self,
        name: str,
        address: str,
        routers: tuple[str, ...],
        state_dir: Path,
        mesh: Mesh,
        connections: Iterable[ClientConnection],
        awaited: Awaited,
        tls: RpcTls | None = None,
    ) -> None:
        self.first_table = asyncio.Event()
        """Set when a router has sent a table."""
        self.looked = asyncio.Event()
        """Set when a router has sent a table, or no router can be reached."""
        self._name = name
        self._address = address
        self._process = uuid4().hex
        """So control can tell the goodbye of this process from an earlier one's."""
        self._routers = Routers(routers, tls)
        self._awaited = awaited
        self._received = ReceivedTables()
        self._keeper = TableKeeper(state_dir, awaited, self._received.encoded)
        self._mesh = mesh
        self._connections = connections
        self._answers = Answers()
        self._holding: asyncio.Task[None] | None = None
        self._pending: RoutingTable | None = None
        self._held_revision = 0
        """The move that this gateway has said HELD for, until a router reports how the move ended; 0: none."""
        self._arriving: RoutingTable | None = None
        """The table to be put in force when the old clusters have answered."""
        self._expiry: asyncio.TimerHandle | None = None
        self._complaint = ""
        """The last log line about routers that can't be reached: the same line is not repeated."""
        self._quota_reports = QuotaReports(mesh.quotas)
        self._standby_reports = StandbyReports(mesh)
        self._watching = False
        self._leaving = False
        self._left = asyncio.Event()

    def follow_no_more(self) -> None:
        """Carry out no more orders: the gateway closes."""
        self._leaving = True
        if self._pending is not None and self._mesh.hold is not None:
            self._hold_ran_out("the gateway stops")
        self._stop_waiting()

    def resume_hold(self, table: RoutingTable) -> None:
        """This gateway stopped after it had said HELD for `table`, and does not know how the move has ended."""
        if not came_into_force(table.revision, self._mesh.table):
            self._pending, self._held_revision = table, table.revision
            self._mesh.begin_hold(table).refuse()
            log.warning("records for moving topics are refused until a router tells how the move ended", **self._move())

    async def say_goodbye(self) -> None:
        """Send the goodbye to the router, if there is one; the watch ends with it."""
        if not self._watching:
            return
        self._left.clear()
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._keeper.leave()
                self._standby_reports.send(self._answers)
                self._answers.add(discovery.WatchRequest(goodbye=discovery.Goodbye()))
                await self._left.wait()
            if not self._answers.has_sent_goodbye:  # if it was sent, a router may have heard it, even without an answer
                await self._keeper.stay()
        except TimeoutError:
            log.warning("no router took the goodbye: changes that move topics may wait for this gateway")
        except OSError as error:
            log.error("no goodbye: the table on disk can't be marked as old", reason=str(error))

    async def run(self) -> None:
        """Watch until the gateway leaves; or ends when cancelled."""
        pause, patience = FIRST_PAUSE_S, FIRST_PATIENCE_S
        while not self._leaving:
            told = await self._watch(patience if len(self._routers) > 1 else None)
            heed_cancellation()
            if told:
                pause, patience = FIRST_PAUSE_S, FIRST_PATIENCE_S
            await asyncio.sleep(random.uniform(pause / 2, pause))
            pause, patience = min(MAX_PAUSE_S, 2 * pause), min(MAX_PATIENCE_S, 1.5 * patience)

    async def _watch(self, patience_s: float | None) -> bool:
        """Watch one stream until it ends. Returns whether the router sent anything."""
        self._arrive()
        self._stop_telling()  # a router takes no answers to what another one has ordered
        self._answers = Answers()
        told, address = False, ""
        clients = report_clients(self._connections, self._mesh, self._answers)
        standbys = self._standby_reports.run(self._answers)
        reporting = asyncio.gather(clients, self._quota_reports.run(self._answers), standbys)
        try:
            async with self._routers.connected() as router:
                address = router.address
                stream = discovery_grpc.DiscoveryServiceStub(router.channel).Watch(
                    self._answers.sent(await self._hello())
                )
                self._watching = True
                async with asyncio.timeout(patience_s):
                    response = await stream.read()
                if isinstance(response, discovery.WatchResponse):
                    metrics.discovery_connected.set(1)
                    log.info("router connected", router=address)
                    told, self._complaint = True, ""
                while isinstance(response, discovery.WatchResponse):
                    await self._carry_out(response)
                    response = await stream.read()
        except NoRouterError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("no router can be reached; trying on", reason=self._complaint)
        except TimeoutError:
            log.warning("router has nothing to tell; trying the next one", router=address, s=patience_s)
        except WrongBaseError as error:
            log.warning("a delta does not fit; the router sends whole tables now", router=address, reason=str(error))
        except grpc.aio.AioRpcError as error:
            log.warning("router left", router=address, code=error.code().name, details=error.details())
        except Exception:  # a fault of the gateway must not end the watch for good
            log.exception("an order could not be carried out", router=address)
        finally:
            self._watching = False
            self._mesh.tables.try_out(None)  # otherwise the canary would never end; the next router starts it again
            self._left.set()
            self.looked.set()
            metrics.discovery_connected.set(0)
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
            self._answers.end()
        return told

    async def _hello(self) -> discovery.Hello:
        digest = await self._received.begin(self._mesh.table)
        member = admin.Member(
            name=f"members/{self._name}",
            kind=admin.MEMBER_KIND_GATEWAY,
            version=VERSION,
            address=self._address,
            table_format=TABLE_FORMAT,
            process=self._process,
        )
        return discovery.Hello(
            member=member,
            revision=self._mesh.table.revision,
            held_revision=self._held_revision,
            not_awaited=not self._awaited,
            reads_deltas=digest is not None,
            table_digest=digest or b"",
            reads_parts=True,
        )

    # --- orders --------------------------------------------------------------------------------------------------

    async def _carry_out(self, order: discovery.WatchResponse) -> None:
        if self._leaving:
            return
        self._arrive()
        match order.WhichOneof("kind"):
            case "part":
                await self._received.part(order.part)
            case "apply" | "apply_delta":
                self._apply(await self._understood(order))
            case "hold":
                self._hold(await self._understood(order), durations.whole_ms(order.hold.timeout))
            case "canary":
                self._try_out(await self._understood(order), order.canary.permille)
            case "switch":
                self._switch(order.switch)
            case "release":
                self._release(f"revision {order.release.revision} was given up")
            case "quota_parts":
                self._quota_reports.divide(order.quota_parts)
            case unknown:
                log.warning("an order that this gateway does not know", kind=unknown)

    async def _understood(self, order: discovery.WatchResponse) -> RoutingTable | None:
        """The table, or None after a NACK. Clients are served between two steps: thousands of rules take long."""
        message = table_of(order)
        try:
            table = await self._received.read(message)
            security.check(table)
        except (InvalidRuleError, security.UnservedClusterError) as error:
            self._answers.nack(message.revision, str(error))
            return None
        return None if self._leaving else table

    def _is_older(self, revision: int) -> bool:
        """Whether the revision is older than the table in force. Such an order is refused."""
        is_older = revision < self._mesh.table.revision
        if is_older:
            self._answers.nack(revision, f"revision {self._mesh.table.revision} runs here already")
        return is_older

    def _apply(self, table: RoutingTable | None) -> None:
        if table is None or self._is_older(table.revision):
            return
        if self._pending is not None and table == self._mesh.table:
            self._ran(table)
        elif self._held_revision and not came_into_force(self._held_revision, table):
            self._mesh.run_table(table)
            self._ran(table)
        else:
            self._run(table)

    def _run(self, table: RoutingTable) -> None:
        """Put a table in force when the requests to the topics that it moves are answered."""
        self._stop_waiting()
        self._pending, self._arriving = None, table
        hold = self._mesh.hold
        if (hold is None or hold.after is not table) and (self._mesh.producing or self._mesh.committing):
            hold = self._mesh.begin_hold(table)
        if hold is None or hold.after is not table or hold.complete.is_set():
            self._arrive()
            return
        self._expiry = asyncio.get_running_loop().call_later(DRAIN_S, self._arrive)
        self._when_complete(hold, self._arrive)

    def _arrive(self) -> None:
        """Put the table that waits in force, if there is one."""
        table, self._arriving = self._arriving, None
        if table is not None:
            self._stop_waiting()
            self._mesh.end_hold(table)
            self._ran(table)

    def _ran(self, table: RoutingTable) -> None:
        self.first_table.set()
        self.looked.set()
        self._answers.ack(table.revision, admin.MEMBER_PHASE_APPLIED, self._keeper.keep(table))
        if self._held_revision and came_into_force(self._held_revision, table):
            self._move_ended(self._held_revision)

    def _hold(self, table: RoutingTable | None, hold_ms: int) -> None:
        if table is None:
            return
        if table.revision == self._held_revision:
            self._standby_reports.send(self._answers)
            self._answers.ack(table.revision, admin.MEMBER_PHASE_HELD)
            return
        self._stop_waiting()
        self._held_revision = 0
        hold = self._mesh.begin_hold(table)
        self._pending = table
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(hold_ms / 1000, self._hold_ran_out, f"{hold_ms} ms passed")
        self._holding = loop.create_task(self._promise(hold, table), name="hold")

    async def _promise(self, hold: Hold, table: RoutingTable) -> None:
        """Say HELD when the old clusters have worked off what was sent, and the promise outlives this process."""
        await hold.complete.wait()
        await self._mesh.settled(hold.moves_for_some)
        try:
            await self._keeper.hold(table)
        except OSError as error:
            self._answers.nack(table.revision, f"the move can't be kept on disk: {error}")
            return
        self._holding = None
        self._held_revision = table.revision
        self._standby_reports.send(self._answers)
        self._answers.ack(table.revision, admin.MEMBER_PHASE_HELD)

    def _move_ended(self, revision: int) -> None:
        self._keeper.move_ended(revision)
        self._held_revision = 0

    def _when_complete(self, hold: Hold, then: Callable[[], None]) -> None:
        async def wait() -> None:
            await hold.complete.wait()
            self._holding = None
            then()

        self._holding = asyncio.get_running_loop().create_task(wait(), name="wait for old answers")

    def _switch(self, order: discovery.SwitchOrder) -> None:
        canary, revision = self._mesh.tables.canary, order.revision
        table = self._pending if canary is None else canary.table
        if table is None or table.revision != revision:
            self._answers.nack(revision, f"revision {revision} is not held here")
        elif not self._is_older(revision):
            learn(order.producers, table, self._mesh.memory.seams, asyncio.get_running_loop().time())
            self._run(table)

    def _try_out(self, table: RoutingTable | None, permille: int) -> None:
        if table is None:
            return
        log.info("a table is tried", revision=table.revision, permille=permille)
        self._mesh.tables.try_out(RunningCanary(table, permille))
        self._answers.ack(table.revision, admin.MEMBER_PHASE_TRYING)

    def _release(self, why: str) -> None:
        canary = self._mesh.tables.canary
        if canary is not None:
            log.warning("a table is tried no more", revision=canary.table.revision, why=why)
            self._mesh.tables.try_out(None)
        if self._pending is not None:
            log.warning("hold released without a switch", revision=self._pending.revision, why=why)
            self._stop_waiting()
            self._move_ended(self._pending.revision)
            self._pending = None
            self._mesh.end_hold()

    def _hold_ran_out(self, why: str) -> None:
        """Clients must not wait for ever. The table stays known: control may switch without this gateway."""
        self._stop_waiting()
        if self._held_revision and self._mesh.hold is not None:
            log.warning("the end of a move is not known: its topics are refused", why=why, **self._move())
            self._mesh.hold.refuse()
        else:
            log.warning("a hold that was not complete is released", why=why, **self._move())
            self._mesh.end_hold()

    def _move(self) -> dict[str, int]:
        return {"revision": self._pending.revision if self._pending is not None else 0}

    def _stop_telling(self) -> None:
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None

    def _stop_waiting(self) -> None:
        self._stop_telling()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
