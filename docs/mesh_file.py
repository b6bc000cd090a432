"""The JSON Schema of mesh.yaml and its page, from the definitions by which `meshctl apply -f` reads the file.

The keys, patterns and bounds are those of `meshctl/meshfile`. The fields of record rules and all descriptions are those
of the contract in `proto/`.

The schema has the shape of a file. It cannot have what `apply` checks beyond the shape: names that are there twice, RE2
expressions, and networks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp

from docs.proto_comments import comments
from docs.tables import REFERENCE, table
from mesh.acls.words import MODES
from mesh.rpc import record_rules as contract
from mesh.rpc import routing
from meshctl.meshfile import acls, entries, native, properties, record_rules, rules, tenants
from meshctl.meshfile.reading import parse

SCHEMA, PAGE = REFERENCE / "mesh-yaml.schema.json", REFERENCE / "mesh-yaml.md"

Schema = dict[str, Any]

ONE_VALUE: Schema = {"type": ["string", "number", "boolean"]}
"""`apply` takes each single value as the text that the file has."""
_SEVERAL: Schema = {"anyOf": [{"type": "array", "items": ONE_VALUE}, {"type": "string"}]}
_PORT = "0*(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"
_ADDRESS = rf"(\[.+\]|[^:,]+):{_PORT}"
ADDRESSES: Schema = {
    "anyOf": [
        {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": rf"^\s*{_ADDRESS}\s*$"}},
        {"type": "string", "pattern": rf"^[\s,]*{_ADDRESS}(\s*,[\s,]*{_ADDRESS})*[\s,]*$"},
    ]
}
CONFIG: Schema = {
    "type": "object",
    "properties": dict.fromkeys(sorted(properties.ADDRESS_KEYS), False),
    "patternProperties": {
        "|".join(
            [*properties.SECRET_WORDS, *(f"^{key.replace('.', '[.]')}$" for key in sorted(properties.SECRET_KEYS))]
        ): {
            "type": "string",
            "pattern": f"^{properties.REFERENCE.pattern}$",
        }
    },
    "additionalProperties": ONE_VALUE,
}
_OWN_SHAPES: Mapping[str, Schema] = {
    "cluster_name": {**ONE_VALUE, "pattern": f"^{entries.CLUSTER_NAME.pattern}$"},
    "bootstrap_servers": ADDRESSES,
    "partition_count": {"type": "integer", "minimum": 1, "maximum": entries.MOST_PARTITIONS},
    "producer_config": CONFIG,
    "consumer_config": CONFIG,
    "rule_id": {**ONE_VALUE, "pattern": f"^{rules.RULE_ID.pattern}$"},
    "topic": {**ONE_VALUE, "pattern": f"^{rules.TOPIC.pattern}$"},
    "client": {"$ref": "#/definitions/client"},
    "source_networks": _SEVERAL,
    "node_view": {"enum": list(rules.NODE_VIEWS)},
    **{key: {**ONE_VALUE, "minLength": 1} for key in rules.SUBJECTS if key != "topic"},
}
"""The shapes of keys that hold more than one value of the field's type."""
_WHOLE_NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    FieldDescriptor.CPPTYPE_INT64: {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
}
LENGTH_OF_TIME = r"^-?[0-9]+(\.[0-9]{1,9})?s$"
_TEXTS = (Timestamp.DESCRIPTOR, Duration.DESCRIPTOR)
"""Messages that JSON writes as texts."""
_LARGEST = {2**31 - 1: 32, 2**63 - 1: 64}
_OF_MOVES = f"{contract.RecordRuleSpec.DESCRIPTOR.full_name}.copy"
"""A move makes such a rule; no file does."""
_SECTIONS = {
    "clusters": ("cluster", "Kafka clusters, each once."),
    "rules": ("rule", "Forwarding rules, in order: the first rule that matches decides."),
    "record_rules": ("RecordRuleSpec", "Mirrors and content rules, each with an id of its own."),
    acls.KEY: ("acl", "The ACLs of clients; `--prune` removes others."),
    tenants.KEY: ("tenant", "Clients with a namespace of their own; `--prune` removes others."),
}
_ACLS_SAY: Mapping[str, tuple[Schema, str]] = {
    "principal": (ONE_VALUE, "`User:alice`, or `Group:finance`; `User:*` is every client."),
    "operations": (_SEVERAL, "Kafka's words: Read, Write, DescribeConfigs, All. An entry counts as an ACL for each."),
    **{
        key: (
            {**ONE_VALUE, "minLength": 1},
            "Names that begin so." if key.endswith(acls.PREFIX) else "Exactly this name; `*` is every name.",
        )
        for key in acls.RESOURCE_KEYS
    },
    acls.CLUSTER: ({"type": "boolean"}, "The mesh as a whole, as clients see one cluster."),
    "host": ({**ONE_VALUE, "default": "*"}, "Only clients from this IP address."),
    "permission": (
        {"enum": list(acls.PERMISSIONS), "default": "allow"},
        "An ACL that denies wins over all that allow.",
    ),
}
_ACL_POLICY_SAYS: Mapping[str, tuple[Schema, str]] = {
    "mode": ({"enum": list(MODES.values())}, "Whether the ACLs count. Absent: the mode stays."),
    "super_users": (_SEVERAL, "All principals that may do everything, whatever ACLs say. Absent: they stay."),
}

