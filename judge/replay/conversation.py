"""A recording as the steps of a replay: which request is sent when, and which answer has come before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from judge.protocol.schema import Message, ProtocolError
from judge.replay.errors import UNKNOWN_FOR_NOW, UNSETTLED, error_codes
from judge.replay.frames import Answer, Request, answer_of, request_of
from judge.replay.recording import Event, Kind
from judge.replay.specification import Specifications

METADATA, CREATE_TOPICS, DELETE_TOPICS = 3, 19, 20


class Do(Enum):
    CONNECT = auto()
    SEND = auto()
    RECEIVE = auto()
    CLOSE = auto()


@dataclass(slots=True)
class Exchange:
    number: int
    connection: int
    request: Request
    recorded: Answer | None = None
    """None: the client left before its answer, or wanted none."""


@dataclass(frozen=True, slots=True)
class Step:
    do: Do
    connection: int
    exchange: Exchange | None = None
    address: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    steps: Sequence[Step]
    exchanges: Sequence[Exchange]
    left_out: Sequence[Exchange]
    """Requests that failed because the recorded endpoint was not ready. A replay has retries of its own."""
    made: frozenset[str]
    """Topics that came or went meanwhile. Brokers hear of that one after the other."""


def conversation(specs: Specifications, events: Iterable[Event]) -> Conversation:
    """Raises ProtocolError if bytes of the recording are not Kafka's protocol."""
    steps: list[Step] = []
    exchanges: list[Exchange] = []
    waiting: dict[int, deque[Exchange]] = {}
    for event in events:
        if event.kind is Kind.OPENED:
            waiting[event.connection] = deque()
        queue = waiting.get(event.connection)
        if queue is None:  # an answer that came when its client had left
            continue
        if event.kind is Kind.OPENED:
            steps.append(Step(Do.CONNECT, event.connection, address=event.data.decode()))
        elif event.kind is Kind.REQUEST:
            exchange = Exchange(len(exchanges), event.connection, request_of(specs, event.data))
            exchanges.append(exchange)
            queue.append(exchange)
            steps.append(Step(Do.SEND, event.connection, exchange))
        elif event.kind is Kind.ANSWER:
            exchange = _answered(queue, event.data)
            exchange.recorded = answer_of(specs, exchange.request, event.data)
            steps.append(Step(Do.RECEIVE, event.connection, exchange))
        else:
            del waiting[event.connection]
            steps.append(Step(Do.CLOSE, event.connection))
    left_out, made = _in_vain(exchanges)
    numbers = {exchange.number for exchange in left_out}
    kept = [step for step in steps if step.exchange is None or step.exchange.number not in numbers]
    return Conversation(kept, [each for each in exchanges if each.number not in numbers], left_out, made)


def lists_all(asked: Message) -> bool:
    """Whether a request for metadata names no topics, and so asks for all. Clients from 0.10 on ask so."""
    return asked.get("Topics") is None


def _answered(queue: deque[Exchange], frame: bytes) -> Exchange:
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    while queue:
        exchange = queue.popleft()
        if exchange.request.correlation_id == correlation_id:
            return exchange
    raise ProtocolError(f"the recording has answer {correlation_id} without its request")


def _in_vain(exchanges: Sequence[Exchange]) -> tuple[list[Exchange], frozenset[str]]:
    """Those that were answered with nothing but "not yet"; "unknown" is that for a topic that was just created.

    So is a list of all topics without a topic that was just created, or with a topic that was just deleted.
    """
    created: set[str] = set()
    made: set[str] = set()
    found = []
    for exchange in exchanges:
        if exchange.recorded is None or exchange.recorded.message is None or exchange.request.message is None:
            continue
        codes = set(error_codes(exchange.recorded.message))
        topics = exchange.recorded.message.get("Topics") or exchange.recorded.message.get("Responses") or ()
        names = {topic.get("Name") or "" for topic in topics}
        if exchange.request.key == CREATE_TOPICS:
            created |= {topic["Name"] for topic in topics if not topic["ErrorCode"]}
            made |= created
        elif exchange.request.key == DELETE_TOPICS:
            created -= names
            made |= names
        if exchange.request.key == METADATA and lists_all(exchange.request.message):
            if names & made != created:
                found.append(exchange)
        elif codes and codes <= (UNSETTLED | UNKNOWN_FOR_NOW if names and names <= created else UNSETTLED):
            found.append(exchange)
    return found, frozenset(made)
