"""The subscriptions of a sidecar: those of its settings, those that control declares, those that its backend declares.

1. The sidecar asks its backend at the start, a bounded number of times. A declaration of the backend counts as a whole:
   if one of its subscriptions is wrong, none begins. Then the log and readiness have the reason, and the sidecar asks
   again only when an operator reloads the module `subscriptions`. No other subscription waits for the backend's answer.
2. Control may declare and withdraw at any time. A subscription of control that is wrong here is refused by itself:
   control hears the reason, and readiness does not.
3. On one name, and for one topic in one group, settings win over control, and control over the backend. The loser
   begins when the winner is gone.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass

import structlog
from google.protobuf.unknown_fields import UnknownFieldSet

from mesh.pauses import pause
from mesh.rpc import subscriptions as rpc
from mesh.subscriptions import Subscription, SubscriptionError, of_spec
from services.sidecar.consuming.instance_values import Interest
from services.sidecar.control.declared_subscriptions import DeclaredSubscriptions
from services.sidecar.control.messages import resource_name
from services.sidecar.delivering.deliverer import Target
from services.sidecar.delivering.failures import CallFailedError
from services.sidecar.delivering.record_shower import RecordShower
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.reactive.reactive_consumer import ReactiveConsumer
from services.sidecar.reactive.subscriptions import MOST, Membership, Source, check_beside, declared
from services.sidecar.settings import SidecarSettings
from services.sidecar.telemetry import metrics
from services.sidecar.wiring.delivering import target
from services.sidecar.wiring.shared_parts import SharedParts

ANSWER_SECONDS = 5.0
"""The time that the backend may take to declare its subscriptions."""
FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 5.0
REMEDY = 'correct the backend, then POST ["subscriptions"] to /adm/modules, or restart this sidecar'
_SOURCES = {
    Source.SETTINGS: rpc.SUBSCRIPTION_SOURCE_SETTINGS,
    Source.CONTROL: rpc.SUBSCRIPTION_SOURCE_CONTROL,
    Source.BACKEND: rpc.SUBSCRIPTION_SOURCE_BACKEND,
}
_SAID = {Source.SETTINGS: "this sidecar, by its settings,", Source.CONTROL: "control", Source.BACKEND: "the backend"}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A subscription as somebody declares it."""

    source: Source
    subscription: Subscription
    revision: int = 0
    """The position of control's decision."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A subscription that the sidecar does not run."""

    source: Source
    name: str
    reason: str
    revision: int = 0


class Subscribed:
    """One subscription: the settings that hold for it, and the backend as its records find it."""

    def __init__(
        self,
        name: str,
        settings: SidecarSettings,
        target_: Target,
        reader: RecordReader,
        declaration: Declaration | None = None,
    ) -> None:
        """`name`: empty for the subscription of the sidecar's own settings."""
        self.name = name
        self.settings = settings
        self.target = target_
        self.declaration = declaration
        self.shower = RecordShower(*settings.instance_formats, reader)
        self.consumer: ReactiveConsumer | None = None
        """Its reactive consumer, once that was made."""

    @property
    def source(self) -> Source:
        """Its source."""
        return Source.SETTINGS if self.declaration is None else self.declaration.source

    @property
    def membership(self) -> Membership:
        """Its topics, and its group."""
        return Membership(self.name, self.settings.reactive_group, self.settings.reactive_interest)

    @property
    def interests(self) -> list[Interest]:
        """The topics of the settings, and those that an operator has set."""
        ordered = [] if self.consumer is None else [self.consumer.interest]
        return [self.settings.reactive_interest, *ordered]

    def reads(self, topic: str) -> bool:
        """Whether the topic is one of this subscription."""
        return any(topic in one.topics or (one.pattern and re.fullmatch(one.pattern, topic)) for one in self.interests)


