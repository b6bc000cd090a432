"""Commands about replays: users start and cancel them, members report about them.

The leading control assigns replays to members and records their progress. It carries out seeks and resets itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import structlog
from prometheus_client import Counter, Gauge

from mesh.rpc import events, replays
from services.control.decisions.replays.followers import ReplayFollowers
from services.control.decisions.replays.plans import Plan, ReplayPlans
from services.control.decisions.replays.progress import COMING_BACK, ReplayProgress
from services.control.decisions.replays.resets import OffsetResets
from services.control.decisions.short_ids import new_id
from services.control.decisions.sidecars.orders import SidecarOrders
from services.control.domain.errors import Conflict, Refusal, Unknown
from services.control.domain.replays.assignment import choose
from services.control.domain.replays.checks import checked, is_of_control, is_of_pipelines
from services.control.domain.replays.course import totals_of, without_partitions
from services.control.domain.replays.profiles import TopicProfile
from services.control.domain.replays.replays import (
    ENDS,
    REPLAYS,
    WORDS,
    cancelled,
    check_report,
    check_room,
    ended,
    gone_on_from,
    has_to_be_told,
    progressed,
    started,
    wanted_member,
)
from services.control.domain.sidecars.commands import SIDECARS
from services.control.domain.view import MeshView
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer
from services.control.store.reports import Reports
from services.control.upstream.connections import Connections

LOOK_EVERY = 1.0
"""The longest time in seconds between two checks of the open replays."""
AGAIN_AFTER = 2.0
"""Seconds after which control tries a step again that failed for reasons of control's own."""
CANCEL_WITHIN = 60.0
"""Seconds for a member to report where it stopped a cancelled replay; then control ends the replay."""
MOST_NAMED = 20

ReplayEvent = events.ReplayAssigned | events.ReplayProgressed | events.ReplayCancelOrdered | events.ReplayEnded
Answer = Callable[[replays.Replay], StoredAnswer | None]
"""The answer to store for a request_id, given the replay."""

log = structlog.get_logger(__name__)
ended_total = Counter("kafka_mesh_control_replays_total", "Replays that came to an end.", ["destination", "outcome"])
open_gauge = Gauge("kafka_mesh_control_replays_open", "Replays that have not ended.", ["state"])


