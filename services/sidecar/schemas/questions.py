"""The ways to ask for a schema. Questions are keys of the cache, so they are small and compare by value."""

import hashlib
import struct
import uuid
from dataclasses import dataclass, field

from mesh.schemas.framing import ID_LENGTH
from mesh.schemas.schema import Reference, SchemaKind


@dataclass(frozen=True, slots=True)
class ById:
    """The schema that a record or a request names by number."""

    id: int

    def __str__(self) -> str:
        return f"schema id {self.id}"


@dataclass(frozen=True, slots=True)
class ByGuid:
    """The schema that a record names by the identity that it has on all registries."""

    guid: str

    def __str__(self) -> str:
        return f"schema {self.guid}"


@dataclass(frozen=True, slots=True)
class ByVersion:
    """One version of a subject."""

    subject: str
    version: int

    def __str__(self) -> str:
        return f"version {self.version} of subject {self.subject}"


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest version of a subject; the only answer that changes."""

    subject: str

    def __str__(self) -> str:
        return f"latest version of subject {self.subject}"


@dataclass(frozen=True, slots=True)
class ByText:
    """A schema by its text in a request; the schema is registered if the subject does not have it yet."""

    subject: str
    kind: SchemaKind
    text: str = field(repr=False, compare=False)
    references: tuple[Reference, ...] = ()
    digest: bytes = field(default=b"", repr=False)
    """The digest of the text. The text may be long, so the cache must not hold it twice."""

    @classmethod
    def of(cls, subject: str, kind: SchemaKind, text: str, references: tuple[Reference, ...] = ()) -> "ByText":
        return cls(subject, kind, text, references, hashlib.sha256(text.encode(errors="surrogatepass")).digest())

    def __str__(self) -> str:
        return f"the given {self.kind.value} schema under subject {self.subject}"


Question = ById | ByGuid | ByVersion | Latest | ByText


def question_of(prefix: bytes) -> ById | ByGuid:
    """The schema that a prefix means, as a question for the registry."""
    if len(prefix) == ID_LENGTH:
        return ById(struct.unpack(">I", prefix[1:])[0])
    return ByGuid(str(uuid.UUID(bytes=prefix[1:])))
