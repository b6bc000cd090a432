"""Checks the records of a batch by rules of validation, one by one, as far as their schemas are known here.

The work of another process. The reasons go to clients and logs, so they show nothing of a value.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Final

from mesh.protection.keys import NoKey
from mesh.schemas.framing import Part as SchemaPart
from mesh.schemas.framing import framed_in_batch
from mesh.schemas.schema import FormatError, RegisteredSchema, SchemaError, SchemaKind
from mesh.validation import Breach, Content, Fault, Mode, Record, Rule, ValueSchema, record_fault
from mesh.validation.checks import in_rule
from services.gateway.requests.bounded_cache import BoundedCache
from services.gateway.requests.data_keys import Found, LatestOf, SchemaOf
from services.gateway.requests.records.content_checks import Check, check_of
from services.gateway.wire.record_editing import Part

MOST_TOLD: Final = 100
"""Records of one batch that an answer names."""
CHECK_S: Final = 10.0
"""Seconds for the checks of values of one request: a value of 1 kB takes some 10 us."""
CHECKS_READY: Final = 100
"""Compiled schemas that a process keeps."""
UNUSABLE_S: Final = 60.0
"""So long a schema that can't be used is not compiled again: the compiler of Protobuf may only have been busy."""


class Schemas:
    """The schemas of one request, and the time that is left for its checks."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.missing: set[bytes | SchemaOf] = set()
        """Those that have to be asked for first."""
        self._deadline = time.monotonic() + CHECK_S
        self._ready: dict[RegisteredSchema, Check | str] = {}
        self._given: dict[Rule, RegisteredSchema] = {}

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def is_registered(self, question: SchemaOf) -> NoKey | None:
        """Why the registry has no such schema; None also if it has to be asked first."""
        if question in self.found.registered:
            return self.found.registered[question]
        self.missing.add(question)
        return None

    def named(self, prefix: bytes) -> RegisteredSchema | NoKey | None:
        """The schema of this prefix; None if it has to be asked for first."""
        if prefix not in self.found.schemas:
            self.missing.add(prefix)
        return self.found.schemas.get(prefix)

    def of(self, rule: Rule, prefix: bytes) -> RegisteredSchema | NoKey | None:
        """The schema by which the rule judges a value; None if it has to be asked for first."""
        match rule.content:
            case Content.NAMED:
                return self.named(prefix)
            case Content.SUBJECT:
                found = self.found.latest[LatestOf(rule.content_schema)]
                if isinstance(found, RegisteredSchema) and found.kind is not SchemaKind.JSON:
                    kind = f"subject {rule.content_schema!r} is {found.kind.value}, and JSON Schema is needed"
                    return NoKey(kind, is_gone=True)
                return found
            case Content.GIVEN:
                return self._given.setdefault(rule, RegisteredSchema(0, SchemaKind.JSON, rule.content_schema))
        return None

    def fault(self, schema: RegisteredSchema, what: SchemaPart, payload: bytes) -> str | None:
        """Why the payload of a key or value is not valid by the schema."""
        check = self._ready.get(schema)
        if check is None:
            check = self._ready[schema] = _check_of(schema)
        if isinstance(check, str):
            return f"the schema of the {what} can't be used: {check}"
        reason = check(payload)
        return None if reason is None else f"the {what} {reason}"


class Checking:
    """The checks of one batch."""

    def __init__(self, topic: str, rules: tuple[Rule, ...], schemas: Schemas) -> None:
        self._topic, self._schemas = topic, schemas
        self._broken: dict[Rule, list[tuple[int, str]]] = {rule: [] for rule in rules}
        self._late: dict[Rule, str] = {}
        self.unchecked = ""
        """Why a rule that refuses batches can't check this one now."""
        self.letters: dict[Rule, list[tuple[Part, str]]] = {}
        """The records that become dead letters, with the reasons."""
        self.stops = False
        """Whether the batch is not stored now."""

    @property
    def breaches(self) -> tuple[Breach, ...]:
        return tuple(
            Breach(rule, Fault.RECORD, self._late.get(rule) or f"record {found[0][0]}: {found[0][1]}", tuple(found))
            for rule, found in self._broken.items()
            if found or rule in self._late
        )

    @property
    def refusing(self) -> Rule | None:
        """The first rule that refuses the batch."""
        return next((each.rule for each in self.breaches if each.rule.mode is Mode.ENFORCE), None)

    def marks(self, index: int, part: Part) -> list[str]:
        """Checks a record; the reasons by which it is marked."""
        marks: list[str] = []
        record = _record(part)
        for rule, faults in self._broken.items():
            if len(faults) >= MOST_TOLD and rule.mode is not Mode.MARK and not rule.dead_letter_topic:
                continue
            reason = record_fault(rule, record)
            if reason is None and part.value is not None and (rule.value_schema or rule.content):
                reason = self._value_fault(rule, part, part.value)
            if reason is None and rule.key_by_named_schema and part.key is not None:
                reason = self._key_fault(rule, part, part.key)
            if reason is None:
                continue
            reason = in_rule(rule, reason)
            if len(faults) < MOST_TOLD:
                faults.append((index, reason))
            if rule.mode is Mode.MARK:
                marks.append(reason)
            if rule.dead_letter_topic and rule not in self._late:
                self.letters.setdefault(rule, []).append((part, reason))
            self.stops |= rule.mode is Mode.ENFORCE
        return marks

    def _value_fault(self, rule: Rule, part: Part, value: bytes) -> str | None:
        schemas, prefix, payload = self._schemas, b"", value
        if schemas.is_late:
            return self._is_late(rule)
        if rule.value_schema is not None or rule.content is Content.NAMED:
            named = _named("value", value, part)
            if isinstance(named, str):
                return named
            prefix, payload = named
        if rule.value_schema is not None:
            subject = f"{self._topic}-value" if rule.value_schema is ValueSchema.SUBJECT else ""
            why = schemas.is_registered(SchemaOf(prefix, subject))
            if why is not None:
                return self._without(rule, why)
        if rule.content is None:
            return None
        schema = schemas.of(rule, prefix)
        if schema is None:
            return None
        if isinstance(schema, NoKey):
            return self._without(rule, schema)
        return schemas.fault(schema, "value", payload if rule.content is Content.NAMED else value)

    def _key_fault(self, rule: Rule, part: Part, key: bytes) -> str | None:
        if self._schemas.is_late:
            return self._is_late(rule)
        named = _named("key", key, part)
        if isinstance(named, str):
            return named
        prefix, payload = named
        schema = self._schemas.named(prefix)
        if isinstance(schema, NoKey):
            return self._without(rule, schema)
        return None if schema is None else self._schemas.fault(schema, "key", payload)

    def _is_late(self, rule: Rule) -> str:
        reason = f"the checks of the request take more than {CHECK_S:g} s: send fewer records at a time"
        self._late[rule] = in_rule(rule, reason)
        return reason

    def _without(self, rule: Rule, why: NoKey) -> str | None:
        """The fault if the schema is not there at all. While the registry is away, the batch waits, or passes."""
        if why.is_gone:
            return why.reason
        if rule.stores_unchecked or rule.mode is Mode.OBSERVE:
            return None
        if rule.mode is Mode.MARK:
            return f"the value is not checked: {why.reason}"
        self.unchecked, self.stops = why.reason, True
        return None


