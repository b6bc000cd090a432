"""The root of the command line: `meshctl`."""

from __future__ import annotations

from importlib.metadata import version

import click

from meshctl.commands.access import access
from meshctl.commands.acl import acl
from meshctl.commands.apply import apply, export
from meshctl.commands.audit import audit
from meshctl.commands.canary import canary
from meshctl.commands.cluster import cluster
from meshctl.commands.cluster_identity import identity
from meshctl.commands.completion import completion
from meshctl.commands.content import content
from meshctl.commands.context import context
from meshctl.commands.dashboard import dashboard
from meshctl.commands.decision import explain, status, watch
from meshctl.commands.freezing import freeze, thaw
from meshctl.commands.instances import instances
from meshctl.commands.jobs import jobs
from meshctl.commands.login import login
from meshctl.commands.mirror import mirror
from meshctl.commands.past import diff, history, revert
from meshctl.commands.quota import quota
from meshctl.commands.replay import replay
from meshctl.commands.rule import rule
from meshctl.commands.schedule import schedule
from meshctl.commands.sidecars import sidecars
from meshctl.commands.topic import topic
from meshctl.commands.traffic import traffic
from meshctl.commands.transactions import transactions
from meshctl.commands.users import users
from meshctl.failures import EXIT_CODES_HELP
from meshctl.session import Group

_HELP = f"""Operate a Kafka mesh: which clusters there are, which topics live where, and why.

Talks to control over gRPC; finds the local mesh by itself.

{EXIT_CODES_HELP}"""


@click.group(cls=Group, help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("kafka-mesh"), prog_name="meshctl")
def cli() -> None:
    """See `_HELP`: a docstring can't be composed."""


for _command in (
    cluster, rule, mirror, content, canary, schedule, freeze, thaw, explain, apply, export, diff, revert,
    history, access, users, acl, quota, audit, status, watch, instances, sidecars, jobs, replay, traffic, transactions,
    topic, context, login, dashboard, completion,
):  # fmt: skip
    cli.add_command(_command)
cluster.add_command(identity)


def main() -> None:
    """The console script."""
    cli(prog_name="meshctl")
