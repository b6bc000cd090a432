"""Cancellations that grpc.aio has swallowed: whoever goes on after a call that failed asks here first."""

from __future__ import annotations

import asyncio


def heed_cancellation() -> None:
    """Raises CancelledError in a task that was cancelled, or timed out, without an exception.

    A task may be cancelled while it awaits a call of grpc.aio. If the call fails in the same turn of the loop, the task
    gets the call's error: the inner task that begins the call (`_prepare_rpc`, `_invoke`) took the cancellation for its
    own. A loop that tries again would then run for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
