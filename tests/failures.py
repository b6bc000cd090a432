"""What failed in runs of pytest, told once more in short: behind the output of five runs nobody finds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

LINES = 30
"""Of one failure: its end, where pytest says what was and what should have been."""


def failures(reports: Iterable[Path]) -> Iterator[str]:
    """Each failure and error in these JUnit reports: its test, and the end of what pytest said.

    A run that was cut off left no report, which is told in its place.
    """
    for report in reports:
        try:
            cases = ElementTree.parse(report).iter("testcase")
        except (OSError, ElementTree.ParseError) as error:
            yield f"{report.name}: this run left no report: {error}"
            continue
        for case in cases:
            for outcome in (*case.iterfind("failure"), *case.iterfind("error")):
                said = (outcome.text or outcome.get("message") or "").rstrip().splitlines()
                yield "\n".join((f"{outcome.tag}: {case.get('classname')}::{case.get('name')}", *said[-LINES:]))
