"""The clusters, topics and sidecars that a request names, by the option `names` of its fields in `proto/mesh/v1`.

A resource stands for all that it names itself: a rule for its topics and its cluster. A resource that does not exist
names nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from mesh.routing.codec import match_from_proto, rule_to_proto
from mesh.rpc import access, admin, subscriptions
from services.control.domain.access.things import Kind, Thing
from services.control.domain.change_control.proposals import request_of
from services.control.domain.change_control.schedules import command_of
from services.control.domain.sidecars.instances import Instances
from services.control.domain.view import MeshView

OWN_NAME = "{topic}"
"""In a template: the name of the topic, which another field bounds."""


class NamedThings:
    """The things that requests name, by a state of the mesh."""

    def __init__(self, view: MeshView, instances: Instances) -> None:
        self._view = view
        self._instances = instances

    def of(self, message: Message) -> Iterator[Thing]:
        """The things of a request, or of a part of a request; a thing may come several times."""
        if isinstance(message, AnyMessage):
            yield from self.of(command_of(message))
            return
        for field in _fields(message.DESCRIPTOR):
            named: access.Named.ValueType = field.GetOptions().Extensions[access.names]
            for value in _values(message, field):
                yield from self.of(value) if isinstance(value, Message) else self._named(named, value)
        yield from self._changed_by(message)

    def _changed_by(self, message: Message) -> Iterator[Thing]:
        """The rules, or the subscription, that a request changes without naming what they are about."""
        rules = self._view.state.effective.rules
        match message:
            case admin.ReplaceRulesRequest():
                changed = list(rules)
            case admin.SetRuleRequest() if message.HasField("match"):
                wanted = match_from_proto(message.match)
                changed = [rule for rule in rules if rule.match == wanted]
            case subscriptions.DeclareSubscriptionRequest():
                replaced = self._view.subscriptions.get(message.subscription.name)
                yield from () if replaced is None else self.of(replaced)
                return
            case _:
                return
        for rule in changed:
            yield from self.of(rule_to_proto(rule))

    def _named(self, named: access.Named.ValueType, value: Any) -> Iterator[Thing]:
        if named == access.NAMED_RESOURCE:
            yield from self._in_resource(value)
        else:
            yield from _THINGS[named](value)

    def _in_resource(self, name: str) -> Iterator[Thing]:
        collection, _, identifier = name.partition("/")
        match collection:
            case "clusters":
                yield Thing(Kind.CLUSTER, identifier)
            case "topics":
                yield Thing(Kind.TOPIC, identifier)
            case "members":
                yield Thing(Kind.SIDECAR, identifier)
            case _:
                resource = self._resource(collection, identifier, name)
                if resource is not None:
                    yield from self.of(resource)

    def _resource(self, collection: str, identifier: str, name: str) -> Message | None:
        view = self._view
        match collection:
            case "rules":
                rules = view.state.effective.rules
                return next((rule_to_proto(each) for each in rules if each.rule_id == identifier), None)
            case "recordrules":
                record_rule = view.record_rules.get(identifier)
                return None if record_rule is None else record_rule.spec
            case "replays":
                replay = view.replays.open.get(name) or view.replays.ended.get(name)
                return None if replay is None else replay.spec
            case "topicmoves":
                move = view.topic_moves.open.get(name) or view.topic_moves.ended.get(name)
                return None if move is None else move.spec
            case "drains":
                drain = view.drains.open.get(name) or view.drains.ended.get(name)
                return None if drain is None else drain.spec
            case "standbys":
                standby = view.standbys.get(name)
                return None if standby is None else standby.spec
            case "failbacks":
                fail_back = view.fail_backs.get(name)
                return None if fail_back is None else fail_back.spec
            case "instances":
                return self._instances.get(name)
            case "subscriptions":
                return view.subscriptions.get(identifier)
            case "orders":
                return view.orders.open.get(name) or view.orders.ended.get(name)
            case "proposals":
                proposal = view.proposals.open.get(name)
                return None if proposal is None else request_of(proposal)
            case "schedules":
                event = view.schedules.get(name)
                return None if event is None else event.change_scheduled.command
            case _:
                return None


@cache
def _fields(kind: Descriptor) -> tuple[FieldDescriptor, ...]:
    """The fields that name things, or may hold messages that do; values of maps name none."""
    return tuple(
        field
        for field in kind.fields
        if field.GetOptions().Extensions[access.names]
        or (field.message_type is not None and not field.message_type.GetOptions().map_entry)
    )


def _values(message: Message, field: FieldDescriptor) -> Iterator[Any]:
    value = getattr(message, field.name)
    if field.is_repeated:
        yield from value
    elif field.message_type is not None:
        if message.HasField(field.name):
            yield value
    elif value:
        yield value


def _template(text: str) -> Iterator[Thing]:
    if not text.startswith(OWN_NAME):
        beginning, variable, _ = text.partition("{")
        yield Thing(Kind.TOPIC, beginning, is_beginning=bool(variable))


_THINGS: dict[access.Named.ValueType, Callable[[Any], Iterator[Thing]]] = {
    access.NAMED_CLUSTER: lambda name: iter([Thing(Kind.CLUSTER, name)]),
    access.NAMED_TOPIC: lambda name: iter([Thing(Kind.TOPIC, name)]),
    access.NAMED_TOPIC_PREFIX: lambda name: iter([Thing(Kind.TOPIC, name, is_beginning=True)]),
    access.NAMED_TOPICS: lambda _: iter([Thing(Kind.TOPIC, "", is_beginning=True)]),
    access.NAMED_TOPIC_TEMPLATE: _template,
    access.NAMED_SIDECAR: lambda name: iter([Thing(Kind.SIDECAR, name.removeprefix("members/"))]),
}
