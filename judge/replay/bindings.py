"""Values that an endpoint chooses, and clients send back: the recorded endpoint's values, and this endpoint's.

Theory of operation. The replay reads the recorded answer and this endpoint's answer to the same request side by side.
If the recorded answer has a bound value, this endpoint's value at the same place replaces the recorded value from then
on. A later request with the recorded value gets this endpoint's value (`rewritten`). In an answer of this endpoint, the
recorded values replace this endpoint's (`in_recorded_words`), so that two endpoints are compared by the same values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from judge.protocol.schema import Message
from judge.replay.record_batches import with_producers
from judge.replay.specification import Field
from judge.replay.walking import PARTITIONS, TOPICS, Leaf, key_of, leaves, pairs


class Bound(StrEnum):
    ID = "id"
    """Ids of topics, directories, client instances: all values of the type uuid in the specifications."""
    NODE = "node"
    PRODUCER = "producer"
    PRODUCER_EPOCH = "producer epoch"
    MEMBER = "member"
    GENERATION = "generation"
    SESSION = "fetch session"
    CLUSTER = "cluster"
    LEADER_EPOCH = "leader epoch"
    OFFSET = "offset"
    TOKEN = "delegation token"


MINTED = frozenset({Bound.ID, Bound.NODE, Bound.PRODUCER, Bound.MEMBER, Bound.SESSION, Bound.CLUSTER, Bound.TOKEN})
"""Values without a meaning of their own: two endpoints agree about them if each uses its own consistently."""
OWN_TO_A_CLUSTER = frozenset({Bound.PRODUCER, Bound.NODE})
"""Clusters count these by themselves, so an endpoint of two clusters may have one value for two recorded ones."""
BY_NAME: dict[str, Bound] = {
    "ProducerId": Bound.PRODUCER,
    "ProducerEpoch": Bound.PRODUCER_EPOCH,
    "MemberId": Bound.MEMBER,
    "Leader": Bound.MEMBER,
    "GenerationId": Bound.GENERATION,
    "MemberEpoch": Bound.GENERATION,
    "GenerationIdOrMemberEpoch": Bound.GENERATION,
    "SessionId": Bound.SESSION,
    "ClusterId": Bound.CLUSTER,
    "CurrentLeaderEpoch": Bound.LEADER_EPOCH,
    "LeaderEpoch": Bound.LEADER_EPOCH,
    "Hmac": Bound.TOKEN,
    "Offset": Bound.OFFSET,
    "BaseOffset": Bound.OFFSET,
    "CommittedOffset": Bound.OFFSET,
    "FetchOffset": Bound.OFFSET,
    "NodeId": Bound.NODE,
    "LeaderId": Bound.NODE,
}
NO_VALUE = frozenset({None, -1, -2, -(2**31), "", b"", bytes(16), bytes(15) + b"\1"})
"""What Kafka writes where there is nothing."""
NO_SESSION = 0
RESOURCE_BROKER = 4
SESSION_STARTS, SESSION_ENDS = 0, -1
UNNAMED = "a new "
"""Begins the word for a value that nothing in the recording stands for."""
SCOPES: dict[Bound, tuple[str, ...]] = {
    Bound.PRODUCER_EPOCH: ("ProducerId",),
    Bound.GENERATION: ("MemberId",),
}

Key = tuple[Bound, object, object]


def bound_of(leaf_field: Field) -> Bound | None:
    if leaf_field.kind == "uuid":
        return Bound.ID
    if leaf_field.entity == "brokerId":
        return Bound.NODE
    if leaf_field.entity == "producerId":
        return Bound.PRODUCER
    found = BY_NAME.get(leaf_field.name)
    return None if found is Bound.MEMBER and leaf_field.kind != "string" else found


@dataclass(slots=True)
class Bindings:
    """The bound values of one endpoint."""

    addresses: dict[str, str] = field(default_factory=dict)
    """This endpoint's HOST:PORT by the recorded endpoint's HOST:PORT."""
    aliases: dict[Key, Any] = field(default_factory=dict)
    """Recorded values for which an endpoint has one and the same value. Endpoints that are compared share it."""
    _here: dict[Key, Any] = field(default_factory=dict)
    _recorded: dict[Key, Any] = field(default_factory=dict)
    _topics: tuple[dict[bytes, str], dict[bytes, str]] = field(default_factory=lambda: ({}, {}))
    """Names of topics by id: the recorded ids, and the ids here."""
    _last_epoch: dict[int, tuple[int, int]] = field(default_factory=dict)
    _session_epochs: dict[int, int] = field(default_factory=dict)

    def learn(self, fields: Sequence[Field], recorded: Message, here: Message) -> None:
        for which, message in enumerate((recorded, here)):
            self._name_topics(fields, message, self._topics[which])
        for of_recording, of_here in self._side_by_side(fields, recorded, here, (), ()):
            self._bind(of_recording, of_here)

    def rewritten(self, fields: Sequence[Field], recorded: Message) -> Message:
        """The request as this endpoint's client would send it; the recorded one stays as it is."""
        message = deepcopy(recorded)
        changes = [(leaf, self._for_here(leaf)) for leaf in leaves(fields, message)]
        for leaf, value in changes:
            leaf.put(value)
        if message.get("SessionId", NO_SESSION) != NO_SESSION:
            self._count_session(message)
        return message

    def in_recorded_words(self, fields: Sequence[Field], here: Message) -> Message:
        message = deepcopy(here)
        changes = []
        for leaf in leaves(fields, message):
            kind = bound_of(leaf.field)
            if kind in MINTED and leaf.value not in NO_VALUE and not (kind is Bound.SESSION and not leaf.value):
                changes.append((leaf, self.word(kind, leaf.value)))
        for leaf, value in changes:
            leaf.put(value)
        return message

    def topic_name(self, topic: Message, *, recorded: bool) -> object:
        """The name that identifies a topic of a poll in both, whether the poll names the topic or its id."""
        name = topic.get("Topic") or topic.get("TopicId")
        return self._topics[0 if recorded else 1].get(name, name) if isinstance(name, bytes) else name

    def word(self, kind: Bound, value: Any) -> Any:
        """The recording's value for this endpoint's one."""
        return self._root((kind, None, self._recorded.get((kind, None, value), f"{UNNAMED}{kind}")))

    def _for_here(self, leaf: Leaf) -> Any:
        value = leaf.value
        if leaf.field.kind == "records":
            return with_producers(value, self._producer_here)
        if leaf.field.name == "ResourceName" and leaf.owner.get("ResourceType") == RESOURCE_BROKER:
            return str(self._here.get((Bound.NODE, None, int(value)), value)) if value.isdigit() else value
        kind = bound_of(leaf.field)
        if kind is None or value in NO_VALUE:
            return value
        scope = self._scope(kind, leaf, 0)
        if kind is Bound.PRODUCER_EPOCH and isinstance(scope, int):
            return self._producer_here(scope, value)[1]
        return self._here.get((kind, scope, value), value)

    def _producer_here(self, producer_id: int, epoch: int) -> tuple[int, int]:
        """If no answer had this epoch, the client has counted it up itself."""
        here = self._here.get((Bound.PRODUCER, None, producer_id), producer_id)
        known = self._here.get((Bound.PRODUCER_EPOCH, producer_id, epoch))
        if known is None and producer_id in self._last_epoch and epoch >= 0:
            recorded, last = self._last_epoch[producer_id]
            known = last + epoch - recorded
        return here, epoch if known is None else known

    def _count_session(self, message: Message) -> None:
        """A client counts the requests of a session; a request that is sent again here counts as one more."""
        if message.get("SessionEpoch") in (None, SESSION_STARTS, SESSION_ENDS):
            return
        session = message["SessionId"]
        self._session_epochs[session] = self._session_epochs.get(session, 0) + 1
        message["SessionEpoch"] = self._session_epochs[session]

    def _bind(self, recorded: Leaf, here: Leaf) -> None:
        kind = bound_of(recorded.field)
        was, now = recorded.value, here.value
        if recorded.field.name == "Host" and "Port" in recorded.owner:
            self.addresses[f"{was}:{recorded.owner['Port']}"] = f"{now}:{here.owner['Port']}"
        if kind is None or was in NO_VALUE:
            return
        if now in NO_VALUE and kind is not Bound.LEADER_EPOCH:
            return
        self._here[kind, self._scope(kind, recorded, 0), was] = now
        told = (kind, self._scope(kind, here, 1), now)
        before = self._recorded.setdefault(told, was)
        if kind in OWN_TO_A_CLUSTER:
            self._alias(kind, before, was)
        else:
            self._recorded[told] = was
        if kind is Bound.PRODUCER_EPOCH:
            self._last_epoch[recorded.nearest("ProducerId")] = (was, now)

    def _alias(self, kind: Bound, *values: Any) -> None:
        first, last = sorted(map(self._root, ((kind, None, value) for value in values)))
        if first != last:
            self.aliases[kind, None, last] = first

    def _root(self, key: Key) -> Any:
        while key in self.aliases:
            key = (key[0], None, self.aliases[key])
        return key[2]

    def _scope(self, kind: Bound, leaf: Leaf, which: int) -> object:
        if kind in (Bound.LEADER_EPOCH, Bound.OFFSET):
            topic = leaf.nearest(*TOPICS)
            return self._topics[which].get(topic, topic), leaf.nearest(*PARTITIONS)
        return leaf.nearest(*SCOPES[kind]) if kind in SCOPES else None

    def _name_topics(self, fields: Sequence[Field], message: Message, names: dict[bytes, str]) -> None:
        for leaf in leaves(fields, message):
            if leaf.field.name == "TopicId" and leaf.value not in NO_VALUE:
                name = leaf.owner.get("Name") or leaf.owner.get("TopicName") or leaf.owner.get("Topic")
                if name:
                    names[leaf.value] = name

    def _side_by_side(
        self,
        fields: Sequence[Field],
        recorded: Message,
        here: Message,
        around_recorded: tuple[Message, ...],
        around_here: tuple[Message, ...],
    ) -> Iterator[tuple[Leaf, Leaf]]:
        around_recorded, around_here = (*around_recorded, recorded), (*around_here, here)
        for each in fields:
            was, now = recorded.get(each.name), here.get(each.name)
            if was is None or now is None:
                continue
            if not each.parts:
                for index in range(min(len(was), len(now))) if each.is_array else (-1,):
                    yield Leaf(each, recorded, index, around_recorded), Leaf(each, here, index, around_here)
                continue
            for left, right in self._elements(each, was, now) if each.is_array else ((was, now),):
                if left is not None and right is not None:
                    yield from self._side_by_side(each.parts, left, right, around_recorded, around_here)

    def _elements(self, array: Field, recorded: Sequence[Any], here: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """An element whose key is not known yet meets one that is equal but for bound values, else one at its place.

        The leader of a group learns the ids of all members in one answer, whose order Kafka does not promise.
        """
        words = set(self._here)

        def known(leaf_field: Field, value: Any) -> Any:
            kind = bound_of(leaf_field)
            return value if kind and (kind, None, value) in words else None

        def told(leaf_field: Field, value: Any) -> Any:
            kind = bound_of(leaf_field)
            return self._recorded.get((kind, None, value)) if kind else None

        def left_key(element: Any) -> object:
            return key_of(element, array.parts, known)

        def right_key(element: Any) -> object:
            return key_of(element, array.parts, told)

        def content(element: Any) -> object:
            plain = [each for each in array.parts if not (each.is_array or each.parts or bound_of(each))]
            return tuple(element.get(each.name) for each in plain)

        strangers = (
            [each for each in recorded if left_key(each) is None],
            [each for each in here if right_key(each) is None],
        )
        alike = pairs(*strangers, content, content)
        others: tuple[list[Any], list[Any]] = ([], [])
        for left, right in alike:
            if left is not None and right is not None:
                yield left, right
            else:
                others[left is None].append(right if left is None else left)
        yield from zip(*others, strict=False)
        acquainted = (
            [each for each in recorded if left_key(each) is not None],
            [each for each in here if right_key(each) is not None],
        )
        yield from pairs(*acquainted, left_key, right_key)
