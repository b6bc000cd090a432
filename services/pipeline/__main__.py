"""`kafka-mesh pipeline run JOB`: one Spark job in the foreground."""

from __future__ import annotations

from pathlib import Path

import click

from services.pipeline.commands.archive import archive_command
from services.pipeline.commands.audit import audit_command
from services.pipeline.commands.executor import executor_command
from services.pipeline.commands.foreground import CONTROL_FOUND, FoundControl
from services.pipeline.commands.prepare import prepare_command
from services.pipeline.commands.profile import profile_command
from services.pipeline.commands.replay import replay_command
from services.pipeline.commands.restore import restore_command
from services.pipeline.commands.serve import serve_command
from services.pipeline.commands.traffic import traffic_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def pipeline() -> None:
    """Spark jobs over many records: audit, traffic, archive, restore, replay, profile."""


@pipeline.group("run")
def run_job() -> None:
    """Run a job in the foreground; what it has done stands in its checkpoint."""


pipeline.add_command(serve_command)
pipeline.add_command(executor_command)
pipeline.add_command(prepare_command)
run_job.add_command(archive_command)
run_job.add_command(audit_command)
run_job.add_command(profile_command)
run_job.add_command(replay_command)
run_job.add_command(restore_command)
run_job.add_command(traffic_command)


def main(
    arguments: list[str] | None = None,
    *,
    gateway: str | None = None,
    control: str = "",
    tls_folder: Path | None = None,
) -> None:
    """`gateway` and `control` are the addresses that the caller found; jobs use them if no other address is set.
    `tls_folder` has the pipeline's certificate for this control.
    """
    CONTROL_FOUND.set(FoundControl(control, tls_folder) if control else None)
    pipeline.main(args=arguments, prog_name="kafka-mesh pipeline", obj=gateway)


if __name__ == "__main__":
    main()