class Subscriptions:
    """The subscriptions of one sidecar. Those of control come after those of the settings, the backend's come last."""

    def __init__(self, shared: SharedParts, by_control: DeclaredSubscriptions) -> None:
        settings = shared.settings
        self._settings = settings
        self._reader = shared.reader
        self._by_control = by_control
        by_control.reports = self.reports
        self.usual = Subscribed("", settings, shared.backend, shared.reader)
        """The one of the sidecar's own settings, which also counts for topics that no subscription reads."""
        self._by_backend: tuple[Subscription, ...] = ()
        self._named: dict[str, Subscribed] = {}
        self._refused: list[Refused] = []
        self._told: frozenset[Refused] = frozenset()
        """Those that the log has already."""
        self._ending: list[Subscribed] = []
        self.settle()
        self.is_answered = not self.are_declared
        """Whether all that the backend declares is known."""
        self.problem = "the backend has not declared its subscriptions yet" if self.are_declared else ""
        """The reason why subscriptions of the backend do not begin; empty if they do, or if there are none."""

    @property
    def are_declared(self) -> bool:
        """Whether the backend declares subscriptions."""
        return self._settings.subscriptions_from_backend and self._settings.reads_by_itself

    @property
    def changed(self) -> asyncio.Event:
        """Set when control or the backend declares other subscriptions; then `settle`."""
        return self._by_control.changed

    def __iter__(self) -> Iterator[Subscribed]:
        if self._settings.reactive_interest:
            yield self.usual
        yield from self._named.values()

    def of(self, topic: str) -> Subscribed:
        """The subscription that reads a topic, for records of the topic that come again."""
        return next((one for one in self if one.reads(topic)), self.usual)

    def settle(self) -> list[Subscribed]:
        """Decides anew which subscriptions run; returns those that run no more. Those without a consumer begin next."""
        self._told = frozenset(self._refused)
        before, self._named, self._refused = self._named, {}, []
        for declaration in self._declarations():
            self._admit(declaration, before)
        going = [one for one in before.values() if self._named.get(one.name) is not one]
        self._ending += going
        self.count()
        return going

    def ended(self, subscribed: Subscribed) -> None:
        """A subscription that runs no more has come to its end."""
        self._ending.remove(subscribed)

    def refuse(self, subscribed: Subscribed, reason: str) -> None:
        """A subscription of control could not begin."""
        assert subscribed.declaration is not None
        del self._named[subscribed.name]
        self._refuse(subscribed.declaration, reason)

    def reports(self) -> list[rpc.SubscriptionReport]:
        """The state of each subscription, for control and operators."""
        found = [_report(one) for one in self if self._settings.reads_by_itself or one.source is Source.CONTROL]
        for one in self._ending:
            found.append(_report(one))
            found[-1].state = rpc.SUBSCRIPTION_STATE_ENDING
        return found + [
            rpc.SubscriptionReport(
                name=each.name,
                source=_SOURCES[each.source],
                state=rpc.SUBSCRIPTION_STATE_REFUSED,
                problem=each.reason,
                revision=each.revision,
            )
            for each in self._refused
        ]

    def count(self) -> None:
        """Brings the metrics up to date."""
        metrics.subscriptions.clear()
        for one in self.reports():
            source = rpc.SubscriptionSource.Name(one.source).removeprefix("SUBSCRIPTION_SOURCE_").lower()
            state = rpc.SubscriptionState.Name(one.state).removeprefix("SUBSCRIPTION_STATE_").lower()
            metrics.subscriptions.labels(source, state).inc()

    async def ask(self) -> None:
        """Asks the backend, unless its answer is known: its subscriptions change with a restart.

        SubscriptionError or CallFailedError if there is no answer that can be used.
        """
        if not self.is_answered:
            answer = await self.usual.target.backend.get(self._settings.subscriptions_path, ANSWER_SECONDS)
            given = declared(answer)
            self._settings.with_subscriptions((*self._settings.subscriptions, *given))
            self._by_backend = given
            self.problem = ""
            self.is_answered = True
            log.info("the backend has declared its subscriptions", names=[one.name for one in given])
            self.changed.set()

    async def reload(self) -> None:
        """As `ask`, for operators. SubscriptionError with the reason why the answer is still not known."""
        try:
            await self.ask()
        except CallFailedError as failure:
            raise SubscriptionError(failure.reason) from None

    async def ask_repeatedly(self) -> None:
        """Asks the backend until its answer is known, or for as long as the settings have it."""
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

    async def close(self) -> None:
        """Closes the connections to the backend."""
        for one in (self.usual, *self._named.values()):
            await one.target.backend.close()

    def _declarations(self) -> Iterator[Declaration]:
        """All of them, those that win first. Subscriptions of control that cannot be read are refused here."""
        for one in self._settings.subscriptions:
            yield Declaration(Source.SETTINGS, one)
        for each in self._by_control if self._by_control.are_taken else ():
            try:
                yield Declaration(Source.CONTROL, _of_control(each), each.revision)
            except SubscriptionError as error:
                self._note(Refused(Source.CONTROL, each.name, str(error), each.revision))
        for one in self._by_backend:
            yield Declaration(Source.BACKEND, one)

    def _admit(self, declaration: Declaration, before: dict[str, Subscribed]) -> None:
        name = declaration.subscription.name
        if (winner := self._named.get(name)) is not None:
            self._refuse(declaration, f"{_SAID[winner.source]} has a subscription of this name, which wins")
            return
        if declaration.source is Source.CONTROL and len(self._named) >= MOST:
            self._refuse(declaration, f"this sidecar has {MOST} subscriptions, and no more are possible")
            return
        known = before.get(name)
        try:
            found = known if known is not None and _is_same(known, declaration) else self._made(declaration)
            check_beside(found.membership, [one.membership for one in self])
        except ValueError as error:
            self._refuse(declaration, str(error))
            return
        found.declaration = declaration
        self._named[name] = found

    def _made(self, declaration: Declaration) -> Subscribed:
        name = declaration.subscription.name
        settings = self._settings.of(declaration.subscription)
        most = settings.reactive_max_concurrency
        target_ = target(settings, settings.instance_formats[1], most, name, self.usual.target.tracer)
        return Subscribed(name, settings, target_, self._reader, declaration)

    def _refuse(self, declaration: Declaration, reason: str) -> None:
        self._note(Refused(declaration.source, declaration.subscription.name, reason, declaration.revision))

    def _note(self, refused: Refused) -> None:
        self._refused.append(refused)
        if refused not in self._told:
            named = {"subscription": refused.name, "source": refused.source.value}
            log.warning("a subscription does not run", **named, reason=refused.reason)


def _of_control(message: rpc.DeclaredSubscription) -> Subscription:
    if len(UnknownFieldSet(message.spec)):
        raise SubscriptionError("it has members that this release does not know; start a newer sidecar")
    return of_spec(message.name, message.spec)


def _is_same(known: Subscribed, declaration: Declaration) -> bool:
    """Whether a subscription goes on as it is: a new reason, or a new choice of sidecars, is nothing to it."""
    before = known.declaration
    return before is not None and (before.source, before.subscription) == (declaration.source, declaration.subscription)


def _report(one: Subscribed) -> rpc.SubscriptionReport:
    consumer = one.consumer
    report = rpc.SubscriptionReport(
        name=one.name,
        source=_SOURCES[one.source],
        state=rpc.SUBSCRIPTION_STATE_WAITING if consumer is None else rpc.SUBSCRIPTION_STATE_RUNNING,
        revision=0 if one.declaration is None else one.declaration.revision,
    )
    if consumer is not None:
        report.instance, report.problem = resource_name(consumer.id), consumer.last_status.problem
    return report
