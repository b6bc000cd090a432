"""What is told of a task that failed, from amid Spark's traces."""

from __future__ import annotations

import pytest

from services.pipeline.copying.errors import CopyError, SetbackError, from_task

TRACES = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 2 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2790)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1245, in main
    process()
%s

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:572)
\t... 1 more
"""


@pytest.mark.parametrize("kind", [CopyError, SetbackError])
def test_our_own_sentence_is_told_as_it_is(kind: type[Exception]) -> None:
    found = from_task(Exception(TRACES % f"services.pipeline.copying.errors.{kind.__name__}: apples/0: it can't be so"))
    assert (type(found), str(found)) == (kind, "apples/0: it can't be so")


def test_of_others_the_last_line_of_their_trace_is_told_and_it_is_tried_again() -> None:
    found = from_task(Exception(TRACES % "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer"))
    assert (type(found), str(found)) == (
        SetbackError,
        "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer",
    )


@pytest.mark.parametrize(("said", "told"), [("Job 3 cancelled\n\tat x", "Job 3 cancelled"), ("", "Exception")])
def test_what_has_no_trace_is_told_by_its_first_line(said: str, told: str) -> None:
    assert str(from_task(Exception(said))) == told
