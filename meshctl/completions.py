"""What the shell offers for an argument: names that control knows; nothing when control does not answer at once."""

from __future__ import annotations

import click
import grpc
from click.shell_completion import CompletionItem

from meshctl import wording
from meshctl.connection import Connection
from meshctl.endpoints import EndpointsError, Service, find
from meshctl.failures import MeshctlError
from meshctl.session import ADDRESS_VARIABLE

COMPLETION_SECONDS = 1.0  # a shell that waits longer feels stuck


def _connection() -> Connection:
    return Connection(find(Service.CONTROL, option=None, variable=ADDRESS_VARIABLE), COMPLETION_SECONDS)


def cluster_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Registered clusters."""
    try:
        clusters = _connection().all_clusters()
    except (grpc.RpcError, EndpointsError):
        return []
    names = ((each.spec.cluster_name, ",".join(each.spec.bootstrap_servers)) for each in clusters)
    return [CompletionItem(name, help=addresses) for name, addresses in names if name.startswith(incomplete)]


def rule_ids(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Rules in force."""
    try:
        rules, _revision = _connection().all_rules()
    except (grpc.RpcError, EndpointsError, MeshctlError):
        return []
    named = ((wording.short(each.name), wording.rule(each.spec)) for each in rules)
    return [CompletionItem(name, help=text) for name, text in named if name.startswith(incomplete)]
