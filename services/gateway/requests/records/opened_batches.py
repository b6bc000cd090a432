"""Opens batches as they are written: checks, marks and protects records in one walk. The work of another process.

Theory of operation
1. Plain data in and out, no I/O. Records are validated as their producer wrote them, and protected after that. A batch
   that a rule refuses is not written again.
2. The process may not know all schemas that the records name. It goes on to the end then, and says all that it lacks.
3. A batch is stored as the rules say or not at all: records that can't be read or protected never pass.
4. Bombs: `MOST_DECOMPRESSED` bounds the bytes, `record_checks` the time of all checks, `content_checks` one
   value. A value whose check takes longer still, or too much memory, ends its process (`downstream.conversions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mesh.compression import Allowance
from mesh.protection.fields import Content, MissingError, SchemaAwayError
from mesh.protection.keys import NoKey
from mesh.protection.records import Protecting, RefusedError
from mesh.protection.rule import Rule as ProtectionRule
from mesh.validation import Breach, Fault, Mode, Rule
from mesh.validation.checks import in_rule
from services.gateway.requests.data_keys import Found, SchemaOf
from services.gateway.requests.records.record_checks import MOST_TOLD, Checking, Schemas
from services.gateway.wire.batches import BatchHeader, read_batch_header
from services.gateway.wire.primitives import WireError
from services.gateway.wire.record_bodies import read_body
from services.gateway.wire.record_editing import Part, chosen, edited, parts

MOST_DECOMPRESSED: Final = 100 * 1024 * 1024
"""Bytes that may come out of the batches of one request."""
MARK: Final = b"mesh-validation"
"""The header of a record that breaks a rule which marks records; its value says the reasons."""
ORIGIN: Final = b"dlq.topic"
"""The header of a dead letter that names its topic, as sidecars write it."""
LONGEST_MARK: Final = 1000
"""Characters of it."""


@dataclass(frozen=True, slots=True)
class Written:
    """The batches of one partition, as a producer sent them."""

    topic: str
    records: bytes
    checks: tuple[Rule, ...] = ()
    """The rules of validation about its records."""
    marks: tuple[str, ...] = ()
    """The reasons by which all records are marked."""
    protects: tuple[ProtectionRule, ...] = ()
    """The rules that encrypt."""
    refused_as: tuple[str, str] | None = None
    """The batch is refused already: all its records become dead letters in this topic, for this reason."""

    @property
    def is_edited(self) -> bool:
        return bool(self.protects or self.marks) or any(rule.mode is Mode.MARK for rule in self.checks)


@dataclass(frozen=True, slots=True)
class Unprotected:
    """Batches that can't be stored as the rules of protection say."""

    rule_id: str
    reason: str
    records: tuple[tuple[int, str], ...] = ()
    """The records by their place in the batch, with their faults; empty: the whole batch."""
    for_now: bool = False
    """Whether they can be protected at another time."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The result about the batches of one partition."""

    breaches: tuple[Breach, ...] = ()
    unchecked: str = ""
    """Why the records can't be checked now."""
    unprotected: Unprotected | None = None
    records: bytes | None = None
    """The batches with other records; None: they stay as they came, or are not stored."""
    letters: tuple[str, bytes] | None = None
    """Dead letters of a refused batch: their topic, and a batch of them."""


def opened_batches(written: Sequence[Written], found: Found) -> list[Opened] | frozenset[bytes | SchemaOf]:
    """The results; or the schemas that are missing, and nothing yet."""
    schemas, allowance = Schemas(found), Allowance(MOST_DECOMPRESSED)
    results = [_opened(each, schemas, allowance) for each in written]
    return frozenset(schemas.missing) or results


def in_protection(rule_id: str, reason: str) -> str:
    """The reason as a client gets it."""
    return f"{reason} (rule {rule_id!r} of the mesh)"


