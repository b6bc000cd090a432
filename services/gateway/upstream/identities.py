"""Connections to one cluster by the identity of the client, where the cluster does not take all clients for the mesh.

Theory of operation
1. A client's calls take connections that are logged in for this client's principal, and that belong to this client
   connection alone. Nothing is shared, not even the connection for short questions. The gateway's own work (`by_mesh`)
   keeps the identity of the cluster's own properties.
2. Each principal has its `IdentityBrokers`: keys, an incarnation (so that lanes never mix identities), and the rest
   after a refused login. A refused login is tried again after a pause that doubles. Meanwhile calls fail at once with
   `refused`, and clients get the error of a broker whose ACLs allow them nothing (`authorization.alone`).
3. A principal's connections end when its credential changes: by the table, or because a file that it refers to is
   another one. The gateway checks the files each `LOOK_S`. Sent requests have `END_S` for their answers.
4. Connections that carry nothing for `IDLE_S` end. A principal without connections is forgotten. The number of
   connections to a cluster has a bound; beyond it calls fail, and the clients try again.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

import structlog

from mesh.connection_security import (
    ConnectionSecurity,
    ExchangedTokenLogin,
    IssuedTokenLogin,
    credential_properties,
    file_places,
)
from mesh.routing import IdentityFallback, IdentityMode, UpstreamCluster, UpstreamIdentity
from services.gateway import metrics
from services.gateway.authentication.principal import Principal
from services.gateway.requests.knowledge import BrokerAddress
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import Lane, RawResponse, Sent, Unreachable
from services.gateway.upstream.awaiting import Settle
from services.gateway.upstream.brokers import Brokers, Parts
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.keyring import ExchangedTokenKeyring, Keyring, TokenKeyring
from services.gateway.upstream.lanes import LaneKey, Lanes
from services.gateway.upstream.security import cluster_properties
from services.gateway.upstream.shared import Pool

log = structlog.get_logger(__name__)

LOOK_S: Final = 0.5
IDLE_S: Final = 300.0
FORGET_S: Final = 60.0
"""A principal without connections is forgotten after this time."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Between attempts to log in by a refused credential."""
TOLD_S: Final = 60.0
"""A principal whose calls are refused has one line in the log in this time."""
CHANGED: Final = "the identity of the client at this cluster has changed"
IDLE: Final = "nothing was sent for long"
FULL: Final = "the gateway has no more connections for clients' identities at this cluster"

Stamp = tuple[tuple[int, int, int] | None, ...]
"""The state of the files of a credential."""


class IdentityBrokers(Brokers):
    """The connections of one principal, or of one client whose token is passed on."""

    def __init__(
        self, parts: Parts, keyring: Keyring, whose: "Identities", proved: Principal, *, by_token: bool
    ) -> None:
        """`by_token`: the client's own token is passed on."""
        super().__init__(parts, keyring)
        keyring.on_refused = self._refused
        self.proved = proved
        self.by_token = by_token
        self.refusal: str | None = None
        """Why the last login was refused; None after one that was not."""
        self._whose = whose
        self._until = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._sent: dict[BrokerConnection, tuple[int, float]] = {}
        """The number of the last request of each connection, as checked last, and the time since then."""

    def pool(self, broker_id: int) -> Pool | None:
        return None

    def connection(self, broker_id: int, lane: Lane, lanes: Lanes) -> BrokerConnection | Unreachable:
        if self.refusal is not None and self._loop.time() < self._until:
            return Unreachable(self._cluster, self.refusal, never_sent=True, refused=True)
        lane = Lane.CLIENT if lane is Lane.SHARED else lane
        own = lanes.get(LaneKey(self.incarnation, broker_id, lane))
        if own is not None:
            return own
        if not self._whose.has_room():
            return Unreachable(self._cluster, FULL, never_sent=True)
        return super().connection(broker_id, lane, lanes)

    async def _opened(self, connection: BrokerConnection, address: BrokerAddress) -> None:
        await super()._opened(connection, address)
        if connection.fault is None and connection.ended is None:
            self.refusal, self._pause_s = None, FIRST_PAUSE_S

    def _refused(self, reason: str) -> None:
        now = self._loop.time()
        metrics.identity_refusals.labels(self._cluster, "login").inc()
        if now >= self._until:
            log.warning(
                "a cluster refuses the credential of a client, and the other clients go on",
                cluster=self._cluster,
                principal=str(self.proved),
                reason=reason,
                again_in_s=self._pause_s,
            )
            self._until = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self.refusal = reason

    def judged(self, settle: Settle) -> Settle:
        """The outcome of a call that waited for a login which was then refused says so."""

        def judge(outcome: RawResponse | Unreachable | Sent, owned: bool) -> None:
            if isinstance(outcome, Unreachable) and outcome.never_sent and self.refusal is not None:
                outcome = replace(outcome, reason=self.refusal, refused=True)
            settle(outcome, owned)

        return judge

    def end_idle(self, now: float) -> int:
        """The number of connections that are left."""
        before, self._sent = self._sent, {}
        for each in self.living():
            sent, since = before.get(each, (-1, now))
            if each.sent_requests != sent or each.in_flight or each.still_missing:
                sent, since = each.sent_requests, now
            if now - since >= IDLE_S:
                each.shut(IDLE)
            else:
                self._sent[each] = (sent, since)
        return len(self._sent)


