"""The contract keeps the conventions of google.aip.dev: resources, behaviours of fields, pages, and durations."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest
from google.api import field_behavior_pb2, resource_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from mesh.rpc import v1

BARE_NAMES = {
    "DeclaredSubscription": "a name of the sidecars' settings",
    "HeaderValue": "the name of a header",
    "InstanceStatus": "the state of an instance, which has the resource",
    "LineageNode": "a node of a graph: its name is one beside its kind",
    "Listener": "a name of the gateways' settings",
    "ListenerChange": "as Listener",
    "OpenListener": "as Listener",
    "QuotaName": "the name in a part of a quota",
    "Report": "a report about a resource",
    "SubscriptionReport": "as DeclaredSubscription",
    "TopicFork": "a topic, which has the resource",
    "TopicSetting": "Kafka's name of a setting",
    "User": "Kafka's name of a user",
    "UserVerifiers": "as User",
}
"""Messages whose field `name` is no name of a resource of their own, and why. Requests and events name others."""

SETTING = "a setting of sidecars, by its name there and in the declarations of backends"
UNITS = {
    "DeliverySettings.linger_ms": SETTING,
    "SubscriptionSpec.linger_ms": SETTING,
    "SubscriptionSpec.max_retry_delay_ms": SETTING,
    "SubscriptionSpec.retry_delay_ms": SETTING,
    "SubscriptionSpec.timeout_ms": SETTING,
    "RecordRuleProgress.tail_ms": "a router reports it each second",
    "TopicMoveProducer.timestamp_ms": "Kafka's timestamp of a batch, for up to 1000 producers of a partition",
    "ValidationRule.message_timestamp_after_max_ms": "the value of Kafka's setting message.timestamp.after.max.ms",
}
"""Numbers with a unit in their name, where others are google.protobuf.Duration, and why."""
UNIT = re.compile(r"_(ms|s|seconds)$")


def files() -> list[FileDescriptor]:
    """The files of the contract."""
    modules = (each.name for each in pkgutil.iter_modules(v1.__path__) if each.name.endswith("_pb2"))
    return [importlib.import_module(f"{v1.__name__}.{name}").DESCRIPTOR for name in modules]


def messages() -> dict[str, Descriptor]:
    """The messages of the contract, by name."""

    def below(found: Descriptor) -> Iterator[Descriptor]:
        yield found
        for each in found.nested_types:
            yield from below(each)

    outer = (each for file in files() for each in file.message_types_by_name.values())
    return {each.full_name.removeprefix("mesh.v1."): each for found in outer for each in below(found)}


def is_about_others(message: Descriptor) -> bool:
    """Whether a message names the resource of another message: a request, or what an event holds."""
    events = messages()["Event"].oneofs_by_name.values()
    payloads = {field.message_type.full_name for oneof in events for field in oneof.fields if field.message_type}
    is_resource = message.GetOptions().HasExtension(resource_pb2.resource)
    return message.name.endswith("Request") or (message.full_name in payloads and not is_resource)


def behaviours(field: FieldDescriptor) -> list[int]:
    return list(field.GetOptions().Extensions[field_behavior_pb2.field_behavior])


def test_a_message_with_a_name_is_a_resource() -> None:
    bare = {
        name
        for name, message in messages().items()
        if "name" in message.fields_by_name
        and message.containing_type is None
        and not is_about_others(message)
        and not message.GetOptions().HasExtension(resource_pb2.resource)
    }
    assert bare == set(BARE_NAMES)


def test_a_resource_has_a_collection_of_its_own_and_the_type_of_its_message() -> None:
    found = {
        name: message.GetOptions().Extensions[resource_pb2.resource]
        for name, message in messages().items()
        if message.GetOptions().HasExtension(resource_pb2.resource)
    }
    assert len(found) >= 14
    assert {name: each.type for name, each in found.items()} == {name: f"kafka-mesh/{name}" for name in found}
    collections = [each.pattern[0].partition("/")[0] for each in found.values()]
    assert len(set(collections)) == len(collections)
    assert all(re.fullmatch(r"[a-z]+s/\{[a-z_]+\}", each.pattern[0]) for each in found.values())


def test_a_reference_names_a_resource() -> None:
    fields = [field for message in messages().values() for field in message.fields]
    named = {field.GetOptions().Extensions[resource_pb2.resource_reference].type for field in fields} - {""}
    known = {each.GetOptions().Extensions[resource_pb2.resource].type for each in messages().values()} - {""}
    assert named
    assert named <= known


def test_a_request_about_one_resource_requires_its_name() -> None:
    optional = [
        name
        for name, message in messages().items()
        if re.match(r"(Get|Update|Remove|Cancel|Describe)\w+Request$", name)
        and "name" in message.fields_by_name
        and field_behavior_pb2.REQUIRED not in behaviours(message.fields_by_name["name"])
    ]
    assert optional == []


def test_no_field_is_both_required_and_output_only() -> None:
    for message in messages().values():
        for field in message.fields:
            assert len(behaviours(field)) <= 1, field.full_name


@pytest.mark.parametrize("method", [m for f in files() for s in f.services_by_name.values() for m in s.methods])
def test_a_list_has_pages(method: object) -> None:
    name = str(method.name)  # type: ignore[attr-defined]
    if not name.startswith("List"):
        return
    assert {"page_size", "page_token"} <= set(method.input_type.fields_by_name)  # type: ignore[attr-defined]
    assert "next_page_token" in method.output_type.fields_by_name  # type: ignore[attr-defined]


def test_a_length_of_time_is_a_duration() -> None:
    named = {
        f"{name}.{field.name}"
        for name, message in messages().items()
        for field in message.fields
        if UNIT.search(field.name) and field.message_type is None
    }
    assert named == set(UNITS)
