"""`kafka-mesh pipeline run replay`: a copy, ordered by `serve` or by hand."""

from __future__ import annotations

import click

from mesh.rpc import replays
from services.pipeline.commands.copies import HowToCopy, carry_out, copy_by_hand, copy_options
from services.pipeline.commands.foreground import carry_out_order, explaining, order_option, require_spark, settings_of


@click.command("replay")
@order_option
@click.option("--from", "source", metavar="TOPIC", help="What is read, under its name on its cluster.")
@click.option("--to", "target", metavar="TOPIC", help="Where to; the same name if it is left out.")
@click.option("--source-cluster", metavar="NAME", help="Cluster that is read.")
@click.option("--target-cluster", metavar="NAME", help="Cluster that is written; the same one if it is left out.")
@click.option("--filter", "condition", metavar="CEL", default="", help="Only records for which this is true.")
@copy_options
def replay_command(
    order: str | None,
    source: str | None,
    target: str | None,
    source_cluster: str | None,
    target_cluster: str | None,
    condition: str,
    how: HowToCopy,
) -> None:
    """Copy records to another topic or cluster, each exactly once, however often this is killed and run again.

    The same options again go on, up to where the source ended the first time; another --group begins anew. With --order
    it is `kafka-mesh pipeline serve` that orders it, and replays of control have more options than these.
    """
    settings = settings_of(how.config)
    require_spark()
    if order:
        carry_out_order(settings, carry_out)
        return
    if not source or not source_cluster:
        raise click.UsageError("say --from TOPIC and --source-cluster NAME, or --order -")
    with explaining():
        clusters = how.clusters(settings)
    copy = replays.ReplayToTopic(
        topic=target or source,
        cluster=target_cluster or source_cluster,
        source_cluster=source_cluster,
        filter=condition,
        archive=replays.REPLAY_ARCHIVE_AUTO if settings.archive_folder else replays.REPLAY_ARCHIVE_NEVER,
    )
    copy_by_hand([source], copy, how, clusters, settings, settings.archive_folder, "replay")
