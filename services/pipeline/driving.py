"""A driver of `serve`: the pipeline's command in a process of its own, which never outlives the serve that started it.

    python -m services.pipeline.driving [--nice N] run replay --order -      what `kafka-mesh pipeline` takes

Serve starts it as the leader of a process group, with three pipes. A job needs to know nothing of that:

1. stdin stays open for as long as serve lives. An order is its first line; lines that come later tell a continuous job
   what an operator accepts (`acceptances.py`). When the other end is closed, serve is gone, whatever ended it, and the
   group ends at once: this process and Spark's JVM; Spark's Python workers follow the JVM. That is what `kill -9` of a
   driver leaves, and what each job goes on from. It does not end in order instead, because the next serve may be
   starting a driver for the same work now, and two must not be at it for longer than it takes to start one.
2. stdout is for reports. What Spark's JVM or a library prints there goes to stderr.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading

STDIN, STDOUT, STDERR = 0, 1, 2


def main() -> None:
    end_when_orphaned()
    keep_stdout_for_reports()
    from services.pipeline import job_reports
    from services.pipeline.__main__ import main as pipeline  # what is orphaned while it is imported ends too

    job_reports.begin()
    arguments = sys.argv[1:]
    if arguments[:1] == ["--nice"]:
        os.nice(int(arguments[1]))  # its children too: the JVM, and Python workers
        arguments = arguments[2:]
    pipeline(arguments)


def end_when_orphaned() -> None:
    """From now on the process group ends when nobody holds the other end of stdin any more; reads nothing from it."""
    hang_up = select.poll()
    hang_up.register(STDIN, 0)  # of no event but the end, of which it is always told

    def wait() -> None:
        hang_up.poll()
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)  # it was started by hand, in somebody else's group

    threading.Thread(target=wait, name="orphaned", daemon=True).start()


def keep_stdout_for_reports() -> None:
    """`sys.stdout` goes on to where it went; what writes to the descriptor, as children do, writes to stderr now."""
    sys.stdout.flush()
    reports = os.dup(STDOUT)  # not inherited by children
    os.dup2(STDERR, STDOUT)
    sys.stdout = os.fdopen(reports, "w", encoding="utf-8", buffering=1)


if __name__ == "__main__":
    main()
