"""A driver of `serve`: the pipeline's command in a process of its own, which never outlives its `serve`.

    python -m services.pipeline.driver [--nice N] run replay --order -      the arguments of `kafka-mesh pipeline`

`serve` starts the driver as the leader of a process group, with three pipes. Jobs don't depend on these rules:

1. stdin stays open as long as `serve` runs. Its first line is an order; later lines tell a continuous job which losses
   an operator accepts (`driver_protocol/acceptances.py`). If the other end closes, `serve` has ended for any reason,
   and the process group ends at once: this process and Spark's JVM. Spark's Python workers end after the JVM. This
   leaves the same state as `kill -9` of a driver, from which each job can resume. The driver makes no orderly end,
   because the next `serve` may be starting a driver for the same work. The two may overlap only for the time of a
   driver's start.
2. stdout is for reports. Output of Spark's JVM or of a library to stdout goes to stderr.
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
    from services.pipeline.__main__ import main as pipeline  # an orphan ends even during this import
    from services.pipeline.driver_protocol import job_reports

    job_reports.begin()
    arguments = sys.argv[1:]
    if arguments[:1] == ["--nice"]:
        os.nice(int(arguments[1]))  # for its children too: the JVM, and Python workers
        arguments = arguments[2:]
    pipeline(arguments)


def end_when_orphaned() -> None:
    """Starts a thread that ends the process group when the other end of stdin is closed; the thread reads no data."""
    hang_up = select.poll()
    hang_up.register(STDIN, 0)  # no event but the hang-up, which poll always reports

    def wait() -> None:
        hang_up.poll()
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)  # started by hand, in the process group of another program

    threading.Thread(target=wait, name="orphaned", daemon=True).start()


def keep_stdout_for_reports() -> None:
    """Keeps `sys.stdout` on the original stdout; the descriptor 1, which children write to, becomes stderr."""
    sys.stdout.flush()
    reports = os.dup(STDOUT)  # not inherited by children
    os.dup2(STDERR, STDOUT)
    sys.stdout = os.fdopen(reports, "w", encoding="utf-8", buffering=1)


if __name__ == "__main__":
    main()
