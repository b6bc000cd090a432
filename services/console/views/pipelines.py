"""The continuous jobs of pipelines: whether each runs, how far it is behind, and topics that it does not read."""

from __future__ import annotations

from mesh.rpc import pipelines
from mesh.wording import short
from services.console import words
from services.console.asking import Ask
from services.console.parts import Cell, Cells, Page, Part, Table, Tone

LEAD = "Each job as its pipeline reported it last. A pipeline starts a job again whenever the job ends."
COLUMNS = ("Job", "Pipeline", "State", "Behind", "Until retention deletes", "Complete until", "Problem", "Reported")


async def jobs(ask: Ask) -> Page:
    answer = await ask.caller.call(
        ask.caller.stubs.pipelines.ListJobs, pipelines.ListJobsRequest(page_token=ask.page_token)
    )
    empty = "No pipeline reports a job. kafka-mesh pipeline serve starts one."
    more = ask.more(answer.next_page_token)
    parts: list[Part] = [Table("Jobs", COLUMNS, [_row(each) for each in answer.jobs], empty, more=more)]
    parts += [_apart(each) for each in answer.jobs if each.status.apart]
    return Page("Pipelines", parts, lead=LEAD)


def _row(of: pipelines.ListedJob) -> Cells:
    status = of.status
    until = status.complete_until
    return [
        status.job,
        short(of.pipeline),
        Cell("runs", tone=Tone.GOOD) if status.running else Cell("does not run", tone=Tone.BAD),
        words.count(status.behind, "record") if status.HasField("behind") else "not known",
        words.count(status.retention_distance, "record") if status.HasField("retention_distance") else words.NONE,
        words.age(until) if status.HasField("complete_until") else "not known",
        Cell(status.problem, tone=Tone.WARNING) if status.problem else words.NONE,
        words.age(of.status_time),
    ]


def _apart(of: pipelines.ListedJob) -> Table:
    status = of.status
    rows: list[Cells] = [[each.topic, each.problem, "yes" if each.loss else "no"] for each in status.apart]
    left = status.apart_count - len(rows)
    note = f"{words.count(left, 'topic')} more." if left > 0 else ""
    title = f"Topics that {status.job} of {short(of.pipeline)} does not read"
    return Table(title, ("Topic", "Problem", "Loss to accept"), rows, "", note)
