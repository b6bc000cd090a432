"""Mirrors and content rules as files write them: the fields of RecordRuleSpec, as the API names them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from mesh.rpc import record_rules
from meshctl.meshfile.model import Findings, RecordRuleEntry
from meshctl.meshfile.section import Section

KEY = "record_rules"
FORMAT_PREFIX = "VALUE_FORMAT_"


def read(document: Section, findings: Findings) -> list[RecordRuleEntry]:
    """The file's record rules; each has an id, by which it is known again."""
    found: list[RecordRuleEntry] = []
    seen: dict[str, int] = {}
    for line, place, content in document.contents(KEY):
        spec = record_rules.RecordRuleSpec()
        if not isinstance(content, dict):
            findings.error(line, place, f"expected a mapping (key: value lines), found {content!r}")
            continue
        try:
            ParseDict(_with_formats(_plain(content)), spec)
        except ParseError as error:
            findings.error(line, place, str(error).removeprefix("Failed to parse "))
            continue
        if spec.start.WhichOneof("kind") is None:
            spec.start.earliest = True  # as control takes it
        name = spec.record_rule_id
        if not name:
            findings.error(line, place, "record_rule_id is missing; it is what the rule is known by")
        elif name in seen:
            findings.error(line, place, f"record_rule_id {name} is already at line {seen[name]}; keep one")
        elif spec.WhichOneof("kind") is None:
            findings.error(line, place, "what does it do? Expected one of mirror, content")
        else:
            found.append(RecordRuleEntry(spec, line, place))
        seen.setdefault(name, line)
    return found


def written(spec: record_rules.RecordRuleSpec) -> dict[str, Any]:
    """The record rule as `read` takes it."""
    document: dict[str, Any] = MessageToDict(spec, preserving_proto_field_name=True)
    content = document.get("content")
    if content and "value_format" in content:
        content["value_format"] = content["value_format"].removeprefix(FORMAT_PREFIX).lower()
    return document


def _plain(content: Any) -> Any:
    """As JSON has it: keys are text, and so are times."""
    match content:
        case dict():
            return {str(key): _plain(value) for key, value in content.items()}
        case list():
            return [_plain(each) for each in content]
        case datetime():
            return (content if content.tzinfo else content.replace(tzinfo=UTC)).isoformat()
        case _:
            return content


def _with_formats(content: dict[str, Any]) -> dict[str, Any]:
    """Formats as people write them: json, bytes, avro."""
    rule = content.get("content")
    if not isinstance(rule, dict) or not isinstance(rule.get("value_format"), str):
        return content
    name = rule["value_format"].upper().removeprefix(FORMAT_PREFIX)
    return {**content, "content": {**rule, "value_format": FORMAT_PREFIX + name}}
