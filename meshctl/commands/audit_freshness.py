"""How far the table of audit events is, in sentences."""

from __future__ import annotations

from mesh import durations
from mesh.rpc import audit
from meshctl.output import count, moment

BEHIND_SECONDS = 60.0
"""Commands report a table that is further behind, because missing events may still come."""


def said(freshness: audit.AuditFreshness) -> list[str]:
    """The reasons why the answer may be incomplete; empty when there are none."""
    sentences = [freshness.problem[:1].upper() + freshness.problem[1:] + "."] if freshness.problem else []
    if not freshness.HasField("pipeline_time"):
        return sentences
    if not freshness.HasField("complete_until"):
        sentences.append("The table is not complete up to any time yet.")
    elif durations.in_s(freshness.behind) > BEHIND_SECONDS or freshness.problem:
        sentences.append(f"The table is complete up to {moment(freshness.complete_until)}.")
    if freshness.behind_events:
        sentences.append(f"{count(freshness.behind_events, 'event')} were still to be read then.")
    return sentences