def _opened(written: Written, schemas: Schemas, allowance: Allowance) -> Opened:
    if written.refused_as is not None:
        return _refused(written, allowance)
    checking = Checking(written.topic, written.checks, schemas)
    walk = _Walk(written, checking, schemas)
    out: list[bytes] = []
    unprotected: Unprotected | None = None
    at, records = 0, written.records
    try:
        while at < len(records):
            header = read_batch_header(records, at, len(records))
            if header.is_control and written.protects:
                raise WireError("batch.attributes", at, "a client can't write markers of transactions")
            batch = walk.batch(header, read_body(records, header, allowance))
            if batch is not None:
                out.append(batch)
            at = header.end
    except SchemaAwayError as error:
        unprotected = Unprotected(written.protects[0].rule_id, str(error), for_now=True)
    except WireError as error:
        return _unreadable(written, f"the records can't be read: {error}")
    if walk.faults:
        index, rule_id, reason = walk.faults[0]
        told = tuple((place, in_protection(rule, why)) for place, rule, why in walk.faults)
        unprotected = Unprotected(rule_id, f"record {index}: {in_protection(rule_id, reason)}", told)
    is_stored = written.is_edited and not checking.stops and unprotected is None
    letters = _letters(written, checking) if checking.stops else None
    return Opened(checking.breaches, checking.unchecked, unprotected, b"".join(out) if is_stored else None, letters)


def _letters(written: Written, checking: Checking) -> tuple[str, bytes] | None:
    rule = checking.refusing
    found = checking.letters.get(rule) if rule is not None else None
    if rule is None or not found:
        return None
    return rule.dead_letter_topic, _as_letters(written, found)


def _refused(written: Written, allowance: Allowance) -> Opened:
    assert written.refused_as is not None
    topic, reason = written.refused_as
    records = written.records
    try:
        header = read_batch_header(records, 0, len(records))
        found = [(part, reason) for part in parts(read_body(records, header, allowance), header.record_count)]
    except WireError:  # nobody can read what no batch has
        return Opened()
    return Opened(letters=(topic, _as_letters(written, found)) if found else None)


def _as_letters(written: Written, found: Sequence[tuple[Part, str]]) -> bytes:
    records = written.records
    origin = (ORIGIN, written.topic.encode())
    letters = [(part, [*part.headers, origin, (MARK, reason[:LONGEST_MARK].encode())]) for part, reason in found]
    return chosen(records, read_batch_header(records, 0, len(records)), letters)


def _unreadable(written: Written, reason: str) -> Opened:
    found = Opened(tuple(Breach(rule, Fault.RECORD, in_rule(rule, reason)) for rule in written.checks))
    if not written.protects:
        return found
    rule_id = written.protects[0].rule_id
    return replace(found, unprotected=Unprotected(rule_id, in_protection(rule_id, reason)))


@dataclass(slots=True)
class _Walk:
    """One partition's batches, record by record."""

    written: Written
    checking: Checking
    schemas: Schemas
    faults: list[tuple[int, str, str]] = field(default_factory=list)
    """Records that can't be protected, by their place in their batch."""
    index: int = 0
    protecting: Protecting | None = None

    def batch(self, header: BatchHeader, body: bytes) -> bytes | None:
        """The batch as it is stored; None if it stays as it is, or is not stored."""
        written, self.index = self.written, 0
        if written.protects:
            writing = self.schemas.found.writing
            keys = {key_id: key for key_id, key in writing.items() if not isinstance(key, NoKey)}
            self.protecting = Protecting(written.topic, written.protects, keys, self.schemas.found.schemas)
        if written.is_edited:
            return edited(written.records, header, body, self._edited)
        for index, part in enumerate(parts(body, header.record_count)):
            self.checking.marks(index, part)
        return None

    def _edited(self, part: Part) -> Content | None:
        """None: the batch is not stored."""
        index, content, missing = self.index, Content(part.value, part.headers), self.schemas.missing
        self.index = index + 1
        marks = self.written.marks
        if self.written.checks:
            marks = (*marks, *self.checking.marks(index, part))
        if missing or self.checking.stops:
            if missing and self.protecting is not None:  # all that are missing are asked for at once
                missing |= self.protecting.fields.missing(content)
            return None
        if self.protecting is not None:
            try:
                content = self.protecting.protected(content)
            except MissingError as error:
                missing |= {each for each in error.names if isinstance(each, bytes)}
                return None
            except RefusedError as error:
                if len(self.faults) < MOST_TOLD:
                    self.faults.append((index, error.rule_id, error.reason))
                return None
        if not marks:
            return content
        return Content(content.value, [*content.headers, (MARK, "; ".join(marks)[:LONGEST_MARK].encode())])
