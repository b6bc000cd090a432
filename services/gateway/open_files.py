"""As many connections as the system allows: the soft limit of open files is raised to the hard one at the start."""

import resource

import structlog

log = structlog.get_logger(__name__)

ENOUGH = 10_000
"""Each client may need a connection of its own to several brokers; with less there is a word in the log."""


def raise_limit() -> int:
    """The limit from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < ENOUGH:
        log.warning("few open files are allowed", limit=hard, way_out=f"raise it to {ENOUGH} or more (ulimit -Hn)")
    return hard
