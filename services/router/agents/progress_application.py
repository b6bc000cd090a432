"""The Faust application: an agent that reads the progress of all record rules, and a timer that reports this router's.

Theory of operation
1. Each router runs an application of its own and hears every word. An application has one instance, so no partition
   ever moves: `docs/explanation/faust.md` has measurements of such moves.
2. Nothing is committed (`acks=False`), and an application without committed offsets begins at the first record: the
   view is built again from the topic, which is compacted. A table would keep the same words in a second topic.
3. Each life of the application has an id of its own, so that no session of a router that was killed has to run out.
   Kafka forgets a group that has no members and no offsets within minutes.
4. While the cluster is down, Faust needs a request's time-out to stop, or does not stop. The router does not wait
   longer than a bound for an application, and leaves its group to expire. An application that does not receive its own
   records (secrets were renewed, rights were taken) is replaced.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import faust
import structlog
from faust.auth import Credentials, OAuthCredentials, SASLCredentials, SSLCredentials

from mesh.cluster_access import AccessToken, ClusterAccess, cluster_access, reason_of
from mesh.connection_security import PasswordLogin
from services.router import metrics
from services.router.agents.log_topic import ensure_topic
from services.router.agents.mesh_progress import MeshProgress, Word
from services.router.settings import RouterSettings

SAY_INTERVAL = 5.0
"""Seconds between two words about a rule."""
LOOK_INTERVAL = 1.0
START_TIMEOUT = 30.0
"""Seconds until the application is a member of its group; a broker waits 3 s for other members by default."""
STOP_TIMEOUT = 1.5
"""Seconds that the application may take to end."""
LONGEST_SILENCE = 60.0
"""Seconds without hearing itself, after which an application makes room for another one."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two applications."""
SESSION_TIMEOUT, HEARTBEAT_INTERVAL, REQUEST_TIMEOUT = 10.0, 3.0, 10.0
NEVER = 10 * 365 * 86_400.0
"""Seconds; for complaints of Faust about streams that are quiet."""
CONFIG = {"cleanup.policy": "compact,delete", "retention.ms": str(24 * 60 * 60 * 1000), "segment.ms": "3600000"}
"""Configuration of the topic: it keeps the last record of each rule, and no record of removed rules."""

log = structlog.get_logger(__name__)


class ProgressApplication:
    """One life after another. `run` until cancelled."""

    def __init__(
        self, settings: RouterSettings, mesh_progress: MeshProgress, words: Callable[[], Iterable[Word]]
    ) -> None:
        """`words`: what this router has to say now."""
        self._settings = settings
        self._mesh_progress = mesh_progress
        self._words = words

    async def run(self) -> None:
        """The router does without: it knows of its own rules then."""
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            reason = await self._live()
            if time.monotonic() - began > LONGEST_SILENCE:
                pause = FIRST_PAUSE
            metrics.progress_applications_ended.inc()
            log.warning("the progress of other routers' record rules is not known", reason=reason, next_try_s=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _live(self) -> str:
        """One life; why it ended."""
        settings = self._settings
        try:
            home = await cluster_access(settings.home_bootstrap_servers, settings.home_security)
            topic = settings.record_rules_progress_topic
            await ensure_topic(home, topic, settings.events_replication_factor, CONFIG)
            with tempfile.TemporaryDirectory(prefix="kafka-mesh-router-", ignore_cleanup_errors=True) as folder:
                application = self._application(home, topic, folder)
                try:
                    return await _start(application) or await self._watch(application)
                finally:
                    await _stop(application)
        except Exception as error:  # noqa: BLE001  # whatever Faust raises, gateways are led on
            return reason_of(error)

    async def _watch(self, application: Any) -> str:
        self._mesh_progress.heard_itself_at = time.monotonic()
        crash = asyncio.ensure_future(application.wait_until_stopped())
        try:
            while True:
                await asyncio.wait({crash}, timeout=LOOK_INTERVAL)
                if crash.done():
                    return f"Faust stopped by itself: {application.crash_reason!r}"
                if time.monotonic() - self._mesh_progress.heard_itself_at > LONGEST_SILENCE:
                    return f"this router did not hear itself for {LONGEST_SILENCE:g} s"
        finally:
            crash.cancel()

    def _application(self, home: ClusterAccess, topic_name: str, folder: str) -> Any:
        application: Any = faust.App(
            f"{self._settings.app_id}.{uuid.uuid4().hex[:8]}",
            broker=[f"kafka://{address}" for address in home.bootstrap],
            broker_credentials=_credentials(home),
            broker_client_id=self._settings.app_id,
            broker_request_timeout=REQUEST_TIMEOUT,
            broker_session_timeout=SESSION_TIMEOUT,
            broker_heartbeat_interval=HEARTBEAT_INTERVAL,
            broker_commit_livelock_soft_timeout=NEVER,
            stream_processing_timeout=NEVER,
            consumer_auto_offset_reset="earliest",
            topic_disable_leader=True,
            topic_allow_declare=False,
            store="memory://",
            datadir=folder,
            web_enabled=False,
        )
        topic = application.topic(
            topic_name, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw", acks=False
        )

        @application.agent(topic, name="record_rule_progress")  # type: ignore[untyped-decorator]  # it ships no types
        async def hear(words: Any) -> None:
            async for word in words:
                self._mesh_progress.hear(word)

        @application.timer(SAY_INTERVAL)  # type: ignore[untyped-decorator]
        async def say() -> None:
            for key, value in self._words():
                await topic.send(key=key, value=value)

        return application


async def _start(application: Any) -> str:
    """Why the application can't start; empty when it can. In a task: Faust's own cancellations are not ours."""
    starting = asyncio.create_task(application.start(), name="start Faust")
    try:
        await asyncio.wait({starting}, timeout=START_TIMEOUT)
        if not starting.done():
            return f"Faust has not started within {START_TIMEOUT:g} s"
        if starting.cancelled():
            return "Faust gave its start up"
        starting.result()
        return ""
    finally:
        starting.cancel()


async def _stop(application: Any) -> None:
    """Stops the application within STOP_TIMEOUT. After that the task is not awaited: mode, cancelled in one wait, would
    begin the next wait."""
    stopping = asyncio.create_task(application.stop(), name="stop Faust")
    await asyncio.wait({stopping}, timeout=STOP_TIMEOUT)
    if not stopping.done():
        log.error("Faust does not stop; the router goes on", seconds=STOP_TIMEOUT)


def _credentials(home: ClusterAccess) -> Credentials | None:
    match home.login:
        case PasswordLogin(mechanism, username, password):
            return SASLCredentials(
                username=username, password=password, ssl_context=home.tls, mechanism=mechanism.value
            )
        case AccessToken():
            return OAuthCredentials(oauth_cb=home.login, ssl_context=home.tls)
    return None if home.tls is None else SSLCredentials(home.tls)
