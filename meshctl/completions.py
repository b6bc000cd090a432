"""Shell completions of an argument: names that control knows; nothing when control does not answer at once."""

from __future__ import annotations

import click
import grpc
from click.shell_completion import CompletionItem

from mesh.rpc import admin, proposals
from mesh.wording import command_text, rule_text, short
from meshctl import instances, replays
from meshctl.connection import Connection
from meshctl.failures import MeshctlError
from meshctl.record_rules import sentence
from meshctl.session import Session

COMPLETION_SECONDS = 1.0  # a shell that waits longer feels stuck
MOST_REPLAYS = 100
NO_ANSWER = (grpc.RpcError, MeshctlError)


def _connection() -> Connection:
    return Session(timeout=COMPLETION_SECONDS).opened()


def cluster_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Registered clusters."""
    try:
        clusters = _connection().all_clusters()
    except NO_ANSWER:
        return []
    names = ((each.spec.cluster_name, ",".join(each.spec.bootstrap_servers)) for each in clusters)
    return [CompletionItem(name, help=addresses) for name, addresses in names if name.startswith(incomplete)]


def member_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Gateways, those that are away first: it is them that an operator goes on without."""
    try:
        members = _connection().status().members
    except NO_ANSWER:
        return []
    gateways = sorted(
        (each for each in members if each.kind == admin.MEMBER_KIND_GATEWAY), key=lambda each: not each.left_behind
    )
    named = ((short(each.name), each.phase_reason) for each in gateways)
    return [CompletionItem(name, help=text) for name, text in named if name.startswith(incomplete)]


def schedule_ids(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Changes that are still to come."""
    try:
        found = _connection().all_scheduled_changes()
    except NO_ANSWER:
        return []
    named = ((short(each.name), command_text(each.command)) for each in found)
    return [CompletionItem(name, help=text) for name, text in named if name.startswith(incomplete)]


def proposal_ids(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Changes that wait for a second person."""
    try:
        connection = _connection()
        request = proposals.ListProposalsRequest(open_only=True)
        found = connection.call(connection.approvals.ListProposals, request)
    except NO_ANSWER:
        return []
    named = ((short(each.name), f"{each.method} by {each.proposer}") for each in found.proposals)
    return [CompletionItem(name, help=text) for name, text in named if name.startswith(incomplete)]


def record_rule_ids(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Mirrors and content rules."""
    try:
        rules = _connection().all_record_rules()
    except NO_ANSWER:
        return []
    named = ((short(each.name), sentence(each.spec)) for each in rules)
    return [CompletionItem(name, help=text) for name, text in named if name.startswith(incomplete)]


def instance_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Consumers that sidecars hold."""
    try:
        found = _connection().all_instances()
    except NO_ANSWER:
        return []
    named = ((short(each.name), f"on {each.sidecar}, reads {instances.reads(each)}") for each, _ in found)
    return [CompletionItem(name, help=text) for name, text in named if name.startswith(incomplete)]


def sidecar_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Sidecars that control has heard of."""
    try:
        members = _connection().status().members
    except NO_ANSWER:
        return []
    named = ((short(each.name), each.address) for each in members if each.kind == admin.MEMBER_KIND_SIDECAR)
    return [CompletionItem(name, help=text) for name, text in named if name.startswith(incomplete)]


def pipeline_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Pipelines that run continuous jobs."""
    try:
        found = _connection().all_jobs()
    except NO_ANSWER:
        return []
    named = {short(each.pipeline): each.status.job for each in found}
    return [CompletionItem(name, help=f"runs {job}") for name, job in named.items() if name.startswith(incomplete)]


def replay_ids(
    _context: click.Context, _parameter: click.Parameter, incomplete: str, *, open_only: bool = False
) -> list[CompletionItem]:
    """Replays, the newest first."""
    try:
        found = _connection().all_replays(MOST_REPLAYS, open_only=open_only)
    except NO_ANSWER:
        return []
    named = ((short(each.name), f"{replays.state(each)}: {replays.what(each.spec)}") for each in found)
    return [CompletionItem(name, help=text) for name, text in named if name.startswith(incomplete)]


def open_replay_ids(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Replays that have not ended."""
    return replay_ids(context, parameter, incomplete, open_only=True)


def rule_ids(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Rules in force."""
    try:
        rules, _revision = _connection().all_rules()
    except NO_ANSWER:
        return []
    named = ((short(each.name), rule_text(each.spec)) for each in rules)
    return [CompletionItem(name, help=text) for name, text in named if name.startswith(incomplete)]
