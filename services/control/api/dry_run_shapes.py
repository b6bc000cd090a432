"""A dry run, in the shapes of the contract."""

from __future__ import annotations

from mesh.rpc import admin
from services.control.api import shapes
from services.control.decisions.dry_runs.dry_runs import DryRun
from services.control.domain.dry_runs.findings import FindingKind, Severity
from services.control.domain.members.usage import Affected, HomeMove

SEVERITIES = {
    Severity.NOTE: admin.SEVERITY_NOTE,
    Severity.WARNING: admin.SEVERITY_WARNING,
    Severity.BREAKS: admin.SEVERITY_BREAKS,
}


def dry_run(result: DryRun) -> admin.DryRunResponse:
    """The response with the effects that a set of edits would have."""
    return admin.DryRunResponse(
        change=shapes.change(result.change),
        findings=[
            admin.Finding(
                kind=_kind(each.kind), severity=SEVERITIES[each.severity], subject=each.subject, text=each.text
            )
            for each in result.findings
        ],
        clients=[_client(each) for each in result.clients],
        home_moves=[_home_move(each) for each in result.home_moves],
    )


def _kind(kind: FindingKind) -> admin.FindingKind.ValueType:
    return admin.FindingKind.Value(f"FINDING_KIND_{kind.name}")


def _client(each: Affected) -> admin.AffectedClient:
    who = each.use.identity
    software = f"{who.software_name}/{who.software_version}" if who.software_name else ""
    return admin.AffectedClient(
        gateway=each.use.gateway,
        client_id=who.client_id,
        principal=who.principal,
        software=software,
        host=who.address,
        connections=each.use.connections,
        topics=each.topics,
    )


def _home_move(move: HomeMove) -> admin.HomeMove:
    name = {"group": move.name} if move.is_group else {"transactional_id": move.name}
    return admin.HomeMove(from_cluster=move.source, to_cluster=move.target, **name)
