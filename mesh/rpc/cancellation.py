"""Cancellations that grpc.aio has swallowed: whoever goes on after a call that failed asks here first."""

from __future__ import annotations

import asyncio


def heed_cancellation() -> None:
    """Raises CancelledError in a task that was cancelled, or whose time is over, and was not told.

    A task that is cancelled while it awaits a call of grpc.aio hears the call's own error where that failed in the same
    turn of the loop: the cancellation goes to the inner task that begins the call (`_prepare_rpc`, `_invoke`), which
    takes it for its own and ends. A loop that tries again would then run for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