@dataclass(slots=True)
class _Entry:
    brokers: IdentityBrokers
    security: ConnectionSecurity
    files: tuple[str, ...]
    stamp: Stamp
    used_at: float


class Identities:
    """The identities of clients at one cluster."""

    def __init__(self, spec: UpstreamCluster, parts: Parts, most: int, on_change: Callable[[], None]) -> None:
        """`on_change` is called when connections of an identity must not be used any more."""
        self._cluster = spec.name
        self._parts = parts
        self._most = most
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._policy: UpstreamIdentity | None = None
        self._own = ConnectionSecurity()
        self._securities: dict[str, ConnectionSecurity] = {}
        self._base: Mapping[str, str] = {}
        self._entries: dict[object, _Entry] = {}
        self._told: dict[str, float] = {}
        self._connections = 0
        self._looking: asyncio.Task[None] | None = None
        metrics.identities.labels(spec.name).set_function(lambda: len(self._entries))
        metrics.identity_connections.labels(spec.name).set_function(lambda: self._connections)
        self.follow(spec)

    def follow(self, spec: UpstreamCluster) -> None:
        """Credentials that have changed end their connections."""
        self._policy = spec.identity
        self._base = cluster_properties(spec)
        self._own = ConnectionSecurity.of(self._base)
        self._securities.clear()
        changed = [
            key
            for key, each in self._entries.items()
            if self._wanted(each.brokers.proved, by_token=each.brokers.by_token) != each.security
        ]
        for key in changed:
            self._entries.pop(key).brokers.end_clients(CHANGED)
        if changed:
            self._on_change()
        if self._policy is None and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def leave(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for entry in self._entries.values():
            await entry.brokers.leave()
        self._entries.clear()

    def give_way(self) -> None:
        for entry in self._entries.values():
            entry.brokers.give_way()

    # --- whose connections a call takes ------------------------------------------------------------------------------

    def brokers_of(self, session: Session) -> IdentityBrokers | Unreachable:
        """The connections of this client; else the reason why it has none."""
        by_token = session.token is not None and self._passes
        key: object = session.number if by_token else session.proved
        entry = self._entries.get(key)
        if entry is None:
            wanted = self._wanted(session.proved, by_token=by_token)
            if wanted is None:
                return self._without(str(session.proved))
            entry = self._entries[key] = self._made(session, wanted, by_token=by_token)
        entry.used_at = self._loop.time()
        return entry.brokers

    @property
    def _passes(self) -> bool:
        """Whether clients are known by their own tokens, or by those that the issuer gives for them."""
        return self._policy is not None and self._policy.mode.is_by_token

    def _wanted(self, proved: Principal, *, by_token: bool) -> ConnectionSecurity | None:
        """How this client's connections are secured; None: it has no identity here."""
        policy = self._policy
        if policy is None:
            return None
        if by_token:
            return ConnectionSecurity(self._own.tls, self._exchanged(policy)) if self._passes else None
        found = policy.credential_of(str(proved), proved.groups)
        if found is None:
            return self._own if policy.fallback is IdentityFallback.MESH else None
        name = str(found)
        security = self._securities.get(name)
        if security is None:
            security = ConnectionSecurity.of(credential_properties(self._base, found.properties))
            self._securities[name] = security
        return security

    def _exchanged(self, policy: UpstreamIdentity) -> ExchangedTokenLogin | None:
        """The login by exchanged tokens, in that mode; the client's token is still to come."""
        own = self._own.login
        if policy.mode is not IdentityMode.EXCHANGE or not isinstance(own, IssuedTokenLogin):
            return None
        said = {each.name: getattr(own, each.name) for each in fields(IssuedTokenLogin)}
        return ExchangedTokenLogin(**said, audience=policy.audience)

    def _made(self, session: Session, security: ConnectionSecurity, *, by_token: bool) -> _Entry:
        keyring: Keyring
        if not by_token:
            keyring = Keyring(self._cluster, security)
        elif isinstance(security.login, ExchangedTokenLogin):
            keyring = ExchangedTokenKeyring(self._cluster, security, security.login, session)
        else:
            keyring = TokenKeyring(self._cluster, security, session)
        brokers = IdentityBrokers(self._parts, keyring, self, session.proved, by_token=by_token)
        if self._looking is None:
            self._looking = self._loop.create_task(self._look(), name=f"look at identities of {self._cluster}")
        files = file_places(security)
        return _Entry(brokers, security, files, _stamp(files), self._loop.time())

    def _without(self, principal: str) -> Unreachable:
        lacks = "takes the tokens of clients, and this one has none" if self._passes else "has no credential for it"
        reason = f"cluster {self._cluster} {lacks} (meshctl cluster identity show {self._cluster})"
        metrics.identity_refusals.labels(self._cluster, "none").inc()
        now = self._loop.time()
        if now - self._told.get(principal, -TOLD_S) >= TOLD_S:
            self._told = {name: at for name, at in self._told.items() if now - at < TOLD_S}
            if len(self._told) < self._most:
                self._told[principal] = now
                log.warning("a client has no identity at a cluster", principal=principal, reason=reason)
        return Unreachable(self._cluster, reason, never_sent=True, refused=True)

    def has_room(self) -> bool:
        """Whether one more connection may be opened."""
        if self._connections >= self._most:
            metrics.identity_refusals.labels(self._cluster, "bound").inc()
            return False
        self._connections += 1
        return True

    # --- changes of files, and idle connections ----------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now = self._loop.time()
            self._connections = sum(entry.brokers.end_idle(now) for entry in self._entries.values())
            watched = [(key, entry) for key, entry in self._entries.items() if entry.files]
            stamps = await asyncio.to_thread(lambda files: list(map(_stamp, files)), [e.files for _, e in watched])
            renewed = False
            for (key, entry), stamp in zip(watched, stamps, strict=True):
                if stamp != entry.stamp and None not in stamp and self._entries.get(key) is entry:
                    del self._entries[key]
                    entry.brokers.end_clients(CHANGED)
                    renewed = True
            for key in [key for key, entry in self._entries.items() if self._is_forgotten(entry, now)]:
                del self._entries[key]
            if renewed:
                self._on_change()

    def _is_forgotten(self, entry: _Entry, now: float) -> bool:
        return now - entry.used_at >= FORGET_S and not entry.brokers.living()


def _stamp(files: tuple[str, ...]) -> Stamp:
    """Other values as soon as a file is another one; None for a file that is not there."""
    stamp: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            found = Path(file).stat()
        except OSError:
            stamp.append(None)
        else:
            stamp.append((found.st_ino, found.st_mtime_ns, found.st_size))
    return tuple(stamp)