class ReplayDecisions:
    """The decisions about replays."""

    def __init__(
        self,
        journal: Journal,
        reports: Reports,
        orders: SidecarOrders,
        connections: Connections,
    ) -> None:
        self.followers = ReplayFollowers(journal, orders.sidecars)
        self.progress = ReplayProgress(journal, reports, self.followers)
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._journal = journal
        self._reports = reports
        self._sidecars = orders.sidecars
        self._plans = ReplayPlans(journal, reports, connections, orders.sidecars)
        self._resets = OffsetResets(journal, reports, self._plans, orders, connections)
        self._leading_since = 0.0
        self._stirred = asyncio.Event()
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._cancelling_since: dict[str, float] = {}
        self.followers.on_change = self._stirred.set

    def began_to_lead(self) -> None:
        """Marks the beginning of the lead: from now on, members can follow."""
        self._leading_since = _now()

    async def start(self, request: replays.StartReplayRequest, caller: Caller, answer: Answer) -> replays.Replay:
        """The replay, pending; a dry run of a seek or a reset has ended at once, and is not kept."""
        view = await self._journal.first_time(caller)
        known = view.replays
        identifier = new_id(REPLAYS, known.open, known.ended)
        name, spec = f"{REPLAYS}/{identifier}", checked(request.spec, identifier)
        check_room(known, spec)
        self._check_sidecar(spec)
        plan = await self._plans.of(spec) if is_of_control(spec) else Plan([])
        places = await self._plans.places(spec) if is_of_pipelines(spec) else []
        event = started(
            known, name, spec, caller.actor, caller.reason, self.clock(), plan.partitions,
            plan.stopped, places,
        )  # fmt: skip
        event.replay.description = plan.note
        if is_of_control(spec) and spec.dry_run:
            return _counted(event.replay)
        before = gone_on_from(known, spec)
        new, *_ = await self._journal.append(
            [Draft(name, each) for each in (event, *progressed(name, before, totals_of(before)))],
            caller,
            view,
            rests_on=lambda view: view.replays.open.keys(),
            answer=lambda new, _: answer(new[0].replay_started.replay),
        )
        self._stirred.set()
        return new.replay_started.replay

    async def cancel(self, name: str, caller: Caller, answer: Answer) -> replays.Replay:
        """The replay, which is to end or has ended."""
        view = await self._journal.first_time(caller)
        event = cancelled(view.replays, name, "before anybody carried it out")
        if event is not None:
            await self._append(name, [event], caller, view, answer)
            self._stirred.set()
        return self.progress.in_brief(self._journal.view.replays.get(name))

    async def report(self, request: replays.ReportReplayRequest, member: str, caller: Caller) -> None:
        """Takes a member's report about a replay."""
        self._journal.require_leading()
        await self._journal.catch_up()
        known = self._journal.view.replays
        open_one = known.open.get(request.name)
        said = () if open_one is None else self.progress.course(open_one).partitions.keys()
        replay = check_report(known, request, member, said, self.progress.partitions_open)
        if replay is None:
            return
        self.progress.note(replay, request.partitions)
        if request.state not in ENDS:
            self._stirred.set()
            return
        await self._end(replay, self._ending(replay, request.state, request.description, request.profiles), caller)

    async def run(self) -> None:
        """Runs for ever; does nothing while another control leads."""
        try:
            while True:
                self._stirred.clear()
                if self._journal.why_not_leading:
                    self._stop_workers()
                    self._reports.forget_progress(self._journal.view.replays.ended)
                else:
                    await self._look()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY):
                        await self._stirred.wait()
        finally:
            self._stop_workers()

    async def _look(self) -> None:
        known = self._journal.view.replays
        for state in (replays.REPLAY_STATE_PENDING, replays.REPLAY_STATE_RUNNING):
            open_gauge.labels(WORDS[state]).set(sum(each.state == state for each in known.open.values()))
        self.progress.keep_only(known.open.keys())
        self._cancelling_since = {name: at for name, at in self._cancelling_since.items() if name in known.open}
        for replay in known.open.values():
            try:
                await self._see_to(replay)
            except (Refusal, StoreUnavailableError, TimeoutError) as error:
                log.info(
                    "control checks a replay again later, as this check failed", replay=replay.name, reason=str(error)
                )
        try:
            await self._reports.drop_progress(known.ended)
        except (StoreUnavailableError, TimeoutError) as error:
            log.info("how far replays were that have ended is forgotten later", reason=str(error))
        if known.stopped:
            try:
                await self._resets.let_go_on()
            except (Refusal, StoreUnavailableError, TimeoutError) as error:
                log.warning("instances that a replay has stopped can't go on yet", reason=str(error))

    async def _see_to(self, replay: replays.Replay) -> None:
        if not has_to_be_told(replay):
            if replay.name not in self._workers:
                self._workers[replay.name] = asyncio.create_task(self._carry_out(replay), name=replay.name)
            return
        member = replay.member.removeprefix(SIDECARS)
        if replay.cancelling and self._has_nobody_to_end(replay, member):
            text = f"{member} did not say where it stopped; what its group has committed in Kafka is where"
            end = self._ending(replay, replays.REPLAY_STATE_CANCELLED, text)
            await self._end(replay, end, Caller(CONTROL, "its member is silent"))
            return
        if not member or (not wanted_member(replay.spec) and not self._is_there(member)):
            await self._assign(replay, member)
        await self._write_progress(replay)

    async def _assign(self, replay: replays.Replay, gone: str) -> None:
        load = self.progress.load()
        there = [each for each in self.followers.candidates() if each.member != gone]
        member = choose(replay, there, self.progress.readers(), load)
        if member is None:
            return
        why = f"{gone} does not follow its replays any more" if gone else ""
        event = events.ReplayAssigned(name=replay.name, member=f"{SIDECARS}{member}")
        await self._append(replay.name, [event], Caller(CONTROL, why), self._journal.view)
        log.info("a replay has a member", replay=replay.name, member=member, before=gone)
        self.progress.tell()

    async def _write_progress(self, replay: replays.Replay) -> None:
        changed = self.progress.to_be_written(replay)
        if not changed:
            return
        totals = self.progress.course(replay).totals
        report = events.ReplayProgressed(name=replay.name, partitions=changed, totals=totals)
        await self._reports.add(replay.name, replay.member.removeprefix(SIDECARS), lambda _known: report)
        self.progress.written(replay.name)

    def _ending(
        self,
        replay: replays.Replay,
        state: replays.ReplayState.ValueType,
        text: str,
        profiles: Iterable[TopicProfile] = (),
    ) -> list[ReplayEvent]:
        """The events that end a member's replay, with all partitions that are newer than in the log."""
        course = self.progress.course(replay)
        news = course.beyond(replay.partitions)
        *before, last = progressed(replay.name, news, course.totals) or [events.ReplayProgressed()]
        return [*before, ended(replay.name, state, text, last.partitions, course.totals, profiles)]

    async def _carry_out(self, replay: replays.Replay) -> None:
        """Carries out a seek or a reset, from any point of its course."""
        try:
            if not replay.member:
                await self._append(
                    replay.name,
                    [events.ReplayAssigned(name=replay.name, member=CONTROL)],
                    Caller(CONTROL),
                    self._journal.view,
                )
            end = await self._resets.carry_out(replay)
            await self._end(replay, [end], Caller(CONTROL))
        except (Refusal, StoreUnavailableError, TimeoutError) as error:
            log.warning("a replay is tried again", replay=replay.name, reason=str(error))
            await asyncio.sleep(AGAIN_AFTER)
        except Exception:
            log.exception("a replay failed", replay=replay.name)
            text = "control failed at it; its log says how"
            with suppress(Refusal, StoreUnavailableError, TimeoutError):
                await self._end(replay, [ended(replay.name, replays.REPLAY_STATE_FAILED, text)], Caller(CONTROL))
            await asyncio.sleep(AGAIN_AFTER)
        finally:
            self._workers.pop(replay.name, None)
            self._stirred.set()

    async def _end(self, replay: replays.Replay, ending: Sequence[ReplayEvent], caller: Caller) -> None:
        """Ends the replay once: a second caller finds the replay ended."""
        end = ending[-1]
        assert isinstance(end, events.ReplayEnded)
        while replay.name in self._journal.view.replays.open:
            try:
                await self._append(replay.name, ending, caller, self._journal.view)
            except Conflict:
                continue  # the replay has progressed, or is cancelled
            label = WORDS[end.state]
            ended_total.labels(replay.spec.WhichOneof("destination"), label).inc()
            log.info("a replay came to its end", replay=replay.name, outcome=label, description=end.description)
            self.progress.tell()

    async def _append(
        self,
        name: str,
        new: Sequence[ReplayEvent],
        caller: Caller,
        view: MeshView,
        answer: Answer = lambda _replay: None,
    ) -> None:
        await self._journal.append(
            [Draft(name, event) for event in new],
            caller,
            view,
            rests_on=lambda view: view.replays.open.get(name),
            answer=lambda _new, view: answer(without_partitions(view.replays.get(name))),
        )

    def _has_nobody_to_end(self, replay: replays.Replay, member: str) -> bool:
        since = self._cancelling_since.setdefault(replay.name, _now())
        return not self._is_there(member) or _now() - since > CANCEL_WITHIN

    def _is_there(self, member: str) -> bool:
        """Whether the member is connected. Just after control took the lead, every member counts as connected."""
        return self.followers.is_there(member) or _now() - self._leading_since < COMING_BACK

    def _check_sidecar(self, spec: replays.ReplaySpec) -> None:
        """Refuses a sidecar that nobody has heard of: its name is mistyped. A pipeline may connect later."""
        sidecar = "" if is_of_pipelines(spec) else wanted_member(spec)
        if not sidecar or self.followers.is_known(sidecar) or sidecar in self._sidecars.known():
            return
        named = ", ".join(sorted(self._sidecars.known())[:MOST_NAMED]) or "none"
        raise Unknown(f"{SIDECARS}{sidecar}", f"no sidecar {sidecar!r} has been heard of (known: {named})")

    def _stop_workers(self) -> None:
        for task in self._workers.values():
            task.cancel()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _counted(replay: replays.Replay) -> replays.Replay:
    """The answer to a dry run."""
    replay.ClearField("name")
    replay.state = replays.REPLAY_STATE_DONE
    replay.description = replay.description or "only counted: nothing was set"
    return replay
