"""Conversions of records: work that would keep the event loop, done by a few other processes.

Theory of operation
1. Records of old clients are converted one by one, in Python: 3 to 5 us each. While a thread does that, the event loop
   gets the interpreter lock back after 5 ms, each time it wants it. `tests/bench/test_conversions.py` measured an echo
   over the loop beside two converters, on two busy cores. With threads there were 2,300 to 7,000 round trips a second
   (p99 5 to 8 ms). With processes there were 18,000 to 33,000 (p99 0.2 to 0.9 ms), without converters 60,000. Hence
   the gateway uses processes. The way to a process and back takes 0.1 to 0.3 ms. The loop works 0.03 ms of this time,
   or 0.14 ms if 100 KB go along.
2. A worker is started when there is work and no worker is free, up to the number of the settings, and stays. A gateway
   without old clients has none.
3. Work waits in one queue, first come, first served. Each piece of work belongs to a request, whose
   bytes its connection counts; so the bounds of requests bound the queue. Beyond `MOST_WAITING` the queue refuses work.
4. Every piece of work ends within `CONVERSION_S`, waiting included, with a result or `NotConverted`. A worker that
   takes longer, or dies (of a bomb, of the system's memory), is killed and replaced; other work does not notice.
"""

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from services.gateway import metrics
from services.gateway.downstream import conversion_worker
from services.gateway.downstream.conversion_worker import LENGTH
from services.gateway.requests.conversions import Convert, NotConverted

log = structlog.get_logger(__name__)

CONVERSION_S = 30.0
"""Clients wait as long by default. The longest request takes a worker a second, or five if its records are tiny."""
MOST_WAITING = 10_000
PIPE_BYTES = 1024 * 1024
"""Most bytes read from a worker at once."""
END_S = 5.0

Done = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class _Work:
    convert: Convert
    done: Done
    began: float


class Conversions:
    """The queue of conversions and their processes: `submit`, and `stop` in the end."""

    def __init__(self, workers: int = 2) -> None:
        self._most_workers = workers
        self._queue: asyncio.Queue[_Work] = asyncio.Queue(MOST_WAITING)
        self._idle = 0
        self._workers: set[asyncio.Task[None]] = set()

    def submit(self, convert: Convert, done: Done) -> None:
        """`done` is called later, once, with what the function returned or `NotConverted`."""
        loop = asyncio.get_running_loop()
        try:
            self._queue.put_nowait(_Work(convert, done, loop.time()))
        except asyncio.QueueFull:
            loop.call_soon(done, NotConverted(f"{MOST_WAITING} conversions wait already"))
            return
        metrics.conversions_waiting.set(self._queue.qsize())
        if self._queue.qsize() > self._idle and len(self._workers) < self._most_workers:
            worker = loop.create_task(self._work(), name="conversions")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def stop(self) -> None:
        """Drops the work that is not done by now: nobody waits for its result any more."""
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self) -> None:
        """Run one worker, over all its processes."""
        process: Process | None = None
        try:
            while True:
                self._idle += 1
                try:
                    work = await self._queue.get()
                finally:
                    self._idle -= 1
                metrics.conversions_waiting.set(self._queue.qsize())
                if asyncio.get_running_loop().time() - work.began >= CONVERSION_S:
                    self._tell(work, NotConverted(f"nobody had time for it within {CONVERSION_S:g} s"))
                    continue
                try:
                    async with asyncio.timeout_at(work.began + CONVERSION_S):
                        process = process or await _started()
                        result = await _run(process, work.convert)
                except Exception as error:  # noqa: BLE001  # the caller must get every failure
                    result = NotConverted(_reason(process, error))
                    await _ended(process)
                    process = None
                self._tell(work, result)
        finally:
            await _ended(process)

    @staticmethod
    def _tell(work: _Work, result: Any) -> None:
        name = work.convert.function.__name__
        if isinstance(result, NotConverted):
            metrics.failed_conversions.labels(name).inc()
            log.error("a conversion failed", function=name, reason=result.reason)
        metrics.conversion_seconds.labels(name).observe(asyncio.get_running_loop().time() - work.began)
        work.done(result)


async def _started() -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", conversion_worker.__name__),
        stdin=PIPE,
        stdout=PIPE,
        limit=PIPE_BYTES,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


async def _run(process: Process, convert: Convert) -> Any:
    assert process.stdin is not None and process.stdout is not None
    request = pickle.dumps((convert.function, convert.arguments), pickle.HIGHEST_PROTOCOL)
    process.stdin.writelines((LENGTH.pack(len(request)), request))
    await process.stdin.drain()
    (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
    done, result = pickle.loads(await process.stdout.readexactly(length))
    return result if done else NotConverted(result)


def _reason(process: Process | None, error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"it was not done within {CONVERSION_S:g} s"
    if process is None:
        return f"no process could be started: {error}"
    if isinstance(error, (OSError, EOFError)):
        return "its process ended"
    return f"{type(error).__name__}: {error}"


async def _ended(process: Process | None) -> None:
    if process is None:
        return
    if process.returncode is None:
        process.kill()
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:  # the caller of the work must not wait for the end of its process
        log.error("a process for conversions was killed and does not end", process_id=process.pid)
