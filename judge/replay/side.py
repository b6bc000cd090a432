"""One endpoint in a replay: gets the recorded requests, with its own values in the place of the recorded endpoint's.

Requests leave in the recorded order. An answer that came before a request in the recording is waited for before that
request leaves, over all connections. So each cause of an effect in the recording has happened here, too.

An answer that says "not yet", where the recorded one did not, is asked for again, as clients do. So is a poll that
brought records in the recording and none here, and a list of topics that lacks a new one. The bound is `SETTLE_S`.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from judge.protocol.connection import Address, address
from judge.protocol.schema import Message, ProtocolError
from judge.replay.bindings import Bindings
from judge.replay.conversation import Conversation, Do, Exchange, Step, lists_all
from judge.replay.errors import UNKNOWN_FOR_NOW, UNSETTLED, error_codes
from judge.replay.frames import Answer, answer_of, request_of, with_message
from judge.replay.settling import await_markers
from judge.replay.specification import MessageSpec, Specifications

SETTLE_S = 30.0
SETTLE_AGAIN_S = 0.5
"""The shorter time for an API that did not settle before."""
RETRY_S = 0.05
ANSWER_S = 40.0
CONNECT_S = 10.0
MAX_ANSWER = 128 * 1024 * 1024
NO_ANSWER = "no answer"
FETCH, METADATA, END_TXN, SHARE_FETCH, LIST_GROUPS = 1, 3, 26, 78, 16


@dataclass(frozen=True, slots=True)
class Refusal:
    """There was no readable answer; `words` describe the result."""

    words: str


Outcome = Answer | Refusal


@dataclass(slots=True)
class Line:
    """One connection to this endpoint."""

    to: Address
    link: socket.socket | None = None
    pending: dict[int, Exchange] = field(default_factory=dict)
    early: dict[int, bytes] = field(default_factory=dict)
    """Answers that came before those to earlier requests, by correlation id."""

    def send(self, frame: bytes) -> None:
        if self.link is None:
            self.link = socket.create_connection(self.to, CONNECT_S)
            self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self, deadline: float) -> bytes:
        [size] = struct.unpack(">i", self._take(4, deadline))
        if not 4 <= size <= MAX_ANSWER:
            raise ProtocolError(f"an answer of {size} bytes")
        return self._take(size, deadline)

    def close(self) -> None:
        if self.link is not None:
            self.link.close()
        self.link = None
        self.pending.clear()
        self.early.clear()

    def _take(self, size: int, deadline: float) -> bytes:
        if self.link is None:
            raise ConnectionError("closed before")
        found = bytearray()
        while len(found) < size:
            self.link.settimeout(max(deadline - time.monotonic(), 0.001))
            data = self.link.recv(min(size - len(found), 1 << 20))
            if not data:
                raise ConnectionError("closed by the endpoint")
            found += data
        return bytes(found)


@dataclass(slots=True)
class Side:
    name: str
    bootstrap: Sequence[str]
    specs: Specifications
    bindings: Bindings = field(default_factory=Bindings)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    """By the number of the exchange."""
    attempts: dict[int, list[Answer]] = field(default_factory=dict)
    """All answers to an exchange, where it was asked again."""
    asked: dict[int, bytes] = field(default_factory=dict)
    """Frames as they were sent here."""
    retries: int = 0
    _made: frozenset[str] = frozenset()
    _lines: dict[int, Line] = field(default_factory=dict)
    _unsettled: set[str] = field(default_factory=set)

    def replay(self, conversation: Conversation) -> None:
        self._made = conversation.made
        try:
            for step in conversation.steps:
                self._do(step)
        finally:
            for line in self._lines.values():
                line.close()

    def _do(self, step: Step) -> None:
        if step.do is Do.CONNECT:
            known = self.bindings.addresses.get(step.address, self.bootstrap[0])
            self._lines[step.connection] = Line(address(known))
        elif step.do is Do.CLOSE:
            self._lines[step.connection].close()
        elif step.exchange is not None and step.do is Do.SEND:
            with contextlib.suppress(OSError):  # whoever waits for the answer tells
                self._send(step.exchange)
        elif step.exchange is not None:
            outcome = self._received(step.exchange)
            self.outcomes[step.exchange.number] = outcome
            if isinstance(outcome, Answer):
                self._learn(step.exchange, outcome)
                self._await_markers(step.exchange, outcome)

    def _await_markers(self, exchange: Exchange, outcome: Answer) -> None:
        asked = exchange.request.message
        if exchange.request.key == END_TXN and asked and not (outcome.message or {}).get("ErrorCode"):
            await_markers(self._lines[exchange.connection].to, asked["TransactionalId"], SETTLE_S)

    def _send(self, exchange: Exchange) -> None:
        line = self._lines[exchange.connection]
        frame = self._frame(exchange)
        self.asked[exchange.number] = frame
        line.pending[exchange.request.correlation_id] = exchange
        line.send(frame)

    def _frame(self, exchange: Exchange) -> bytes:
        """The very bytes of the recording, unless an answer here binds a value in them."""
        request = exchange.request
        recorded = request.header + request.body
        spec = self.specs.find(request.key, request.version, is_request=True)
        if request.message is None or spec is None or with_message(self.specs, request, request.message) != recorded:
            return recorded
        return with_message(self.specs, request, self.bindings.rewritten(spec.fields, request.message))

    def _received(self, exchange: Exchange) -> Outcome:
        bound = SETTLE_AGAIN_S if exchange.request.title in self._unsettled else SETTLE_S
        give_up = time.monotonic() + bound
        again = False
        while True:
            outcome = self._answer(exchange, again)
            if isinstance(outcome, Answer):
                self.attempts.setdefault(exchange.number, []).append(outcome)
            if not self._is_unsettled(exchange, outcome):
                return outcome
            if time.monotonic() > give_up:
                self._unsettled.add(exchange.request.title)
                return outcome
            if isinstance(outcome, Answer):
                self._learn(exchange, outcome)
            self.retries += 1
            again = True
            time.sleep(RETRY_S)
            try:
                self._send(exchange)
            except OSError as error:
                return Refusal(f"{NO_ANSWER}: {error}")

    def _answer(self, exchange: Exchange, again: bool) -> Outcome:
        """`again`: the request was repeated, so answers to later ones come before its own."""
        line = self._lines[exchange.connection]
        wanted = exchange.request.correlation_id
        deadline = time.monotonic() + ANSWER_S
        line.pending.pop(wanted, None)
        overtaken = False
        try:
            frame = line.early.pop(wanted, None)
            while frame is None:
                found = line.receive(deadline)
                [correlation_id] = struct.unpack_from(">i", found)
                if correlation_id == wanted:
                    frame = found
                elif correlation_id not in line.pending:
                    raise ProtocolError(f"an answer to request {correlation_id}, which nobody waits for")
                elif line.pending[correlation_id].recorded is None:
                    del line.pending[correlation_id]
                else:
                    line.early[correlation_id] = found
                    overtaken = not again
            if overtaken:
                return Refusal("answers in another order than their requests")
            return answer_of(self.specs, exchange.request, frame)
        except ProtocolError as error:
            line.close()
            return Refusal(f"unreadable: {error}")
        except OSError as error:
            line.close()
            return Refusal(f"{NO_ANSWER}: {error}")

    def _is_unsettled(self, exchange: Exchange, outcome: Outcome) -> bool:
        if not isinstance(outcome, Answer) or outcome.message is None or exchange.recorded is None:
            return False
        recorded = exchange.recorded.message or {}
        new = set(error_codes(outcome.message)) - set(error_codes(recorded))
        if new & (UNSETTLED | UNKNOWN_FOR_NOW):
            return True
        if exchange.request.key == METADATA:
            gone = set(error_codes(recorded)) & UNKNOWN_FOR_NOW
            if gone - set(error_codes(outcome.message)):
                return True
            if lists_all(exchange.request.message or {}):
                return bool(self._made & (_listed(recorded) ^ _listed(outcome.message)))
        if exchange.request.key == LIST_GROUPS:
            return bool(_states(recorded).items() - _states(outcome.message).items())
        if exchange.request.key not in (FETCH, SHARE_FETCH):
            return False
        brought = (self._with_records(each.message or {}) for each in self.attempts[exchange.number])
        return bool(self._with_records(recorded, recorded=True) - set().union(*brought))

    def _learn(self, exchange: Exchange, outcome: Answer) -> None:
        spec = self._spec_of_answer(exchange)
        if spec is None or outcome.message is None or exchange.recorded is None or exchange.recorded.message is None:
            return
        self.bindings.learn(spec.fields, exchange.recorded.message, outcome.message)

    def _spec_of_answer(self, exchange: Exchange) -> MessageSpec | None:
        return self.specs.find(exchange.request.key, exchange.request.version, is_request=False)

    def _with_records(self, message: Message, *, recorded: bool = False) -> set[tuple[object, int]]:
        """Partitions that an answer to a poll has records of."""
        return {
            (self.bindings.topic_name(topic, recorded=recorded), partition["PartitionIndex"])
            for topic in message.get("Responses") or ()
            for partition in topic["Partitions"]
            if partition.get("Records")
        }

    def told_by_all(self, exchange: Exchange) -> list[Message]:
        """As `told`, of all attempts."""
        spec = self._spec_of_answer(exchange)
        answers = self.attempts.get(exchange.number, ()) if spec else ()
        return [
            self.bindings.in_recorded_words(spec.fields, each.message)
            for each in answers
            if spec is not None and each.message is not None
        ]

    def told(self, exchange: Exchange) -> Message | None:
        """This endpoint's answer in the recording's words; None: there is none that a specification describes."""
        outcome, spec = self.outcomes.get(exchange.number), self._spec_of_answer(exchange)
        if not isinstance(outcome, Answer) or outcome.message is None or spec is None:
            return None
        return self.bindings.in_recorded_words(spec.fields, outcome.message)

    def asked_message(self, exchange: Exchange) -> Message | None:
        frame = self.asked.get(exchange.number)
        return None if frame is None else request_of(self.specs, frame).message


def _states(message: Message) -> dict[str, str]:
    """A group is empty some time after its last member has left without a word, or closed its connection."""
    return {group["GroupId"]: group.get("GroupState", "") for group in message.get("Groups") or ()}


def _listed(message: Message) -> set[str]:
    return {topic["Name"] or "" for topic in message.get("Topics") or ()}
