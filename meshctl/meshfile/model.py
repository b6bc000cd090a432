"""The content of a file, whatever its kind, and the findings about its lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from mesh.rpc import acls, record_rules, routing, tenants


class FileKind(StrEnum):
    """Which of the two kinds of file it is."""

    MESH = "mesh.yaml"
    ENVOY = "Envoy Kafka mesh filter"


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the file, and a finding about this line."""

    line: int
    place: str
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.place}: {self.text}" if self.place else f"line {self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """A cluster as the file wants it."""

    spec: routing.ClusterSpec
    line: int


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """A rule as the file wants it; `rule_id` is empty unless the file names it."""

    spec: routing.RuleSpec
    line: int
    place: str


@dataclass(frozen=True, slots=True)
class RecordRuleEntry:
    """A mirror or content rule as the file wants it."""

    spec: record_rules.RecordRuleSpec
    line: int
    place: str


@dataclass(frozen=True, slots=True)
class AclEntry:
    """An ACL as the file wants it."""

    acl: acls.Acl
    line: int
    place: str


@dataclass(frozen=True, slots=True)
class AclPolicyEntry:
    """The mode and the super users as the file wants them; None: the file does not say."""

    mode: acls.AclMode.ValueType | None
    super_users: tuple[str, ...] | None
    line: int


@dataclass(frozen=True, slots=True)
class TenantEntry:
    """A tenant as the file has it; without a prefix, that is empty."""

    tenant: tenants.Tenant
    line: int
    place: str


@dataclass(frozen=True, slots=True)
class AddressEntry:
    """An address that the file expects Kafka clients to use."""

    what: str
    address: str
    line: int


@dataclass(frozen=True, slots=True)
class MeshFile:
    """A file that is right in itself. `rules` is None when the file does not speak of rules at all; so are
    `record_rules`, `acls`, `acl_policy` and `tenants`.
    """

    kind: FileKind
    clusters: tuple[ClusterEntry, ...]
    rules: tuple[RuleEntry, ...] | None
    addresses: tuple[AddressEntry, ...] = ()
    notices: tuple[Finding, ...] = ()
    record_rules: tuple[RecordRuleEntry, ...] | None = None
    acls: tuple[AclEntry, ...] | None = None
    acl_policy: AclPolicyEntry | None = None
    tenants: tuple[TenantEntry, ...] | None = None
    names_clusters: bool = True
    """Whether it speaks of clusters at all."""


@dataclass(slots=True)
class Findings:
    """Collects what is wrong (`errors`) and what is merely worth a word (`notices`) while a file is read."""

    errors: list[Finding] = field(default_factory=list)
    notices: list[Finding] = field(default_factory=list)

    def error(self, line: int, place: str, text: str) -> None:
        self.errors.append(Finding(line, place, text))

    def notice(self, line: int, place: str, text: str) -> None:
        self.notices.append(Finding(line, place, text))


class FileError(ValueError):
    """The file is not right: all errors at once, in the order of its lines."""

    def __init__(self, errors: list[Finding]) -> None:
        self.errors = sorted(dict.fromkeys(errors), key=lambda each: each.line)
        super().__init__("; ".join(str(each) for each in self.errors))
