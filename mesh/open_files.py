"""Allows as many connections as the system does: raises the soft limit of open files to the hard limit at the start."""

import resource

import structlog

log = structlog.get_logger(__name__)

ENOUGH = 10_000
"""A gateway may need several connections for each client, control one for each sidecar. A lower limit is logged."""


def raise_limit() -> int:
    """Raise the limit; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < ENOUGH:
        log.warning("few open files are allowed", limit=hard, way_out=f"raise it to {ENOUGH} or more (ulimit -Hn)")
    return hard
