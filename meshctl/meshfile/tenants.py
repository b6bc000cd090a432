"""Tenants in files: reading, writing, and the part of a plan that is about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mesh.rpc import tenants
from mesh.tenants.codec import tenant_from_proto, tenant_to_proto
from mesh.tenants.words import tenant_text
from meshctl.meshfile.action import Action
from meshctl.meshfile.model import Findings, TenantEntry
from meshctl.meshfile.section import Section

KEY = "tenants"
TENANT_KEYS = ("tenant", "prefix", "members", "shared_topics", "writable_topics")


@dataclass(frozen=True, slots=True)
class TenantStep:
    """The action on one tenant."""

    action: Action
    tenant: tenants.Tenant

    @property
    def detail(self) -> str:
        return tenant_text(self.tenant)

    @property
    def change(self) -> tenants.TenantChange:
        """The change as control takes it."""
        tenant = None if self.action is Action.REMOVE else self.tenant
        return tenants.TenantChange(tenant_id=self.tenant.tenant_id, tenant=tenant)


def read(document: Section, findings: Findings) -> tuple[TenantEntry, ...] | None:
    """The tenants of the file, each once; None when the file does not speak of tenants."""
    found: dict[str, TenantEntry] = {}
    for section in document.sections(KEY):
        entry = _entry(section)
        section.refuse_unknown_keys(TENANT_KEYS)
        if entry is not None and found.setdefault(entry.tenant.tenant_id, entry) is not entry:
            findings.error(section.line, section.place, f"tenant {entry.tenant.tenant_id!r} is there twice; keep one")
    return tuple(found.values()) if KEY in document else None


def _entry(section: Section) -> TenantEntry | None:
    name, prefix = section.value("tenant", required=True), section.value("prefix")
    members, reads, writes = (
        list(dict.fromkeys(each.text for each in section.addresses(key))) if key in section else []
        for key in ("members", "shared_topics", "writable_topics")
    )
    both = sorted(set(reads) & set(writes))
    if both:
        section.error("writable_topics", f"{both[0]!r} is in shared_topics, too: keep it in one list")
    if name is None:
        return None
    shared = [(topic, False) for topic in reads] + [(topic, True) for topic in writes if topic not in reads]
    tenant = tenants.Tenant(
        tenant_id=name.text,
        prefix="" if prefix is None else prefix.text,
        members=members,
        shared_topics=[tenants.SharedTopic(topic=topic, writable=writable) for topic, writable in shared],
    )
    return TenantEntry(tenant, section.line, section.place)


def written(of: Iterable[tenants.Tenant]) -> list[dict[str, Any]]:
    """The tenants as `read` takes them."""
    return [_written(each) for each in of]


def _written(of: tenants.Tenant) -> dict[str, Any]:
    said = {
        "tenant": of.tenant_id,
        "prefix": of.prefix,
        "members": list(of.members),
        "shared_topics": [each.topic for each in of.shared_topics if not each.writable],
        "writable_topics": [each.topic for each in of.shared_topics if each.writable],
    }
    return {key: value for key, value in said.items() if value}


def steps(
    wanted: Sequence[TenantEntry] | None, known: Sequence[tenants.Tenant], *, prune: bool
) -> Iterable[TenantStep]:
    """The steps; a tenant whose entry has no prefix keeps the one that it has."""
    by_id = {each.tenant_id: each for each in known}
    for entry in wanted or ():
        current = by_id.pop(entry.tenant.tenant_id, None)
        tenant = tenants.Tenant()
        tenant.CopyFrom(entry.tenant)
        tenant.prefix = tenant.prefix or (f"{tenant.tenant_id}." if current is None else current.prefix)
        tenant = tenant_to_proto(tenant_from_proto(tenant))
        if current is None:
            yield TenantStep(Action.CREATE, tenant)
        else:
            yield TenantStep(Action.UNCHANGED if current == tenant else Action.UPDATE, tenant)
    if prune and wanted is not None:
        yield from (TenantStep(Action.REMOVE, each) for each in by_id.values())
