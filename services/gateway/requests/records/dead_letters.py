"""Records that a rule of validation refuses, on their way to the rule's topic of dead letters.

Theory of operation
1. The dead letters are written before the client hears that its batch is refused. If they can't be written, the client
   has to send the batch again: nothing is lost in silence. If its answer is lost, they may be there twice.
2. They are a Produce of the gateway's own, by the plan of all: topics move, and rules of protection count. Rules of
   validation do not, so no dead letter has dead letters.
3. They keep key, value, headers and time. `opened_batches` adds the origin and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

import structlog

from services.gateway.requests.older.rewriting import message_of_answer, rewritten
from services.gateway.requests.plan import Command, Plan, Request
from services.gateway.wire.error_words import words_of
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from services.gateway.requests.records.produce_order import Producing

log = structlog.get_logger(__name__)

VERSION: Final = 9
"""Of Produce: it names topics."""
PARTITION: Final = 0
"""Dead letters are few, and each topic has this partition."""
ALL: Final = -1
"""As acks: all replicas in sync."""

Write = Callable[[Request], Plan]
"""The plan of a Produce whose records are not validated."""


def written(produce: Producing, topic: str, records: bytes, write: Write) -> Generator[Command, Any, bool]:
    """Whether the dead letters are stored."""
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(PARTITION, records)])]
    message = ProduceRequest(None, ALL, max(1, produce.scan.timeout_ms), data)
    given = yield from write(rewritten(produce.request, message, VERSION))
    told = message_of_answer(given, ProduceResponse, VERSION)
    codes = (
        [part.error_code for each in told.responses for part in each.partition_responses]
        if isinstance(told, ProduceResponse)
        else []
    )
    code = codes[0] if codes else ErrorCode.UNKNOWN_SERVER_ERROR
    if code:
        tell_unwritten(topic, words_of(code))
    return code == ErrorCode.NONE


def tell_unwritten(topic: str, reason: str) -> None:
    log.warning("dead letters can't be written, and their records come again", topic=topic, reason=reason)
