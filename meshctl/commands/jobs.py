"""`meshctl jobs`: continuous jobs of pipelines, how they do, and the loss that an operator accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import click

from mesh.rpc import events, pipelines
from mesh.wording import short
from meshctl.commands.orders import Ordering, carry_out, order_options
from meshctl.completions import pipeline_names
from meshctl.output import age, as_dict, moment, print_json, print_table
from meshctl.session import Group, Session, pass_session

JOBS = ("archive", "audit", "traffic")
USUAL_WAIT = 50.0
USUAL_EXPIRY = 600.0
"""Seconds. A pipeline that starts anew, and the driver of its job, take a minute or two."""


@click.group(cls=Group)
def jobs() -> None:
    """Continuous jobs of pipelines: list them, and let one go on behind a loss.

    \b
    Examples:
      meshctl jobs list
      meshctl jobs accept-loss archive orders --reason 'the disk was full for a week'
    """


@jobs.command("list")
@pass_session
def list_jobs(session: Session) -> None:
    """Show the jobs of all pipelines that report to control, and the topics that they set apart, with the remedy.

    \b
    Examples:
      meshctl jobs list
      meshctl jobs list -o json
    """
    found = _jobs(session)
    if session.as_json:
        print_json({"jobs": [as_dict(each) for each in found]})
        return
    print_table(
        ("JOB", "PIPELINE", "STATE", "BEHIND", "BEFORE RETENTION", "COMPLETE UNTIL", "APART", "SEEN"),
        (
            (
                each.status.job, short(each.pipeline), "runs" if each.status.running else "waits",
                _number(each.status, "behind"), _number(each.status, "retention_distance"),
                moment(each.status.complete_until) if each.status.HasField("complete_until") else "-",
                each.status.apart_count or "-", age(each.status_time),
            )
            for each in found
        ),
        empty="No pipeline that runs continuous jobs is connected.",
    )  # fmt: skip
    for each in found:
        if each.status.problem:
            click.echo(f"{each.status.job} on {short(each.pipeline)}: {each.status.problem}")
        for topic in each.status.apart:
            click.echo(f"{each.status.job} sets {topic.topic} apart: {topic.problem}")
            if topic.loss:
                click.echo(f"  to go on without what is lost: meshctl jobs accept-loss {each.status.job} {topic.topic}")


@jobs.command("accept-loss")
@click.argument("job", type=click.Choice(JOBS))
@click.argument("topic", metavar="TOPIC")
@click.option(
    "--pipeline", metavar="NAME", shell_complete=pipeline_names, help="That runs the job; needed where several do."
)
@order_options(USUAL_WAIT, USUAL_EXPIRY, "pipeline")
@pass_session
def accept_loss(session: Session, job: str, topic: str, pipeline: str | None, ordering: Ordering) -> None:
    """Let JOB go on in TOPIC, of which retention or a deletion took records before the job had read them.

    The loss that there is now is accepted, and no later one. The order is an event in the log, with who gave it and
    why; its outcome tells which offsets are given up. TOPIC is named as `meshctl jobs list` names it.

    \b
    Example:
      meshctl jobs accept-loss archive orders --reason 'the disk was full for a week'
    """
    target = f"pipelines/{(pipeline or _who_runs(job, _jobs(session))).removeprefix('pipelines/')}"
    carry_out(session, target, events.SidecarCommand(accept_loss=events.AcceptLoss(job=job, topic=topic)), ordering)


def _jobs(session: Session) -> Sequence[pipelines.ListedJob]:
    return session.connect().all_jobs()


def _who_runs(job: str, found: Sequence[pipelines.ListedJob]) -> str:
    """The one pipeline that runs it."""
    running = sorted(short(each.pipeline) for each in found if each.status.job == job)
    if len(running) == 1:
        return running[0]
    told = f"{', '.join(running)} run it" if running else "no pipeline that is connected runs it"
    raise click.UsageError(f"job {job}: {told}; say which one with --pipeline")


def _number(status: pipelines.JobStatus, field: Literal["behind", "retention_distance"]) -> str:
    return f"{getattr(status, field):,}" if status.HasField(field) else "-"
