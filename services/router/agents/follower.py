"""Keeps a reading of the log running for as long as the process runs, and posts the folded states.

Theory of operation
1. A reading begins behind the newest snapshot, or at the first record with an empty ledger. The reading posts nothing
   until it has reached the end that the log had at its start. Then it posts its state, and from then on the state after
   each record that moves a table.
2. If Kafka is down for a while, aiokafka reconnects, and the reading continues. Every other error (a gap in the log, a
   record that is no event, Faust stopped) ends the reading. The next reading begins after a pause that doubles up to a
   bound. If the content of the log was the error, the next reading begins at the first record, because a snapshot might
   be wrong.
3. A reading keeps the secrets and certificates that it began with, because aiokafka does. When the cluster is silent,
   the follower tests the present secrets and those of the reading. If the cluster accepts only the present secrets, the
   next reading begins with them.
4. If the cluster is silent, or readings fail one after another, for `LONGEST_SILENCE`, the router is *cut off*
   (`Readiness`): the router may miss decisions, so its gateways are sent to another router. If no other router is
   better, the gateways come back, and the router serves them the table that it has.
5. A router that stood still may know less than the log holds. Before such a router sends a table to a gateway that
   control does not wait for, the follower asks for the log's present end, and reads up to this end (`read_to_end`).
6. With a certificate, the router takes only what control vouches for (`vouching.py`), and snapshots of routers.
7. The bulletin keeps the last posted state meanwhile, so data planes notice nothing. The bulletin never goes back: a
   log that has become shorter is an error until the log has grown past the known end.
"""

from __future__ import annotations

import asyncio
import time

import structlog
from google.protobuf.message import DecodeError

from mesh.cluster_access import ClusterAccess, ClusterAccessError, cluster_access
from mesh.connection_security import ConnectionSecurity
from mesh.event_log import CONTROL
from mesh.member_keys import MemberKeys
from mesh.routing import LogGapError
from services.router import metrics
from services.router.agents.bulletin import Bulletin
from services.router.agents.event_log import EventLog
from services.router.agents.home import why_kept_out
from services.router.agents.ledger import Folded, Ledger
from services.router.agents.log_topic import EventLogError, ensure_topic
from services.router.agents.rule_book import RuleBook, RulePage
from services.router.agents.snapshot_topic import SnapshotTopic, SnapshotTopicError
from services.router.agents.snapshot_writer import SnapshotWriter
from services.router.agents.snapshots import Snapshot
from services.router.agents.vouching import UnsignedLogError
from services.router.change import Readiness
from services.router.settings import RouterSettings

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between readings that fail one after another."""
LOOK_INTERVAL = 1.0
"""Seconds between two checks of the reading's lag, and of whether the cluster still answers."""
LONGEST_SILENCE = 5.0
"""Seconds without an answer of the cluster after which the router logs a warning."""
SEND_AWAY_INTERVAL = 15.0
"""Seconds after which a router that is still cut off ends its gateways' streams once more: another router may be
better.
"""
READ_TO_END_TIMEOUT = 10.0
"""Seconds that a gateway may wait for the present end of the log; by then a silent cluster has cut this router off."""
KNOCK_INTERVAL = 5.0
"""Seconds between two attempts to connect to a cluster that is silent, with the present secrets."""

UNREADABLE = (ClusterAccessError, EventLogError, LogGapError, DecodeError, ValueError, LookupError)
"""The errors of a record that can't be folded, and of the cluster."""

log = structlog.get_logger(__name__)


