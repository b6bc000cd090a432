"""Learning from the Metadata answers of a cluster, in steps: a long answer names 100,000 topics."""

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeVar

import structlog

from mesh.at_once import done_at_once
from mesh.steps import done_between
from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.plan import RawResponse, Sent, Unreachable
from services.gateway.upstream.awaiting import Settle
from services.gateway.wire.in_steps import STRUCTS_IN_A_STEP, decode_in_steps
from services.gateway.wire.messages import MetadataResponse
from services.gateway.wire.primitives import WireError
from services.gateway.wire.schema import Struct

log = structlog.get_logger(__name__)

M = TypeVar("M", bound=Struct)
AT_ONCE_BYTES = 32 * 1024
"""The largest answer that is learnt at once: some 400 topics."""


@dataclass(slots=True)
class ReadResponse(RawResponse):
    """A response that has been decoded already, for the next one who wants its message."""

    message: Struct

    def decode(self, cls: type[M]) -> M:
        if isinstance(self.message, cls):
            return self.message
        return RawResponse.decode(self, cls)


class Learning:
    """Learns from the answers of one cluster.

    An answer that comes while a long one is learnt is younger: the long one does not count for the topics that the
    younger one names.
    """

    def __init__(self, knowledge: ClusterKnowledge, learn_brokers: Callable[[MetadataResponse], None]) -> None:
        self._knowledge = knowledge
        self._learn_brokers = learn_brokers
        self._tasks: set[asyncio.Task[None]] = set()
        """Long answers that are being learnt. There is one for each call, and calls have a bound."""
        self._younger: list[set[str | None]] = []
        """For each of them, in the order in which they came: the topics that younger answers name."""

    def before(self, settle: Settle, *, of_all_topics: bool) -> Settle:
        """`settle`, after the outcome has been learnt."""

        def learn(outcome: RawResponse | Unreachable | Sent, owned: bool) -> None:
            if not isinstance(outcome, RawResponse):
                settle(outcome, owned)
            elif len(outcome.frame) <= AT_ONCE_BYTES:
                settle(done_at_once(self._learnt(outcome, of_all_topics, set())), owned)
            else:
                kept = outcome if owned else self._copy(outcome)
                task = asyncio.get_running_loop().create_task(self._learn(kept, settle, of_all_topics), name="learn")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        return learn

    @staticmethod
    def _copy(outcome: RawResponse) -> RawResponse:
        return RawResponse(memoryview(bytearray(outcome.frame)), outcome.body_offset, outcome.version)

    async def _learn(self, outcome: RawResponse, settle: Settle, of_all_topics: bool) -> None:
        younger = set[str | None]()
        self._younger.append(younger)
        try:
            known: RawResponse | Unreachable = await done_between(self._learnt(outcome, of_all_topics, younger))
        except Exception:  # the waiter must get an outcome, even for a fault of the gateway
            log.exception("an answer could not be learnt", cluster=self._knowledge.name)
            known = Unreachable(self._knowledge.name, "its answer could not be learnt, see the log of the gateway")
        finally:
            self._younger = [each for each in self._younger if each is not younger]
        settle(known, True)

    def _learnt(
        self, outcome: RawResponse, of_all_topics: bool, younger: set[str | None]
    ) -> Generator[None, None, RawResponse]:
        try:
            message = yield from decode_in_steps(MetadataResponse, outcome.version, outcome.frame, outcome.body_offset)
        except WireError:
            return outcome  # its reader says so
        older = [*takewhile(lambda each: each is not younger, self._younger)]
        topics, names = message.topics, set[str | None]()
        self._learn_brokers(MetadataResponse(brokers=message.brokers, controller_id=message.controller_id))
        for start in range(0, len(topics), STRUCTS_IN_A_STEP):
            some = topics[start : start + STRUCTS_IN_A_STEP]
            self._knowledge.learn(MetadataResponse(topics=[topic for topic in some if topic.name not in younger]))
            for known in (names, *older):
                known.update(topic.name for topic in some)
            yield
        if of_all_topics:
            yield from self._forget_all_but(names, younger)
        return ReadResponse(outcome.frame, outcome.body_offset, outcome.version, message)

    def _forget_all_but(self, names: set[str | None], younger: set[str | None]) -> Generator[None, None, None]:
        """The cluster has these topics and no others, as far as younger answers do not say more."""
        known = [*self._knowledge.topics]
        for start in range(0, len(known), STRUCTS_IN_A_STEP):
            some = known[start : start + STRUCTS_IN_A_STEP]
            self._knowledge.forget([name for name in some if name not in names and name not in younger])
            yield