_TENANTS_SAY: Mapping[str, tuple[Schema, str]] = {
    "tenant": ({**ONE_VALUE, "pattern": "^[a-z0-9-]{1,63}$"}, "Its id."),
    "prefix": (
        {**ONE_VALUE, "minLength": 2},
        "Stands before its names. Absent: the one that it has, or else its id and a dot.",
    ),
    "members": (_SEVERAL, "All principals of its clients: `User:shop`, or `Group:shop` of a token."),
    "shared_topics": (_SEVERAL, "All topics outside its prefix that it reads, by their full names."),
    "writable_topics": (_SEVERAL, "All topics outside its prefix that it reads and writes."),
}


def schema() -> Schema:
    """The JSON Schema of mesh.yaml (draft 7, which editors know)."""
    definitions = {
        "cluster": _closed(entries.CLUSTER_KEYS, routing.ClusterSpec.DESCRIPTOR)
        | {"required": ["cluster_name", "bootstrap_servers"]},
        "rule": _rule(),
        "client": _closed(rules.CLIENT_KEYS, routing.ClientMatch.DESCRIPTOR) | {"minProperties": 1},
        **dict(_messages(contract.RecordRuleSpec.DESCRIPTOR)),
        "acl": _own("One or more ACLs of one principal on one resource.", _ACLS_SAY)
        | {
            "required": ["principal", "operations"],
            "oneOf": [
                *({"required": [key]} for key in acls.RESOURCE_KEYS),
                {"required": [acls.CLUSTER], "properties": {acls.CLUSTER: {"const": True}}},
            ],
        },
        "acl_policy": _own(
            "Whether ACLs count, and for whom they do not. No absent member changes anything.", _ACL_POLICY_SAYS
        )
        | {"minProperties": 1},
        "tenant": _own("A tenant.", _TENANTS_SAY) | {"required": ["tenant"]},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "mesh.yaml of Kafka Mesh",
        "description": "The file that `meshctl apply -f` reads. Written by `make reference`.",
        "type": "object",
        "minProperties": 1,
        "properties": {key: _member(key) for key in native.FILE_KEYS},
        "additionalProperties": False,
        "definitions": definitions,
    }


def _member(key: str) -> Schema:
    if key == acls.POLICY_KEY:
        return {"$ref": f"#/definitions/{key}", "description": "The mode of the ACLs, and the super users."}
    of, meaning = _SECTIONS[key]
    return {"type": "array", "items": {"$ref": f"#/definitions/{of}"}, "description": meaning}


def _own(meaning: str, members: Mapping[str, tuple[Schema, str]]) -> Schema:
    """A mapping with these members and no others."""
    return {
        "type": "object",
        "description": meaning,
        "properties": {key: shape | {"description": text} for key, (shape, text) in members.items()},
        "additionalProperties": False,
    }


