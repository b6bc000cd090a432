"""Consumer instances outlive the process by three means: the claim to their state, the state files, and control.

A start
1. The process stakes its claim; an elder process on the same folder gives way (`state/claim.py`).
2. The process reads the file, and asks control for its knowledge, within a bound. Without a file the process asks
   control repeatedly, because then only control may know the instances. Kafka is not asked.
3. The process brings the instances back and writes their present state to the file. Only then may a caller ask for
   them.

From then on each change of an instance goes into the file and to control, and the process carries out the orders that
operators give through control. A younger process may end all that at any time.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from services.sidecar.consuming.instance_store import BrokenStateError, KeptState, decoded, found_again
from services.sidecar.consuming.instances import Instances
from services.sidecar.control.connection import Connection
from services.sidecar.control.control_link import ControlLink
from services.sidecar.control.declared_subscriptions import DeclaredSubscriptions
from services.sidecar.control.order_follower import OrderFollower
from services.sidecar.control.orders import Checks, Orders
from services.sidecar.control.outcomes import Outcomes
from services.sidecar.reactive.reactive_consumer import ReactiveConsumer
from services.sidecar.settings import SidecarSettings
from services.sidecar.state.claim import Claim, Incarnation, take_over, watch
from services.sidecar.state.state_file import StateFile
from services.sidecar.telemetry import metrics

INSTANCES = "instances.json"
OUTCOMES = "orders.json"
SUBSCRIPTIONS = "subscriptions.control"
CONTROL_STOP_SECONDS = 2.0
GIVE_WAY_SECONDS = 5.0
"""How long batches of a reactive consumer may take to end when a younger process has its place."""

log = structlog.get_logger(__name__)


class InstanceRecovery:
    """The recovery of one sidecar; it holds the sidecar's instances."""

    def __init__(
        self,
        settings: SidecarSettings,
        instances: Callable[[StateFile | None], Instances],
        checks: Checks,
        information: Callable[[], Mapping[str, Any]],
    ) -> None:
        """`instances` makes them, with the file that they are kept in."""
        self._settings = settings
        self._claim: Claim | None = None
        self._file: StateFile | None = None
        outcomes: StateFile | None = None
        if settings.state_dir is not None:
            folder = settings.state_dir / settings.name
            self._claim = Claim(folder, Incarnation.beginning())
            self._file = StateFile(folder / INSTANCES, is_lost=self._claim.is_lost)
            outcomes = StateFile(folder / OUTCOMES, is_lost=self._claim.is_lost)
        self.instances = instances(self._file)
        self._outcomes = Outcomes(outcomes)
        self.declared = DeclaredSubscriptions(self.file(SUBSCRIPTIONS), are_taken=settings.takes_subscriptions)
        """The subscriptions that control has declared for this sidecar."""
        self.orders = Orders(self.instances, checks, information)
        self._reactive: list[ReactiveConsumer] = []
        self._connection: Connection | None = None
        self._link: ControlLink | None = None
        self._follower: OrderFollower | None = None

    def file(self, name: str) -> StateFile | None:
        """A state file that outlives the process; None without a state folder."""
        if self._claim is None or self._file is None:
            return None
        return StateFile(self._file.path.with_name(name), is_lost=self._claim.is_lost)

    def take_in(self, consumer: ReactiveConsumer) -> None:
        """Adds a reactive consumer that operators see and command, as long as this process runs.

        Call `restore` first.
        """
        self._reactive.append(consumer)
        self.orders.take_in(consumer)
        if self._link is not None:
            self._link.take_in(consumer)

    def take_out(self, consumer: ReactiveConsumer) -> None:
        """Removes a reactive consumer that has ended."""
        self._reactive.remove(consumer)
        self.orders.take_out(consumer)
        if self._link is not None:
            self._link.take_out(consumer)

    def report_soon(self) -> None:
        """Control hears at once that subscriptions are not as they were."""
        if self._link is not None:
            self._link.changed()

    def all_taken_in(self) -> None:
        """Control may forget the reactive consumers of this sidecar that were not taken in by now."""
        if self._link is not None:
            self._link.all_taken_in()

    @property
    def connection(self) -> Connection | None:
        """To control, once `restore` has begun; None where there is none."""
        return self._connection

    async def restore(self) -> None:
        """The instances of the process before this one are there again. OSError when the state folder is of no use."""
        began = time.monotonic()
        state = await self._state_of_folder()
        self._reach_control()
        known = None
        if self._link is not None:
            known = await self._link.known_to_control(
                [each.id for each in state.instances] if state else [],
                self._settings.restore_timeout_ms / 1000,
                insist=state is None,
            )
        if state is not None:
            self.instances.ledger = state.ledger
        await self.instances.restore(found_again(state, known))
        metrics.restore_seconds.set(time.monotonic() - began)

    async def fault(self) -> str | None:
        """The reason why this process serves no instances; None if it serves them."""
        return self.instances.fault

    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that run as long as the process serves."""
        tasks = [asyncio.create_task(self.instances.watch(), name="instances")]
        if self._claim is not None:
            tasks.append(asyncio.create_task(watch(self._claim, self._claim_lost), name="claim"))
        if self._link is not None and self._follower is not None:
            tasks.append(asyncio.create_task(self._link.run(), name="control"))
            tasks.append(asyncio.create_task(self._follower.run(), name="orders"))
        return tasks

    async def close(self) -> None:
        """Instances leave their groups and keep their state; the link reports the last changes to control."""
        if self._follower is not None:
            await self._follower.close()
        await self.instances.close()
        if self._claim is not None:
            self._claim.let_go()
        if self._link is not None and self._connection is not None:
            await self._link.close(CONTROL_STOP_SECONDS)
            await self._connection.close()

    async def _state_of_folder(self) -> KeptState | None:
        if self._claim is None or self._file is None:
            return None
        try:
            await take_over(self._claim, self._settings.takeover_timeout_ms / 1000)
            await asyncio.to_thread(self._outcomes.load)
            await asyncio.to_thread(self.declared.load)
            content = await asyncio.to_thread(self._file.load)
            if content is None:
                return None
            try:
                return decoded(content)
            except BrokenStateError as error:
                await asyncio.to_thread(self._file.set_aside, str(error))
                return None
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot keep instances in {self._settings.state_dir} (state_dir): {error.strerror or error}; "
                "name a folder that this process may write, or set state_dir empty to keep them in memory only",
            ) from None

    def _reach_control(self) -> None:
        """Once it is settled which incarnation this process is."""
        settings = self._settings
        if not settings.control_addresses:
            return
        incarnation = Incarnation.beginning() if self._claim is None else self._claim.incarnation
        self._connection = Connection(settings.control_addresses, settings.name, incarnation, settings.rpc_tls)
        self._link = ControlLink(
            self._connection, self.instances, self.declared, listen=settings.listen, superseded=self._give_way
        )
        self._follower = OrderFollower(self._connection, self.orders, self._outcomes, self._give_way)
        self.instances.on_change = self._link.changed

    async def _give_way(self, reason: str) -> None:
        """Gives the instances up: a younger process holds them from now on."""
        await self.instances.give_up(reason)
        await asyncio.gather(*(consumer.close(GIVE_WAY_SECONDS) for consumer in list(self._reactive)))

    async def _claim_lost(self) -> None:
        await self._give_way("a younger process of this sidecar's name runs on the same state folder")
