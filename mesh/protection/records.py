"""Protects the values of records as they are written, and reveals them to a client as it reads them.

Theory of operation
1. Writing. Each rule with a key encrypts its part. A value that a rule can't find its way in is refused, never stored
   in the clear. A tombstone has no value, and stays what it is.
2. Reading. A reader of a rule gets what the producer wrote, byte for byte; a part that was stored before the rule is
   clear already. All others get what the rule says. A mask also covers parts that are stored in the clear.
3. A part that can't be decrypted for a reader (its key is gone, or its bytes were changed) counts as for those who are
   no readers: mask, ciphertext, or refusal. A header says why. While the service of keys is away, nothing is known
   about the key, so no mask takes the place of the value: the records are withheld until it is back.
4. Values that are encrypted as a whole are for readers of all rules of the topic, whatever the rules protect today.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from mesh.protection.documents import Document, Part, UnreadableError
from mesh.protection.envelope import (
    HEADER,
    MASKED_HEADER,
    OWN_HEADERS,
    WHOLE_VALUE,
    Envelope,
    NotDecryptedError,
    Opening,
    Sealing,
    read_token,
)
from mesh.protection.fields import NONE, Content, Fields, Headers, MissingError, SchemaAwayError, Schemas
from mesh.protection.keys import DataKey, NoKey, Wrapped
from mesh.protection.rule import Others, Rule, What

Secrets = Mapping[Wrapped, bytes | NoKey]

MASK: Final = b"***"
LONGEST_REASON: Final = 1000
"""Characters of the header that says why a value is masked."""


class RefusedError(Exception):
    """A record that can't be written: the rule, and why."""

    def __init__(self, rule_id: str, reason: str) -> None:
        super().__init__(reason)
        self.rule_id = rule_id
        self.reason = reason


class WithheldError(Exception):
    """A record that the client does not get, and why."""

    def __init__(self, rule_id: str, reason: str, *, for_now: bool) -> None:
        super().__init__(reason)
        self.rule_id = rule_id
        self.reason = reason
        self.for_now = for_now
        """Whether another try may help."""


