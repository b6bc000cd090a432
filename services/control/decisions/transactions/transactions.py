"""Transactions over all clusters: reads their state, finishes a decided one, aborts an undecided one.

Theory of operation
1. Control does what any gateway may do, by the same rules (`domain/transactions`). It keeps no state of its own.
2. Control reads the states of an id first and the logs of decisions after that. If home is not open in the states,
   every decision of its transaction is in the log.
3. An abort ends the transaction first at the cluster that decides, under the exact identity that was seen. Then nobody
   can decide its commit any more. If home had committed meanwhile, its coordinator refuses the abort, and control
   aborts nothing. Control reads the logs again before it aborts the other parts, each under its exact identity.
4. The abort fences the producer by taking the place of its identity (KIP-360), on the deciding cluster first. A
   producer that began meanwhile has another identity, and is not fenced.
5. The order is an event before anything is done. A second call with the same request_id goes on with the order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

import structlog

from mesh.routing import UpstreamCluster
from mesh.rpc import events, transactions
from mesh.transactions import OPEN, SECOND_PROTOCOL_SINCE, Decision, Identity, TransactionLog
from services.control.decisions.answers import replayed, stored_response
from services.control.domain.errors import Conflict, Unavailable
from services.control.domain.transactions.transactions import (
    TRANSACTIONS,
    CoordinatorState,
    SeenTransaction,
    Sole,
    Standing,
    Undone,
)
from services.control.domain.view import MeshView
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import AlreadyAnswered, Journal
from services.control.upstream.broker_connections import CoordinatorRefusedError
from services.control.upstream.connections import UnreachableError
from services.control.upstream.transactions import TransactionCoordinators

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Transactions:
    """See above."""

    def __init__(self, journal: Journal, coordinators: TransactionCoordinators) -> None:
        self._journal = journal
        self._coordinators = coordinators

    # --- looking -------------------------------------------------------------------------------------------------

    async def look(self, transactional_id: str) -> SeenTransaction:
        """The id on all clusters. Clusters that can't be asked are named in it."""
        (found,), _ = await self._seen([transactional_id], {})
        return found

    async def open(self, id_prefix: str, *, ended: bool) -> tuple[list[SeenTransaction], Mapping[str, str]]:
        """The transactions that are not ended, or all; and the clusters that could not be asked, with the reason."""
        states = () if ended else sorted(OPEN)
        listed, away = await self._everywhere(lambda cluster: self._coordinators.listed(cluster, states))
        wanted = sorted({each for ids in listed.values() for each in ids if each.startswith(id_prefix)})
        return await self._seen(wanted, away)

    async def _seen(
        self, transactional_ids: list[str], away: Mapping[str, str]
    ) -> tuple[list[SeenTransaction], Mapping[str, str]]:
        if not transactional_ids:
            return [], away
        states, no_state = await self._everywhere(lambda cluster: self._coordinators.states(cluster, transactional_ids))
        logs, no_log = await self._everywhere(self._coordinators.log)
        unasked = {**away, **no_log, **no_state}
        table = self._journal.view.state.effective
        ordinals = {cluster.ordinal: name for name, cluster in table.clusters.items()}
        return [
            SeenTransaction(
                each,
                self._home_of(each),
                known := {cluster: found[each] for cluster, found in states.items() if each in found},
                _decisions_on(each, logs, known),
                ordinals,
                unasked,
            )
            for each in transactional_ids
        ], unasked

    def _home_of(self, transactional_id: str) -> str:
        table = self._journal.view.state.effective
        rule = table.transaction_rule(transactional_id)
        if rule is not None:
            return rule.target_cluster
        return "" if table.home is None else table.home.name

    async def _everywhere(self, ask: Callable[[UpstreamCluster], Awaitable[T]]) -> tuple[dict[str, T], dict[str, str]]:
        """The answers of all clusters, and the reasons of those that gave none."""
        clusters = self._journal.view.state.effective.clusters

        async def one(cluster: UpstreamCluster) -> T | UnreachableError | CoordinatorRefusedError:
            try:
                return await ask(cluster)
            except (UnreachableError, CoordinatorRefusedError) as error:
                return error

        answers = await asyncio.gather(*(one(cluster) for cluster in clusters.values()))
        told = dict(zip(clusters, answers, strict=True))
        errors = {name: str(each) for name, each in told.items() if isinstance(each, Exception)}
        return {name: each for name, each in told.items() if not isinstance(each, Exception)}, errors

    # --- ending --------------------------------------------------------------------------------------------------

    async def finish(self, transactional_id: str, caller: Caller) -> transactions.EndTransactionResponse:
        """Commits what is still open of a decided transaction."""
        return await self._end(transactional_id, caller, commit=True)

    async def abort(self, transactional_id: str, caller: Caller) -> transactions.EndTransactionResponse:
        """Aborts an undecided transaction and fences its producer."""
        return await self._end(transactional_id, caller, commit=False)

    async def _end(self, transactional_id: str, caller: Caller, *, commit: bool) -> transactions.EndTransactionResponse:
        try:
            view = await self._journal.first_time(caller)
        except AlreadyAnswered as again:
            answer = replayed(transactions.EndTransactionResponse, again.answer)
            return await self._go_on(transactional_id, answer, commit=commit)
        seen = await self.look(transactional_id)
        seen.require_finishable() if commit else seen.require_abortable()
        answer = transactions.EndTransactionResponse(revision=await self._order(seen, caller, view, commit=commit))
        answer.outcome = await self._carry_out(seen, commit=commit)
        return answer

    async def _order(self, seen: SeenTransaction, caller: Caller, view: MeshView, *, commit: bool) -> int:
        """The position of the event that orders this end."""
        order = events.TransactionEndOrdered(
            transactional_id=seen.transactional_id,
            commit=commit,
            home_cluster=seen.origin,
            parts=[
                events.EndedTransactionPart(
                    cluster=cluster, producer_id=state.identity.producer_id, producer_epoch=state.identity.epoch
                )
                for cluster, state in seen.open_parts.items()
            ],
        )
        (event,) = await self._journal.append(
            [Draft(f"{TRANSACTIONS}/{seen.transactional_id}", order)],
            caller,
            view,
            rests_on=lambda view: view.state.effective.clusters,
            answer=lambda new, _: stored_response(
                caller, transactions.EndTransactionResponse(revision=new[0].position)
            ),
        )
        return event.position

    async def _go_on(
        self, transactional_id: str, answer: transactions.EndTransactionResponse, *, commit: bool
    ) -> transactions.EndTransactionResponse:
        """The same order again: what is left of it is done; nothing, if nothing is left."""
        seen = await self.look(transactional_id)
        if seen.standing is Standing.ENDED and not seen.unasked:
            answer.outcome = "was done before"
            return answer
        seen.require_finishable() if commit else seen.require_abortable()
        answer.outcome = await self._carry_out(seen, commit=commit)
        return answer

    async def _carry_out(self, seen: SeenTransaction, *, commit: bool) -> str:
        try:
            return await (self._commit(seen) if commit else self._abort(seen))
        except (UnreachableError, CoordinatorRefusedError) as error:
            raise Unavailable(
                "CLUSTER_UNREACHABLE",
                f"the end of transaction {seen.transactional_id!r} is ordered, and not carried out everywhere: "
                f"{error}. "
                "Describe the transaction, then give the order again",
            ) from None

    async def _commit(self, seen: SeenTransaction) -> str:
        done: list[str] = []
        for undone in seen.undone:
            done += await self._commit_parts(seen.transactional_id, undone)
        sole = seen.sole
        if not seen.undone and sole is not None:
            await self._end_at_origin(seen, sole)
            done.append(sole.origin)
        log.info("a decided transaction was finished", transactional_id=seen.transactional_id, committed_on=done)
        return f"committed on {', '.join(done)}"

    async def _commit_parts(self, transactional_id: str, undone: Undone) -> list[str]:
        """The clusters where the decided commit was carried out now."""
        second = undone.decision.version >= SECOND_PROTOCOL_SINCE
        done = []
        for cluster, identity in undone.open_parts.items():
            if await self._coordinators.end(
                self._cluster(cluster), transactional_id, identity, commit=True, second=second
            ):
                done.append(cluster)
        return done

    async def _end_at_origin(self, seen: SeenTransaction, sole: Sole) -> None:
        identity = seen.states[sole.origin].identity
        second = sole.is_second_protocol
        await self._coordinators.end(
            self._cluster(sole.origin), seen.transactional_id, identity, commit=True, second=second
        )

    async def _abort(self, seen: SeenTransaction) -> str:
        transactional_id, origin = seen.transactional_id, seen.origin
        decides = seen.states.get(origin)
        if decides is not None:
            if decides.is_open and not await self._abort_on(origin, transactional_id, decides.identity):
                raise Conflict(
                    "CHANGED_MEANWHILE",
                    f"transaction {transactional_id!r} has ended on {origin}, which decides, before it could be "
                    "aborted; look again",
                )
            await self._fence(origin, transactional_id, decides)
        again = await self.look(transactional_id)
        if again.unasked:
            raise UnreachableError("; ".join(again.unasked.values()))
        finished = [
            cluster for undone in again.undone for cluster in await self._commit_parts(transactional_id, undone)
        ]
        done = [origin] if decides is not None and decides.is_open else []
        for cluster, state in seen.open_parts.items():
            if cluster == origin or cluster in finished:
                continue
            if await self._abort_on(cluster, transactional_id, state.identity):
                done.append(cluster)
            await self._fence(cluster, transactional_id, state)
        log.info("an operator aborted a transaction", transactional_id=transactional_id, aborted_on=done)
        said = f"aborted on {', '.join(done)}; its producer is fenced" if done else "nothing was left to abort"
        return f"{said}; committed on {', '.join(finished)}, as was decided before" if finished else said

    async def _abort_on(self, cluster: str, transactional_id: str, identity: Identity) -> bool:
        return await self._coordinators.end(
            self._cluster(cluster), transactional_id, identity, commit=False, second=False
        )

    async def _fence(self, cluster: str, transactional_id: str, state: CoordinatorState) -> None:
        await self._coordinators.fence(self._cluster(cluster), transactional_id, state.identity, state.timeout_ms)

    def _cluster(self, name: str) -> UpstreamCluster:
        found = self._journal.view.state.effective.clusters.get(name)
        if found is None:
            raise UnreachableError(f"cluster {name!r} is not registered any more")
        return found


def _decisions_on(
    transactional_id: str, logs: Mapping[str, TransactionLog], states: Mapping[str, CoordinatorState]
) -> dict[str, tuple[Decision, ...]]:
    """Also those whose marker is missing, if home says that it has committed them (`mesh.transactions.log`, 1)."""
    found = {}
    for home, log in logs.items():
        found[home] = log.decisions_on(transactional_id)
        if (told := states.get(home)) is not None:
            unmarked = log.written_about(transactional_id)
            found[home] += tuple(each for each in unmarked if each.is_committed(told.state, told.identity))
    return {home: decisions for home, decisions in found.items() if decisions}


def now_ms() -> int:
    """The time of day, in ms since 1970."""
    return round(time.time() * 1000)


def late(found: Iterable[SeenTransaction], older_than_ms: int | None) -> list[SeenTransaction]:
    """Those that are open for too long."""
    return [each for each in found if each.is_late(now_ms(), older_than_ms)]