def _closed(keys: tuple[str, ...], *messages: Descriptor) -> Schema:
    """A mapping with these keys and no others, each a field of one of the messages."""
    fields = {key: next(each.fields_by_name[key] for each in messages if key in each.fields_by_name) for key in keys}
    return {
        "type": "object",
        "description": comments()[messages[0].full_name],
        "properties": {
            key: (_OWN_SHAPES.get(key) or _shape(field, ONE_VALUE)) | {"description": comments()[field.full_name]}
            for key, field in fields.items()
        },
        "additionalProperties": False,
    }


def _rule() -> Schema:
    matches: list[Schema] = [{"required": [key]} for key in rules.MATCH_KEYS]
    unmatched = {"required": [rules.UNMATCHED], "properties": {rules.UNMATCHED: {"const": True}}}
    about = {
        subject: [each for each in matches if rules.subject_of(each["required"][0]) == subject]
        for subject in rules.SUBJECTS
    }
    about[rules.subject_of(rules.UNMATCHED)].append(unmatched)
    return _closed(rules.RULE_KEYS, routing.RuleSpec.DESCRIPTOR, routing.RuleMatch.DESCRIPTOR) | {
        "oneOf": [*matches, unmatched],
        "dependencies": {key: {"anyOf": about[subject]} for key, subject in rules.ONLY_ABOUT.items()},
        "if": {"anyOf": about["client_software"]},
        "then": {"required": ["node_view"], "not": {"required": ["target_cluster"]}},
        "else": {"required": ["target_cluster"]},
    }


def _messages(descriptor: Descriptor) -> Iterator[tuple[str, Schema]]:
    """The message and all that it holds, as the JSON form of the contract has them."""
    fields = [field for field in descriptor.fields if field.full_name != _OF_MOVES]
    shape: Schema = {
        "type": "object",
        "description": comments()[descriptor.full_name],
        "properties": {
            field.name: _shape(field, {"type": "string"}) | {"description": comments()[field.full_name]}
            for field in fields
        },
        "additionalProperties": False,
    }
    choices = [
        [field.name for field in each.fields if field in fields]
        for each in descriptor.oneofs
        if not each.name.startswith("_")
    ]
    if choices:
        shape["allOf"] = [_at_most_one_of(each) for each in choices]
    if descriptor is contract.RecordRuleSpec.DESCRIPTOR:
        shape |= {"required": ["record_rule_id"], "oneOf": [{"required": [each]} for each in choices[0]]}
        del shape["allOf"]
        shape["properties"]["record_rule_id"]["minLength"] = 1
        shape["properties"]["start"]["default"] = _start_that_apply_fills_in()
    yield descriptor.name, shape
    for field in fields:
        held = field.message_type
        if held is not None and held not in _TEXTS and not held.GetOptions().map_entry:
            yield from _messages(held)


def _at_most_one_of(names: list[str]) -> Schema:
    some = [{"required": [each]} for each in names]
    return {"oneOf": [*some, {"not": {"anyOf": some}}]}


def _shape(field: FieldDescriptor, text: Schema) -> Schema:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = field.message_type.fields_by_name["value"]
        return {
            "type": "object",
            "propertyNames": {"pattern": "^[0-9]+$"},
            "additionalProperties": _shape(value, text),
        }
    one = _one(field, text)
    return {"type": "array", "items": one} if field.is_repeated else one


def _one(field: FieldDescriptor, text: Schema) -> Schema:
    if field.message_type is Timestamp.DESCRIPTOR:
        return {"type": "string", "format": "date-time"}
    if field.message_type is Duration.DESCRIPTOR:
        return {"type": "string", "pattern": LENGTH_OF_TIME}
    if field.message_type is not None:
        return {"$ref": f"#/definitions/{field.message_type.name}"}
    if field.enum_type is not None:
        names = [each.name.removeprefix(record_rules.FORMAT_PREFIX).lower() for each in field.enum_type.values]
        return {"enum": names[1:]}  # the first one is "not said"
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return {"type": "boolean"} if field.has_presence else {"type": "boolean", "default": False}
    return dict(_WHOLE_NUMBERS.get(field.cpp_type, text))


