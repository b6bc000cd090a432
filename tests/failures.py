"""What failed in runs of pytest, told once more in short: behind the output of five runs nobody finds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

LINES = 30
"""Of one failure: where pytest says what was and what should have been."""
WIDTH = 200
"""Of the line that says it all, in characters."""


def failures(reports: Iterable[Path]) -> Iterator[str]:
    """Each failure and error in these JUnit reports: its test, and how what pytest said of it begins and ends. All of
    them in a line each come last: where only the end of an output is kept, they are what is needed.

    A run that was cut off left no report, which is told in its place.
    """
    in_a_line: list[str] = []
    for report in reports:
        try:
            cases = ElementTree.parse(report).iter("testcase")
        except (OSError, ElementTree.ParseError) as error:
            in_a_line.append(f"{report.name}: this run left no report: {error}")
            continue
        for case in cases:
            for outcome in (*case.iterfind("failure"), *case.iterfind("error")):
                name = f"{outcome.tag}: {case.get('classname')}::{case.get('name')}"
                said = (outcome.text or outcome.get("message") or "").rstrip().splitlines()
                reasons = [line for line in said if line.startswith("E ")] or said
                yield "\n".join((name, *_ends(reasons), *said[-1:]))
                in_a_line.append(f"{name}: {reasons[0].removeprefix('E').strip()[:WIDTH] if reasons else ''}")
    yield from in_a_line


def _ends(lines: list[str]) -> list[str]:
    """All of them, or `LINES` from both ends."""
    if len(lines) <= LINES:
        return lines
    return [*lines[: LINES // 2], "...", *lines[-LINES // 2 :]]
