"""`meshctl cluster`: which upstream clusters the mesh knows."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import click

from mesh import durations
from mesh.rpc import admin, routing
from meshctl import wording
from meshctl.cluster_properties import properties_of
from meshctl.commands.cluster_drain import drain
from meshctl.commands.cluster_fail_back import fail_back
from meshctl.commands.cluster_identity import identity
from meshctl.commands.cluster_rehearse import rehearse
from meshctl.commands.cluster_standby import fail_over, standby
from meshctl.completions import cluster_names
from meshctl.failures import ExitCode, MeshctlError
from meshctl.output import as_dict, count, print_json, print_table
from meshctl.session import Group, Session, pass_session


@click.group(cls=Group)
def cluster() -> None:
    """Upstream clusters: list, register, test, rehearse, drain, stand by, fail over and back, remove."""


@cluster.command("list")
@pass_session
def list_clusters(session: Session) -> None:
    """Show all clusters and whether they answered at control's last look."""
    found = session.connect().all_clusters()
    if session.as_json:
        print_json({"clusters": [as_dict(each) for each in found]})
        return
    print_clusters(found)


def print_clusters(found: Iterable[admin.Cluster]) -> None:
    """The table of clusters; `meshctl status` shows it too."""
    print_table(
        ("CLUSTER", "BOOTSTRAP", "STATE", "BROKERS", "HOME", "REVISION", "NOTE"),
        (
            (
                each.spec.cluster_name, ",".join(each.spec.bootstrap_servers), wording.cluster_state(each.state),
                len(each.brokers), "home" if each.home else "", each.revision, each.state_reason,
            )
            for each in found
        ),
        empty="No cluster is registered. Register one: meshctl cluster register c1 HOST:PORT",
    )  # fmt: skip


cluster.add_command(identity)
cluster.add_command(drain)
cluster.add_command(rehearse)
cluster.add_command(standby)
cluster.add_command(fail_over)
cluster.add_command(fail_back)


def _addresses(_context: click.Context, _parameter: click.Parameter, value: str | None) -> list[str]:
    return [each.strip() for each in (value or "").split(",") if each.strip()]


@cluster.command()
@click.argument("name")
@click.argument("bootstrap", metavar="HOST:PORT,...", callback=_addresses)
@click.option(
    "--partition-count",
    type=click.IntRange(min=1),
    help="Partitions of topics created through the mesh; the cluster's own default otherwise.",
)
@click.option(
    "--producer-config",
    metavar="KEY=VALUE",
    multiple=True,
    callback=properties_of,
    help="A librdkafka property; repeatable.",
)
@click.option(
    "--consumer-config",
    metavar="KEY=VALUE",
    multiple=True,
    callback=properties_of,
    help="A librdkafka property; repeatable.",
)
@click.option("--allow-unreachable", is_flag=True, help="Register it although it can't be reached now.")
@click.option("--reason", default="", help="Why, for the history.")
@click.option("--dry-run", is_flag=True, help="Connect and check, decide nothing.")
@pass_session
def register(
    session: Session,
    name: str,
    bootstrap: list[str],
    partition_count: int | None,
    producer_config: dict[str, str],
    consumer_config: dict[str, str],
    allow_unreachable: bool,
    reason: str,
    dry_run: bool,
) -> None:
    """Register the cluster NAME, reached at HOST:PORT,... Control connects to it first.

    Security and connection properties (security.protocol, sasl.*, ssl.*, ...) count for every connection to the
    cluster; the rest for the mesh's own clients. Secrets are references: sasl.password='${env:KAFKA_MESH_SECRET_C1}' or
    '${file:/etc/kafka-mesh/secrets/c1}'.
    """
    connection = session.connect()
    request = admin.RegisterClusterRequest(
        spec=routing.ClusterSpec(
            cluster_name=name, bootstrap_servers=bootstrap, partition_count=partition_count or 0,
            producer_config=producer_config, consumer_config=consumer_config,
        ),
        allow_unreachable=allow_unreachable, validate_only=dry_run, request_id=str(uuid.uuid4()), reason=reason,
    )  # fmt: skip
    registered = connection.call(connection.clusters.RegisterCluster, request)
    if session.as_json:
        print_json(registered)
        return
    print_clusters([registered])
    click.echo("checked only, nothing was registered" if dry_run else f"registered at revision {registered.revision}")


@cluster.command()
@click.argument("name", required=False, shell_complete=cluster_names)
@click.option(
    "--bootstrap",
    metavar="HOST:PORT,...",
    callback=_addresses,
    help="Test this address instead of a registered cluster.",
)
@pass_session
def test(session: Session, name: str | None, bootstrap: list[str]) -> None:
    """Connect to the cluster NAME, or to --bootstrap, and tell what is there. Exit code 3 when it does not answer."""
    if (name is None) is (not bootstrap):
        raise click.UsageError("name a registered cluster, or give --bootstrap HOST:PORT; one of the two")
    connection = session.connect()
    if name is not None:
        request = admin.TestClusterRequest(name=f"clusters/{name}")
    else:
        request = admin.TestClusterRequest(spec=routing.ClusterSpec(cluster_name="tested", bootstrap_servers=bootstrap))
    answer = connection.call(connection.clusters.TestCluster, request)
    if session.as_json:
        print_json(answer)
    found, label = answer.cluster, name or ",".join(bootstrap)
    if found.state == admin.CLUSTER_STATE_UNREACHABLE:
        reason = found.state_reason
        text = reason if "does not answer" in reason else f"cluster {label} does not answer: {reason}"
        raise MeshctlError(text, ExitCode.UNAVAILABLE)
    if session.as_json:
        return
    topics = count(answer.topic_count, "topic")
    click.echo(
        f"{label} answered in {durations.in_ms(answer.latency):.0f} ms: cluster id {found.kafka_cluster_id}, {topics}"
    )
    print_table(
        ("BROKER", "ADDRESS"),
        ((each.id, f"{each.host}:{each.port}") for each in found.brokers),
        empty="It named no broker.",
    )


@cluster.command()
@click.argument("name", shell_complete=cluster_names)
@click.option(
    "--expected-revision",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Refuse when the cluster changed since revision N.",
)
@click.option("--reason", default="", help="Why, for the history.")
@click.option("--dry-run", is_flag=True, help="Check only.")
@pass_session
def remove(session: Session, name: str, expected_revision: int, reason: str, dry_run: bool) -> None:
    """Remove the cluster NAME; no rule may point to it."""
    connection = session.connect()
    request = admin.RemoveClusterRequest(
        name=f"clusters/{name}", expected_revision=expected_revision, validate_only=dry_run,
        request_id=str(uuid.uuid4()), reason=reason,
    )  # fmt: skip
    answer = connection.call(connection.clusters.RemoveCluster, request)
    if session.as_json:
        print_json(answer)
        return
    click.echo(
        f"cluster {name} can be removed; nothing was changed"
        if dry_run
        else f"cluster {name} removed at revision {answer.revision}"
    )