def _start_that_apply_fills_in() -> Any:
    (rule,) = parse("record_rules: [{record_rule_id: a, mirror: {}}]").record_rules or ()
    return MessageToDict(rule.spec)["start"]


def page(of: Schema) -> str:
    """The page: a table for the file, and one for each mapping in it."""
    parts = [_INTRODUCTION, _table(of)]
    for name, shape in of["definitions"].items():
        parts += [f"## {name}", shape["description"], *_conditions(name), _table(shape)]
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = f"""\
<!-- written by `make reference` from meshctl/meshfile and proto/ -->
# mesh.yaml

`meshctl apply -f FILE` reads this file ([apply a file](../how-to/apply-a-file.md)), and `meshctl export` writes it.
[examples/mesh.yaml](../../examples/mesh.yaml) shows each section. The [JSON Schema]({SCHEMA.name}) has the same
members for editors and for checks before a change: `# yaml-language-server: $schema=PATH` in the first lines of a file
names it to an editor.

The schema has the shape of the file. `apply` also refuses names that are there twice, expressions that are not RE2, and
networks that are none. Control refuses clusters that are not registered. Each section may be left out, but not all of
them. `apply` reads a single value as text, so that a topic may be called `2024` without quotes."""


def _conditions(name: str) -> list[str]:
    if name == "acl":
        named = ", ".join(f"`{each}`" for each in acls.RESOURCE_KEYS)
        return [f"Each entry has exactly one resource: {named}, or `{acls.CLUSTER}: true`."]
    if name != "rule":
        return []
    only = "; ".join(f"`{key}` only in rules about `{subject}`" for key, subject in rules.ONLY_ABOUT.items())
    return [
        f"Each rule has exactly one match: a key of {', '.join(f'`{each}`' for each in rules.SUBJECTS)}, alone or with "
        f"`_prefix` or `_regex`, or `{rules.UNMATCHED}: true`. `target_cluster` is required, except in rules about "
        f"`client_software`; these rules require `node_view`. A rule has {only}."
    ]


def _table(shape: Schema) -> str:
    rows = []
    for name, member in shape["properties"].items():
        default = f"`{json.dumps(member['default'])}`" if "default" in member else ""
        if name in shape.get("required", ()):
            default = "required"
        rows.append((f"`{name}`", _type(member), default, member["description"]))
    return table(("member", "type", "default", "meaning"), rows)


def _type(of: Schema) -> str:
    match of:
        case {"$ref": where}:
            name = where.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"anyOf": [{"items": {"pattern": _}}, _]}:
            return "list of `host:port`, or one text with commas; at least one"
        case {"anyOf": [_, _]}:
            return "list of texts, or one text with commas"
        case {"enum": values}:
            return " or ".join(f"`{each}`" for each in values)
        case {"type": "array", "items": items}:
            return f"list of {_type(items)}"
        case {"type": "object", "additionalProperties": values}:
            return f"mapping to {_type(values)}"
        case {"type": "integer", "maximum": highest} if highest in _LARGEST:
            return f"whole number of {_LARGEST[highest]} bits"
        case {"type": "integer", "minimum": lowest, "maximum": highest}:
            return f"whole number, {lowest} to {highest}"
        case {"type": "boolean"}:
            return "`true` or `false`"
        case {"pattern": pattern} if pattern == LENGTH_OF_TIME:
            return "length of time, as `1.5s`"
        case {"format": "date-time"}:
            return "time, as `2026-11-21T20:00:00Z`"
        case {"pattern": pattern}:
            return f"text, `{pattern}`"
        case {"minLength": _}:
            return "text, not empty"
        case _:
            return "text"


def files() -> dict[Path, str]:
    """Each file with its text."""
    described = schema()
    return {SCHEMA: json.dumps(described, indent=2) + "\n", PAGE: page(described)}
