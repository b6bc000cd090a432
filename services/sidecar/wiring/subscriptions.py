"""The subscriptions of a sidecar: those of its settings, and those that its backend declares.

The sidecar asks its backend at the start, a bounded number of times. A declaration counts as a whole: if one of its
subscriptions is wrong, none begins. Then the log and readiness have the reason, and the sidecar asks again only when an
operator reloads the module `subscriptions`. Subscriptions of the settings do not wait for the backend's answer.
"""

import asyncio
import re
from collections.abc import Iterator

import structlog

from mesh.pauses import pause
from services.sidecar.consuming.instance_values import Interest
from services.sidecar.delivering.deliverer import Target
from services.sidecar.delivering.failures import CallFailedError
from services.sidecar.delivering.record_shower import RecordShower
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.reactive.reactive_consumer import ReactiveConsumer
from services.sidecar.reactive.subscriptions import Subscription, SubscriptionError, declared
from services.sidecar.settings import SidecarSettings
from services.sidecar.wiring.delivering import target
from services.sidecar.wiring.shared_parts import SharedParts

ANSWER_SECONDS = 5.0
"""The time that the backend may take to declare its subscriptions."""
FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 5.0
REMEDY = 'correct the backend, then POST ["subscriptions"] to /adm/modules, or restart this sidecar'

log = structlog.get_logger(__name__)


class Subscribed:
    """One subscription: the settings that hold for it, and the backend as its records find it."""

    def __init__(self, name: str, settings: SidecarSettings, target_: Target, reader: RecordReader) -> None:
        """`name`: empty for the subscription of the sidecar's own settings."""
        self.name = name
        self.settings = settings
        self.target = target_
        self.shower = RecordShower(*settings.instance_formats, reader)
        self.consumer: ReactiveConsumer | None = None
        """Its reactive consumer, once that was made."""

    @property
    def interests(self) -> list[Interest]:
        """The topics of the settings, and those that an operator has set."""
        ordered = [] if self.consumer is None else [self.consumer.interest]
        return [self.settings.reactive_interest, *ordered]

    def reads(self, topic: str) -> bool:
        """Whether the topic is one of this subscription."""
        return any(topic in one.topics or (one.pattern and re.fullmatch(one.pattern, topic)) for one in self.interests)


class Subscriptions:
    """The subscriptions of one sidecar. Those that the backend declares come last."""

    def __init__(self, shared: SharedParts) -> None:
        settings = shared.settings
        self._settings = settings
        self._reader = shared.reader
        self.usual = Subscribed("", settings, shared.backend, shared.reader)
        """The one of the sidecar's own settings, which also counts for topics that no subscription reads."""
        self._named: dict[str, Subscribed] = {}
        self._declared: tuple[Subscription, ...] = ()
        self._take(())
        self._is_answered = asyncio.Event()
        self.problem = "the backend has not declared its subscriptions yet" if self.are_declared else ""
        """The reason why subscriptions of the backend do not begin; empty if they do, or if there are none."""

    @property
    def are_declared(self) -> bool:
        """Whether the backend declares subscriptions."""
        return self._settings.subscriptions_from_backend and self._settings.reads_by_itself

    def __iter__(self) -> Iterator[Subscribed]:
        if self._settings.reactive_interest:
            yield self.usual
        yield from self._named.values()

    def of(self, topic: str) -> Subscribed:
        """The subscription that reads a topic, for records of the topic that come again."""
        return next((one for one in self if one.reads(topic)), self.usual)

    async def from_backend(self) -> list[Subscribed]:
        """Waits until the backend has declared its subscriptions, and returns them."""
        await self._ask_repeatedly()
        await self._is_answered.wait()
        return [self._named[one.name] for one in self._declared]

    async def ask(self) -> None:
        """Asks the backend, unless its answer is known: subscriptions change with a restart.

        SubscriptionError or CallFailedError if there is no answer that can be used.
        """
        if not self._is_answered.is_set():
            answer = await self.usual.target.backend.get(self._settings.subscriptions_path, ANSWER_SECONDS)
            self._take(declared(answer))
            self.problem = ""
            self._is_answered.set()
            log.info("the backend has declared its subscriptions", names=[one.name for one in self._declared])

    async def reload(self) -> None:
        """As `ask`, for operators. SubscriptionError with the reason why the answer is still not known."""
        try:
            await self.ask()
        except CallFailedError as failure:
            raise SubscriptionError(failure.reason) from None

    async def close(self) -> None:
        """Closes the connections to the backend."""
        for one in (self.usual, *self._named.values()):
            await one.target.backend.close()

    async def _ask_repeatedly(self) -> None:
        path = self._settings.subscriptions_path
        for attempt in range(1, self._settings.subscriptions_attempts + 1):
            try:
                await self.ask()
                return
            except SubscriptionError as error:
                self.problem = f"the subscriptions that the backend declares at {path} cannot be used: {error}"
                break
            except CallFailedError as failure:
                self.problem = f"the backend does not declare its subscriptions at {path}: {failure.reason}"
                if attempt == 1:
                    log.warning("the backend is asked again for its subscriptions", reason=failure.reason)
            await asyncio.sleep(pause(attempt, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))
        log.error("the backend's subscriptions do not begin", reason=self.problem, remedy=REMEDY)

    def _take(self, declared_: tuple[Subscription, ...]) -> None:
        """Adds declared subscriptions to those of the settings. SubscriptionError if they do not go together."""
        found = self._settings.with_subscriptions((*self._settings.subscriptions, *declared_))
        for name in found.keys() - {""} - self._named.keys():
            self._named[name] = self._made(name, found[name])
        self._named = {name: self._named[name] for name in found if name}
        self._declared = declared_

    def _made(self, name: str, settings: SidecarSettings) -> Subscribed:
        target_ = target(settings, settings.instance_formats[1], settings.reactive_max_concurrency, name)
        return Subscribed(name, settings, target_, self._reader)
