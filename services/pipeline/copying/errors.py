"""Errors that stop a copy for good, or for now."""

from __future__ import annotations

import re


class CopyError(Exception):
    """The copy can't be made, or can't resume. The message has the problem, the place and the remedy, in one line."""


class RefusedError(CopyError):
    """The copy can't be made as it was ordered; nothing was written."""


class SetbackError(Exception):
    """A cluster does not answer as expected; another attempt may succeed."""


def forgotten(group: str, cluster: str, place: tuple[str, int]) -> CopyError:
    """The error for notes that have disappeared."""
    return CopyError(
        f"group {group} on cluster {cluster!r} has forgotten how far {place[0]}/{place[1]} is: somebody deleted it, "
        "or it is older than offsets.retention.minutes. It can't go on exactly once; look for the last "
        "mesh-replay-source at the end of the target, and begin another replay behind it"
    )


def of_another_copy(group: str, cluster: str, topic: str) -> CopyError:
    """The error for a group whose notes belong to another copy."""
    return CopyError(
        f"group {group} on cluster {cluster!r} keeps how far another copy of {topic} is: of another range, filter or "
        "target, or the target was created again since. Take another group, and this copy begins anew"
    )


def archive_of_another(topic: str) -> RefusedError:
    """The error for a topic whose archive belongs to an earlier topic of the same name."""
    return RefusedError(
        f"the archive of {topic} is of another topic of that name, with offsets of its own; copy without it (archive "
        "NEVER), or restore it alone (archive ONLY)"
    )


def replaced(topic: str, cluster: str) -> CopyError:
    """The error for a topic that was created again, so that its offsets mean other records."""
    return CopyError(
        f"topic {topic} on cluster {cluster!r} was deleted and created again meanwhile: its offsets are of other "
        "records, and nothing more is copied. Begin another replay for what it holds now"
    )


_RAISED = re.compile(r"^.*Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?P<text>\S.*)$", re.MULTILINE)
_SENTENCE = re.compile(rf"^(?:.*\s)?{re.escape(__name__)}\.(?P<kind>\w+): (?P<text>.+)$", re.MULTILINE)


def from_task(failure: BaseException) -> CopyError | SetbackError:
    """The error of a task, taken from Spark's traceback; an error that is not the pipeline's own is a setback."""
    told = str(failure)
    found = list(_SENTENCE.finditer(told))
    if not found:
        raised = [each["text"] for each in _RAISED.finditer(told)] or told.strip().splitlines()[:1]
        return SetbackError(raised[-1] if raised else type(failure).__name__)
    kind, text = found[-1]["kind"], found[-1]["text"]
    return SetbackError(text) if kind == SetbackError.__name__ else CopyError(text)
