"""`kafka-mesh pipeline run restore`: a replay that reads the archive alone."""

from __future__ import annotations

import click

from mesh.rpc import replays
from services.pipeline.commands.copies import HowToCopy, copy_by_hand, copy_options
from services.pipeline.commands.foreground import explaining, require_spark, settings_of


@click.command("restore")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--from", "folder", metavar="FOLDER", help="The archive; by default that of the settings.")
@click.option("--to", "target", metavar="TOPIC", help="Where to; {topic} in it is the archived name.")
@click.option("--target-cluster", metavar="NAME", help="Cluster that is written; needed where there are several.")
@copy_options
def restore_command(
    topics: tuple[str, ...],
    folder: str | None,
    target: str | None,
    target_cluster: str | None,
    how: HowToCopy,
) -> None:
    """Write archived records of TOPIC... into a topic, each exactly once, however often this is killed and run again.

    The same options again go on, up to where the archive ended the first time; another --group begins anew.
    """
    settings = settings_of(how.config)
    require_spark()
    archive = folder or settings.archive_folder
    if not archive:
        raise click.UsageError("say --from FOLDER, or set KAFKA_MESH_PIPELINE_ARCHIVE_FOLDER")
    with explaining():
        clusters = how.clusters(settings)
    if target_cluster is None and len(clusters) != 1:
        raise click.UsageError(f"say --target-cluster: one of {', '.join(clusters) or 'none that is known'}")
    cluster = target_cluster or next(iter(clusters))
    copy = replays.ReplayToTopic(
        topic=target or "",
        cluster=cluster,
        source_cluster=cluster,  # the archive has the topics' names in the mesh, and not their clusters
        archive=replays.REPLAY_ARCHIVE_ONLY,
    )
    copy_by_hand(sorted(set(topics)), copy, how, clusters, settings, archive, "restore")
