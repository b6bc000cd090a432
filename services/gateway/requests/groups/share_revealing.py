"""Records of protected topics on their way to a member of a share group; those that it can't have now are released.

Theory of operation
1. As in Fetch (`revealing`), a member gets what the rules say of each record. Offsets and delivery counts stay.
2. A record that is acquired and can't be given must not count as read. The gateway releases it at its broker before it
   answers, and the member does not hear that it was acquired. The broker counts this delivery.
3. While a service of keys is away, the gateway acquires no further records of the topic. It asks for the keys that were
   missing first. So an outage costs a record one delivery for each gateway that reads it, and not all that the group
   allows: after those the broker would archive the record.
4. The member hears UNKNOWN_SERVER_ERROR then, after its wait, and asks again. A member that a rule refuses hears
   TOPIC_AUTHORIZATION_FAILED, and acquires nothing. So does a member whose records can't be decrypted for ever, if the
   rule says "refusal"; other rules mask such records.
5. Few bytes are acquired at once (`MOST_BYTES`), because what is too much to be decrypted at once is released, too.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mesh.protection.keys import NoKey
from services.gateway.requests.auditing.withheld import tell_withheld
from services.gateway.requests.data_keys import find_keys
from services.gateway.requests.groups.share_opening import by_topic
from services.gateway.requests.groups.share_parts import acknowledged
from services.gateway.requests.groups.share_sessions import BrokerSession, Leader, Member, ShareSession, Slot
from services.gateway.requests.plan import Broker, Call, Command, Lane, MeshView, Unreachable
from services.gateway.requests.records.revealed_batches import ENOUGH_SHARED, Revealed, Stored
from services.gateway.requests.records.revealing import (
    NOT_A_READER,
    keys_wanted,
    principals_of,
    refusing,
    revealed_records,
    withheld_code,
)
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.batches import batches
from services.gateway.wire.error_words import worded
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from services.gateway.wire.messages.share_fetch import AcquiredRecords, PartitionData

Released = Mapping[Slot, Sequence[AcquiredRecords]]

RELEASE: Final = 2
"""A type of acknowledgement."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes that a broker gives out at once if a topic of the session is protected; or one batch, if that alone is more."""


class Closed(NamedTuple):
    """Why a member reads nothing of a topic now."""

    rule_id: str
    reason: str
    code: ErrorCode
    for_now: bool


def closed(topic: str, mesh: MeshView) -> Generator[Command, Any, Closed | None]:
    """None: the topic's records may be acquired."""
    memory = mesh.memory
    rules = memory.protection.rules_for(topic)
    if not rules:
        return None
    rule = refusing(rules, principals_of(mesh))
    if rule is not None:
        return Closed(rule.rule_id, NOT_A_READER, ErrorCode.TOPIC_AUTHORIZATION_FAILED, for_now=False)
    awaited = memory.keys_awaited.get(topic, mesh.now)
    if awaited is None:
        return None
    found = yield from find_keys(memory.data_keys, keys_wanted(awaited))
    keys = (*found.reading.values(), *found.schemas.values())
    away = next((key for key in keys if isinstance(key, NoKey) and not key.is_gone), None)
    if away is not None:
        return Closed(rules[0].rule_id, away.reason, ErrorCode.UNKNOWN_SERVER_ERROR, for_now=True)
    memory.keys_awaited.drop(topic)
    return None


def refuse(slot: Slot, why: Closed, mesh: MeshView) -> str:
    """Reports it; the words for the member."""
    tell_withheld(mesh, *slot, why.rule_id, why.reason, for_now=why.for_now)
    return worded(why.code, why.reason)


@dataclass(slots=True)
class Given:
    """The records that the brokers gave to one request of a member."""

    member: Member
    version: int
    session: ShareSession
    givers: dict[Slot, dict[str, BrokerSession]] = field(default_factory=dict)
    """By cluster: the parts of a stitched log may give records at one time."""

    def reveal(self, results: Mapping[Slot, PartitionData], mesh: MeshView) -> Generator[Command, Any, bool]:
        """Puts the records that the member may see into the results; returns whether some were kept back."""
        policy = mesh.memory.protection
        concerned = [
            (slot, data, rules)
            for slot, data in results.items()
            if slot in self.givers and data.records and (rules := policy.rules_for(slot.topic))
        ]
        if not concerned:
            return False
        stored = [Stored(slot.topic, rules, bytes(data.records)) for slot, data, rules in concerned]
        revealed = yield from revealed_records(mesh, stored, ENOUGH_SHARED)
        released: dict[Slot, Sequence[AcquiredRecords]] = {}
        for (slot, data, _), result in zip(concerned, revealed, strict=True):
            kept = _give(data, result)
            code = withheld_code(mesh, *slot, result)
            if kept:
                released[slot] = kept
            if code is not None and not data.acquired_records:
                data.error_code, data.error_message = code, worded(code, result.withheld)
        yield from self._release(released, mesh)
        return bool(released)

    def _release(self, released: Released, mesh: MeshView) -> Generator[Command, Any, None]:
        """If a broker is not reached, its lock on the records runs out, and it gives them out again."""
        ranges = {
            slot: [AcknowledgementBatch(each.first_offset, each.last_offset, [RELEASE]) for each in of_slot]
            for slot, of_slot in released.items()
        }
        by_leader: dict[Leader, dict[Slot, Sequence[AcknowledgementBatch]]] = {}
        givers: dict[Leader, BrokerSession] = {}
        for (slot, cluster), of_giver in acknowledged(ranges, mesh).items():
            there = self.givers[slot].get(cluster) if cluster is not None else next(iter(self.givers[slot].values()))
            if there is not None:
                givers[there.leader] = there
                by_leader.setdefault(there.leader, {})[slot] = of_giver
        calls = [self._call(there, by_leader[leader]) for leader, there in givers.items()]
        outcomes = (yield from ask_fitting(mesh, calls, ShareAcknowledgeResponse)) if calls else ()
        for there, outcome in zip(givers.values(), outcomes, strict=True):
            if isinstance(outcome, Unreachable) or outcome.error_code:
                self.session.lost(there.leader)
            else:
                there.goes_on(there.slots)

    def _call(self, there: BrokerSession, released: Mapping[Slot, Sequence[AcknowledgementBatch]]) -> Call:
        cluster, broker_id = there.leader
        ids = self.session.ids
        topics = [
            AcknowledgeTopic(
                ids[cluster, topic],
                [AcknowledgePartition(index, list(released[Slot(topic, index)])) for index in partitions],
            )
            for topic, partitions in by_topic(released).items()
        ]
        message = ShareAcknowledgeRequest(self.member[0], there.member_id, there.epoch, topics=topics)
        return Call(cluster, message, self.version, Broker(broker_id), Lane.FETCH)


def _give(data: PartitionData, result: Revealed) -> list[AcquiredRecords]:
    """Leaves in the answer what is revealed; returns the acquired records that are not in it."""
    headers = batches(result.records, 0, len(result.records))
    last = max((each.base_offset + each.last_offset_delta for each in headers), default=-1)
    given: list[AcquiredRecords] = []
    kept: list[AcquiredRecords] = []
    for each in data.acquired_records:
        first, end, count = each.first_offset, each.last_offset, each.delivery_count
        if first <= last:
            given.append(AcquiredRecords(first, min(end, last), count))
        if end > last:
            kept.append(AcquiredRecords(max(first, last + 1), end, count))
    data.records, data.acquired_records = result.records if given else b"", given
    return kept
