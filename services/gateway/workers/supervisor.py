"""The supervisor of several workers; see the package."""

import asyncio
import socket
import time
from collections.abc import Mapping

import structlog
from prometheus_client import CollectorRegistry

from mesh.lifecycle import Lifecycle
from mesh.telemetry import serve_management
from services.gateway.downstream.siblings import INBOX_KIND
from services.gateway.serving import stop_bound_s
from services.gateway.settings import GatewaySettings
from services.gateway.workers import metrics
from services.gateway.workers.balance import Load
from services.gateway.workers.exposition import WorkersCollector
from services.gateway.workers.post import Post
from services.gateway.workers.reception import Reception
from services.gateway.workers.supervision import GiveUp, Supervision
from services.gateway.workers.words import STOP, Word

LOOK_S = 1.0
"""How often the load of workers is measured."""
KILL_S = 2.0
"""How long before the end of the time for a stop the remaining workers are killed."""

log = structlog.get_logger(__name__)


class WorkerFailedError(RuntimeError):
    """The gateway could not start."""


async def supervise(settings: GatewaySettings, lifecycle: Lifecycle) -> None:
    """Run until the lifecycle stops. OSError if a port is taken, WorkerFailedError if a worker can't start."""
    supervisor = Supervisor(settings, lifecycle)
    exposed = CollectorRegistry()
    exposed.register(WorkersCollector(metrics.registry, lambda: {post.number: post.ask_metrics for post in posts}))
    posts = supervisor.posts
    management = serve_management(settings.metrics_listen, lifecycle, exposed)
    try:
        await supervisor.run()
    finally:
        await supervisor.stop()
        management.stop()


class Supervisor:
    """`run`, then `stop`."""

    def __init__(self, settings: GatewaySettings, lifecycle: Lifecycle) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        numbers = range(1, settings.workers + 1)
        self._inboxes = [socket.socketpair(socket.AF_UNIX, INBOX_KIND) for _ in numbers]
        doors = [door for door, _ in self._inboxes]
        self.posts = [Post(n, settings, inbox, doors) for n, (_, inbox) in zip(numbers, self._inboxes, strict=True)]
        self._supervision = Supervision(numbers)
        self._reception = Reception(settings.listeners, self._doors)
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Run until the lifecycle stops, or a worker fails before all were ready."""
        loop = asyncio.get_running_loop()
        log.info("workers start", workers=len(self.posts))
        self._tasks = [loop.create_task(self._keep(post), name=f"worker {post.number}") for post in self.posts]
        others = [
            loop.create_task(self._look(), name="load"),
            loop.create_task(self._lifecycle.stopping.wait(), name="stopping"),
        ]
        try:
            done, _ = await asyncio.wait([*self._tasks, *others], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for other in others:
                other.cancel()

    async def stop(self) -> None:
        """Take no new clients; drain all workers, and kill those that do not end in time."""
        self._supervision.stopping = True
        self._lifecycle.stop()
        self._reception.close()
        for post in self.posts:
            post.order(STOP)
        if not self._tasks:
            return
        await asyncio.wait(self._tasks, timeout=stop_bound_s(self._settings) - KILL_S)
        for post in self.posts:
            if post.is_running:
                log.error("a worker does not end, and is killed", worker=post.number)
                post.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in (end for pair in self._inboxes for end in pair):
            each.close()

    async def _keep(self, post: Post) -> None:
        """Run a worker, as often as it is started."""
        while not self._lifecycle.stopping.is_set():
            self._supervision.begun(post.number)
            self._tell()
            try:
                how = await post.run(lambda word: self._heard(post, word))
            except OSError as error:
                how = f"it can't be started: {error}"
            outcome = self._supervision.ended(post.number, how, time.monotonic())
            self._tell()
            if isinstance(outcome, GiveUp):
                raise WorkerFailedError(outcome.reason)
            if outcome is None:
                return
            log.error("a worker has ended, and is started again", worker=post.number, how=how, in_s=outcome.after_s)
            metrics.worker_ends.labels(str(post.number)).inc()
            try:
                async with asyncio.timeout(outcome.after_s):
                    await self._lifecycle.stopping.wait()
            except TimeoutError:
                continue

    def _heard(self, post: Post, word: Word) -> None:
        post.load.taken, post.load.open = word.taken, word.open
        if (word.policy or word.doors) and not self._supervision.stopping:
            self._reception.follow(word.policy, word.doors)
        self._supervision.told(post.number, word.phase, word.reason, time.monotonic())
        self._tell()
        if self._lifecycle.stopping.is_set():
            post.order(STOP)  # it was started while the others got the order

    def _tell(self) -> None:
        """Report to the lifecycle whether all workers are ready."""
        metrics.workers_ready.set(sum(self._supervision.is_ready(post.number) for post in self.posts))
        if self._lifecycle.stopping.is_set():
            return
        if self._supervision.trouble:
            self._lifecycle.not_ready(self._supervision.trouble)
        else:
            self._reception.open()
            self._lifecycle.ready()

    def _doors(self) -> Mapping[Load, socket.socket]:
        return {
            post.load: post.door
            for post in self.posts
            if post.door is not None and self._supervision.is_ready(post.number)
        }

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._reception.try_again()
            for post in self.posts:
                post.look_how_busy()
                post.tell_faults(self._reception.faults)