def encrypting(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules by which values are encrypted as they are written."""
    return tuple(rule for rule in rules if rule.key_id)


class Protecting:
    """Protects the records of one batch."""

    def __init__(self, topic: str, rules: Sequence[Rule], keys: Mapping[str, DataKey], schemas: Schemas = NONE) -> None:
        """`rules`: those that encrypt; `keys`: by key id, all that they name."""
        self._by_value = next((rule for rule in rules if rule.what is What.VALUE), None)
        self.fields = Fields(rules, schemas)
        whole = self._by_value is not None
        key_ids = dict.fromkeys(rule.key_id for rule in rules)
        self._sealings = {key_id: Sealing(keys[key_id], topic, is_whole=whole) for key_id in key_ids}
        self._first = rules[0].rule_id

    def protected(self, content: Content) -> Content:
        """RefusedError, MissingError, SchemaAwayError."""
        value, headers = content
        for name, _ in headers:
            if name in OWN_HEADERS:
                reason = f"it has the header {name.decode()}: what the mesh has encrypted or masked is not written back"
                raise RefusedError(self._first, reason)
        if value is None:
            return content
        if self._by_value is not None:
            sealing = self._sealings[self._by_value.key_id]
            return Content(sealing.sealed(value, WHOLE_VALUE), [*headers, (HEADER, sealing.header)])
        return self._by_fields(content)

    def _by_fields(self, content: Content) -> Content:
        fields = self.fields
        try:
            document = fields.document(content)
        except UnreadableError as error:
            raise RefusedError(self._first, str(error)) from None
        self._check_all_there(document)
        if not document.parts:
            return content
        new: list[bytes] = []
        used: dict[str, bytes] = {}
        for part in document.parts:
            rule = fields.owners[part.field]
            if part.kept:
                raise RefusedError(rule.rule_id, f"field {fields.names[part.field]} {part.kept}")
            sealing = self._sealings[rule.key_id]
            used[rule.key_id] = sealing.header
            new.append(document.token(part, sealing.token(part.clear, fields.places[part.field])))
        return Content(document.with_parts(new), [*content.headers, *((HEADER, header) for header in used.values())])

    def _check_all_there(self, document: Document) -> None:
        there = {part.field for part in document.parts}
        for index, rule in enumerate(self.fields.owners):
            if rule.requires_fields and index not in there:
                raise RefusedError(rule.rule_id, f"it has no field {self.fields.names[index]}")


@dataclass(slots=True)
class _Seen:
    """The record so far, as its client sees it."""

    reasons: dict[str, None] = field(default_factory=dict)
    """Why parts of it are masked."""
    keeps_envelopes: bool = False
    """Whether the client gets ciphertext."""


class Revealing:
    """Reveals records of one topic to one client."""

    def __init__(
        self,
        topic: str,
        rules: Sequence[Rule],
        principals: Collection[str],
        secrets: Secrets,
        schemas: Schemas = NONE,
    ) -> None:
        """`rules`: all of the topic, one at least."""
        self._rules = rules
        self._reads = {rule.rule_id: rule.is_for(principals) for rule in rules}
        self._strictest = min(
            rules, key=lambda rule: (self._reads[rule.rule_id], _STRICTNESS.index(rule.others), rule.rule_id)
        )
        self._topics = (topic, *dict.fromkeys(origin for rule in rules for origin in rule.origin_topics))
        self._fields = Fields(rules, schemas)
        self._secrets = secrets
        self._openings: dict[Envelope, Opening] = {}

    @property
    def reads_all(self) -> bool:
        return all(self._reads.values())

    def needed(self, content: Content) -> frozenset[Wrapped | bytes]:
        """The data keys of a record, and the prefix of its schema, that are not there yet."""
        envelopes = _envelopes(content.headers)
        found: set[Wrapped | bytes] = set()
        if any(self._reads.values()):
            found.update(each.name for each in envelopes if each.name not in self._secrets)
        if not any(each.is_whole for each in envelopes):
            found |= self._fields.missing(content)
        return frozenset(found)

    def revealed(self, content: Content) -> Content:
        """WithheldError, MissingError."""
        value, headers = content
        if value is None:
            return Content(value, _without_own(headers))
        envelopes = _envelopes(headers)
        seen = _Seen()
        whole = next((each for each in envelopes if each.is_whole), None)
        if whole is not None:
            value = self._whole(value, whole, seen)
        elif any(rule.what is What.VALUE for rule in self._rules):
            value = self._clear_value(value, headers, seen)
            seen.keeps_envelopes |= bool(envelopes)
        else:
            value = self._by_fields(content, {each.name.key_id: each for each in envelopes}, seen)
        return self._with_headers(value, headers, seen)

    def _with_headers(self, value: bytes, headers: Headers, seen: _Seen) -> Content:
        kept = headers if seen.keeps_envelopes else _without_own(headers)
        if seen.reasons:
            reason = "; ".join(seen.reasons)[:LONGEST_REASON].encode()
            kept = [*kept, (MASKED_HEADER, reason)]
        return Content(value, kept)

    # --- whole values --------------------------------------------------------------------------------------------

    def _whole(self, value: bytes, envelope: Envelope, seen: _Seen) -> bytes:
        rule = self._strictest
        if not self._reads[rule.rule_id]:
            return self._instead(rule, seen, value, NOT_A_READER)
        try:
            return self._opening(envelope, rule).opened(value, WHOLE_VALUE, self._topics)
        except (_GoneError, NotDecryptedError) as error:
            return self._instead(rule, seen, value, str(error))

    def _clear_value(self, value: bytes, headers: Headers, seen: _Seen) -> bytes:
        """A value that was stored as it came, or has lost its envelope."""
        rule = self._strictest
        if not self._reads[rule.rule_id]:
            return self._masked(rule, seen, NOT_A_READER)
        faults = [fault for name, header in headers if name == HEADER and (fault := _fault(header))]
        return self._instead(rule, seen, value, faults[0]) if faults else value

    def _instead(self, rule: Rule, seen: _Seen, sealed: bytes, reason: str) -> bytes:
        if rule.others is Others.CIPHERTEXT:
            seen.keeps_envelopes = True
            return sealed
        return self._masked(rule, seen, reason)

    def _masked(self, rule: Rule, seen: _Seen, reason: str) -> bytes:
        _refuse(rule, reason)
        seen.reasons[f"value: {reason} (rule {rule.rule_id})"] = None
        return MASK

    # --- fields --------------------------------------------------------------------------------------------------

    def _by_fields(self, content: Content, envelopes: Mapping[str, Envelope], seen: _Seen) -> bytes:
        value = content.value
        assert value is not None
        try:
            document = self._fields.document(content)
            if not document.parts:
                return value
            return document.with_parts([self._part(document, part, envelopes, seen) for part in document.parts])
        except UnreadableError as error:
            if self.reads_all and not envelopes:
                return value
            return self._masked(self._strictest, seen, str(error))
        except SchemaAwayError as error:
            raise WithheldError(self._strictest.rule_id, str(error), for_now=True) from None

    def _part(self, document: Document, part: Part, envelopes: Mapping[str, Envelope], seen: _Seen) -> bytes:
        rule = self._fields.owners[part.field]
        token = read_token(part.token)
        if not self._reads[rule.rule_id]:
            return self._part_instead(document, part, seen, NOT_A_READER, is_token=token is not None)
        if token is None:
            return document.clear(part, part.clear)
        key_id, sealed = token
        try:
            envelope = envelopes.get(key_id)
            if envelope is None:
                raise NotDecryptedError(f"the record has lost its header mesh-protection for key {key_id!r}")
            opening = self._opening(envelope, rule)
            return document.clear(part, opening.opened(sealed, self._fields.places[part.field], self._topics))
        except (_GoneError, NotDecryptedError) as error:
            return self._part_instead(document, part, seen, str(error), is_token=True)

    def _part_instead(self, document: Document, part: Part, seen: _Seen, reason: str, *, is_token: bool) -> bytes:
        rule = self._fields.owners[part.field]
        if rule.others is Others.CIPHERTEXT and is_token:
            seen.keeps_envelopes = True
            return document.token(part, part.token)
        _refuse(rule, reason)
        seen.reasons[f"{self._fields.names[part.field]}: {reason} (rule {rule.rule_id})"] = None
        return document.mask(part)

    # --- keys ----------------------------------------------------------------------------------------------------

    def _opening(self, envelope: Envelope, rule: Rule) -> Opening:
        secret = self._secrets.get(envelope.name)
        if secret is None:
            raise MissingError([envelope.name])
        if isinstance(secret, NoKey):
            if secret.is_gone:
                raise _GoneError(secret.reason)
            raise WithheldError(rule.rule_id, secret.reason, for_now=True)
        opening = self._openings.get(envelope)
        if opening is None:
            if len(self._openings) >= OPENINGS:
                self._openings.clear()
            opening = self._openings[envelope] = Opening(envelope, secret)
        return opening


ENVELOPES: Final = 1000
"""Headers that a process has read last: each is of a batch."""
OPENINGS: Final = 1000
"""Batches whose keys are derived and kept while an answer is revealed."""
NOT_A_READER: Final = "you are no reader"
_STRICTNESS: Final = (Others.REFUSAL, Others.MASK, Others.CIPHERTEXT)


class _GoneError(Exception):
    """The key of a part is gone for ever."""


def _refuse(rule: Rule, reason: str) -> None:
    if rule.others is Others.REFUSAL:
        raise WithheldError(rule.rule_id, reason, for_now=False)


def _envelopes(headers: Headers) -> list[Envelope]:
    """Those that can be read: without its envelope a part can't be decrypted, and says so."""
    return [found for name, value in headers if name == HEADER and isinstance(found := _read(value or b""), Envelope)]


def _fault(header: bytes | None) -> str:
    """The reason why an envelope can't be read; empty if it can."""
    found = _read(header or b"")
    return "" if isinstance(found, Envelope) else found


@lru_cache(ENVELOPES)
def _read(header: bytes) -> Envelope | str:
    """The envelope, which all records of a batch have; or its fault."""
    try:
        return Envelope.read(header)
    except NotDecryptedError as error:
        return str(error)


def _without_own(headers: Headers) -> Headers:
    return [each for each in headers if each[0] not in OWN_HEADERS] if headers else headers