def _named(what: SchemaPart, content: bytes, part: Part) -> tuple[bytes, bytes] | str:
    """The prefix of the schema that a key or value names, and the payload; a text if it names none."""
    try:
        return framed_in_batch(what, content, part.headers)
    except FormatError:  # its text shows the first bytes
        return f"the {what} names no schema: it does not begin with the id of one, as serializers write it"


def _record(part: Part) -> Record:
    names = frozenset(name for name, _ in part.headers)
    return Record(part.key is not None, part.value is not None, names, part.end - part.start)


_Text = tuple[object, ...]
_checks: Final[BoundedCache[_Text, Check]] = BoundedCache(CHECKS_READY, math.inf)
_unusable: Final[BoundedCache[_Text, str]] = BoundedCache(CHECKS_READY, UNUSABLE_S)


def _check_of(schema: RegisteredSchema) -> Check | str:
    """The check; or why the schema can't be used."""
    key, now = _text_of(schema), time.monotonic()
    found = _checks.get(key, now) or _unusable.get(key, now)
    if found is not None:
        return found
    try:
        made = check_of(schema)
    except SchemaError as error:
        _unusable.put(key, str(error), now)
        return str(error)
    _checks.put(key, made, now)
    return made


def _text_of(schema: RegisteredSchema) -> _Text:
    """All that the check is made of: each request has objects of its own."""
    others: Mapping[str, RegisteredSchema] = schema.references
    referred = tuple((name, each.kind, each.text) for name, each in others.items())
    return schema.id, schema.guid, schema.subject, schema.version, schema.kind, schema.text, referred