class Follower:
    """The reading of the log. `run` until cancelled."""

    def __init__(self, settings: RouterSettings, bulletin: Bulletin, rule_book: RuleBook, readiness: Readiness) -> None:
        self._settings = settings
        self._keys: MemberKeys | None = settings.member_keys
        self._trusted = None if settings.unsigned_log == "accept" else self._keys
        """By these keys the router trusts control and other routers; None: it checks no signatures."""
        self._bulletin = bulletin
        self._rule_book = rule_book
        self._readiness = readiness
        self._live: Ledger | None = None
        self._reading: EventLog | None = None
        self._read_on = asyncio.Event()
        """Set, and replaced, when the reading has come further, or another one has begun."""
        self._takes_snapshots = True
        self._began = 0.0
        """When this reading began, snapshots included; on the monotonic clock."""
        self._silent = False
        self._next_knock = 0.0
        self._next_sending_away = 0.0
        self._failing_since: float | None = None
        """When readings began to fail one after another; on the monotonic clock."""
        self._changed_at = 0
        self._unsigned = 0
        self._refused = 0

    async def run(self) -> None:
        """One reading after another."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self._read()
            except UNREADABLE as error:
                reason = f"can't follow the log: {error}"
                log.error(
                    "the reading of the log ended; the router begins another one",
                    reason=reason,
                    error=type(error).__name__,
                    next_try_s=pause,
                )
                metrics.readings_ended.labels(type(error).__name__).inc()
                self._readiness.not_ready(reason)
                self._look_for_failures(reason)
                self._takes_snapshots = isinstance(error, ClusterAccessError | EventLogError)
            if self._live is not None:
                pause = FIRST_PAUSE
            self._live = None
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def read_to_end(self) -> None:
        """Returns when the bulletin has all that the log holds at the call, or when the log is out of reach."""
        if self._readiness.cut_off_reason:
            return
        try:
            async with asyncio.timeout(READ_TO_END_TIMEOUT):
                end = await self._present_end()
                while self._live is None or self._live.next_offset < end:
                    await self._read_on.wait()
        except TimeoutError:
            log.warning(
                "the end of the log can't be read; a gateway gets the table that the router has",
                seconds=READ_TO_END_TIMEOUT,
            )

    async def _present_end(self) -> int:
        while True:
            if self._reading is None:
                await self._read_on.wait()
                continue
            try:
                return await self._reading.present_end()
            except EventLogError as error:
                log.warning("the end of the log can't be read; the router tries again", reason=str(error))
                await asyncio.sleep(FIRST_PAUSE)

    def _has_read_on(self) -> None:
        self._read_on.set()
        self._read_on = asyncio.Event()

    async def _read(self) -> None:
        settings, self._began = self._settings, time.monotonic()
        home = await self._home_access()
        await ensure_topic(home, settings.events_topic, settings.events_replication_factor)
        replicas = settings.events_replication_factor
        topic = SnapshotTopic(home, settings.snapshots_topic, settings.events_topic, replicas, self._trusted)
        newest = await self._newest(topic) if self._takes_snapshots else None
        shown = () if newest is None else newest.shown
        ledger = Ledger(newest, None if self._trusted is None else self._trusted.signatures(CONTROL, shown))
        writer = SnapshotWriter(topic, settings.snapshot_every_events, ledger, settings.member_name, self._keys)
        first_offset = ledger.next_offset
        reading = EventLog(
            settings.app_id,
            home,
            settings.events_topic,
            lambda *record: self._heed(ledger, ledger.fold(*record), writer),
            first_offset,
        )
        writing = asyncio.create_task(writer.run(), name="write snapshots")
        try:
            ledger.end_at_start = await reading.start()
            self._reading = reading
            began = time.time()
            log.info(
                "reading the log",
                topic=settings.events_topic,
                first_offset=first_offset,  # records may have been folded by now
                end_offset=ledger.end_at_start,
            )
            self._heed(ledger, None, writer)
            while True:
                ran_at = time.monotonic()
                await reading.run(LOOK_INTERVAL)
                if time.monotonic() - ran_at > LONGEST_SILENCE:
                    began = time.time()  # the router itself stood still, and could hear no cluster
                metrics.lag.set(max(0, reading.end_offset() - ledger.next_offset))
                self._look_at_chain(ledger)
                self._look_at_signatures(ledger)
                self._look_for_silence(max(reading.last_answer() or began, began))
                if self._silent and await self._is_renewed(home):
                    log.info("the home cluster lets in who has the present secrets; reading again, with these")
                    return
        finally:
            self._reading = None
            writing.cancel()
            await asyncio.gather(writing, reading.stop(), return_exceptions=True)

    async def _newest(self, topic: SnapshotTopic) -> Snapshot | None:
        try:
            return await topic.newest()
        except SnapshotTopicError as error:
            metrics.snapshot_failures.labels("read").inc()
            log.warning("no snapshot can be read; the router reads the log from its beginning", reason=str(error))
            return None

    async def _home_access(self) -> ClusterAccess:
        return await cluster_access(self._settings.home_bootstrap_servers, self._settings.home_security)

    async def _is_renewed(self, home: ClusterAccess) -> bool:
        """Whether the cluster accepts the present secrets, and no longer those of this reading."""
        if self._settings.home_security == ConnectionSecurity() or time.monotonic() < self._next_knock:
            return False
        self._next_knock = time.monotonic() + KNOCK_INTERVAL
        reason = await why_kept_out(home)
        if not reason:
            return False
        try:
            reason = await why_kept_out(await self._home_access())
        except ClusterAccessError as error:
            reason = str(error)
        if reason:
            log.warning("the home cluster does not let the router in", reason=reason, next_try_s=KNOCK_INTERVAL)
        return not reason

    def _look_for_silence(self, last_answer: float) -> None:
        seconds = max(0.0, time.time() - last_answer)
        metrics.silence.set(seconds)
        if self._silent and seconds <= LONGEST_SILENCE:
            self._silent = False
            log.info("home cluster answers again")
            self._readiness.in_touch()
        elif seconds > LONGEST_SILENCE and (not self._silent or time.monotonic() >= self._next_sending_away):
            self._silent = True
            log.warning(
                "the home cluster does not answer; the router serves the tables that it has", seconds=round(seconds, 1)
            )
            self._send_away(f"the home cluster has not answered for {seconds:.0f} s")

    def _look_for_failures(self, reason: str) -> None:
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if now - self._failing_since > LONGEST_SILENCE and now >= self._next_sending_away:
            self._send_away(reason)

    def _send_away(self, reason: str) -> None:
        self._next_sending_away = time.monotonic() + SEND_AWAY_INTERVAL
        self._readiness.cut_off(reason)

    def _look_at_chain(self, ledger: Ledger) -> None:
        if ledger.changed_at and ledger.changed_at != self._changed_at:
            log.error(
                "the log was changed: an event does not fit the event after it; run kafka-mesh verify-log",
                position=ledger.changed_at,
            )
        self._changed_at = ledger.changed_at
        metrics.changed_at.set(ledger.changed_at)

    def _look_at_signatures(self, ledger: Ledger) -> None:
        if ledger.vouching is None:
            return
        unsigned = ledger.vouching.waiting
        if unsigned > self._unsigned:
            log.error(
                "events that control has not signed do not count; run kafka-mesh verify-log",
                events=unsigned,
                behind_position=ledger.position,
                reason=ledger.vouching.reason,
            )
        self._unsigned = unsigned
        metrics.unsigned.set(unsigned)
        refused, before = ledger.vouching.refused, self._refused
        if refused.records > before:
            log.error(
                "records of the log that control has not written are refused; run kafka-mesh verify-log",
                records=refused.records,
                last_offset=refused.offset,
                reason=refused.reason,
            )
            metrics.refused_records.inc(refused.records - before)
        self._refused = refused.records

    def _heed(self, ledger: Ledger, folded: Folded | None, writer: SnapshotWriter) -> None:
        """Posts new states. The first state of a reading is none of its own: it is as old as its last event."""
        if not ledger.caught_up:
            return
        if self._live is not ledger:
            if ledger.vouching is not None and not ledger.vouching.has_begun:
                metrics.unsigned.set(ledger.vouching.waiting)
                raise UnsignedLogError(
                    f"control has signed none of the {ledger.vouching.waiting} events ({ledger.vouching.reason}): give "
                    "control a certificate of the role control; while it has none, set unsigned_log to accept"
                )
            if not self._bulletin.post(ledger.state):
                self._readiness.not_ready(f"the log ends at position {ledger.state.position}, before what was served")
                return
            self._live = ledger
            self._takes_snapshots = True
            if self._failing_since is not None:
                self._failing_since = None
                self._readiness.in_touch()
            metrics.caught_up_after.set(time.monotonic() - self._began)
            self._readiness.ready()
        elif folded is not None and folded.moves:
            self._bulletin.post(ledger.state, folded.decided_at)
        self._has_read_on()
        self._rule_book.post(RulePage(ledger.record_rules, ledger.state.effective.clusters, ledger.state.position))
        metrics.position.set(ledger.position)
        writer.note(ledger.position)
