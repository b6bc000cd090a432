"""The quotas in force, and the accounts on which the uses of clients are counted.

Theory of operation
1. Clients that share a quota (`Limit.sharers`) share an account. Each connection keeps the accounts of its client, and
   looks them up again when the policy or the client has changed (`edition`).
2. A use is added to the account's `pending`, which is measured when it exceeds the room that the last measurement has
   found, or when the sample ends (`mesh.quotas.rate`). So most uses cost an addition and two comparisons.
3. An account without a use in `KEPT_S` is worth nothing, since all of its samples have ended. It stays only as long as
   a connection keeps it. At most `MOST_KEPT` accounts stay for clients that may come back: clients can make up names
   without end. A client that comes back to an account that had to go may use its quota anew.
4. Control divides each quota over the gateways by their use (`mesh.quotas.shares`), so that all gateways together keep
   to it. The last parts hold while no router is connected.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from weakref import WeakValueDictionary

import structlog

from mesh.acls.subjects import plain_host
from mesh.quotas import Key, Limit, Policy, Rate
from mesh.quotas.codec import policy_from_proto
from mesh.quotas.policy import Sharers
from mesh.quotas.rate import SAMPLE_S, SAMPLES
from mesh.quotas.shares import Use
from mesh.rpc import quotas
from services.gateway import metrics

KEPT_S: Final = SAMPLES * SAMPLE_S
MOST_KEPT: Final = 10_000
"""Some 1 KB each."""
WINDOW_S: Final = (SAMPLES - 1) * SAMPLE_S
"""A client that was quiet may use so many seconds' worth at once."""
PAUSED_LATELY_S: Final = 3.0
"""A quota whose clients have paused within this time is scarce at this gateway."""

log = structlog.get_logger(__name__)


class Account:
    """The use of the clients that share a quota."""

    __slots__ = ("__weakref__", "key", "last", "paused_until", "pending", "rate", "room", "sharers", "until")

    def __init__(self, sharers: Sharers, rate: Rate) -> None:
        self.sharers = sharers
        self.key = sharers[0]
        self.rate = rate
        self.pending = 0.0
        """The uses since the last measurement ..."""
        self.last = 0.0
        """... and the time of the last of them."""
        self.room = 0.0
        self.until = 0.0
        self.paused_until = -PAUSED_LATELY_S
        """The end of the last pause."""

    def charge(self, amount: float, now: float) -> float:
        """Adds a use; returns for how many seconds the client has to pause."""
        pending = self.pending
        if now < self.until and pending + amount <= self.room:
            self.pending, self.last = pending + amount, now
            return 0.0
        return self._measure(amount, now)

    def _measure(self, amount: float, now: float) -> float:
        rate = self.rate
        if self.pending:
            rate.used(self.pending, self.last)  # in the sample that they belong to
            self.pending = 0.0
        pause = rate.used(amount, now)
        self.room, self.until, self.last = rate.room, rate.until, now
        if pause > 0.0:
            self.paused_until = now + pause
        return pause

    def take_back(self, amount: float, now: float) -> None:
        """A use did not come about."""
        self.rate.unused(amount, now)
        self.until = 0.0

    def limit_to(self, value: float) -> None:
        """The quota has another value."""
        if self.rate.quota != value:
            self.rate.quota = value
            self.until = 0.0

    def measured(self, now: float) -> float:
        """The rate now."""
        if self.pending:
            self.rate.used(self.pending, self.last)
            self.pending = self.until = 0.0
        return self.rate.measured(now)


class Quotas:
    """The quotas in force at this gateway."""

    __slots__ = (
        "_accounts", "_gateways", "_kept", "_policy", "_revision", "_shares", "_swept_at", "counts", "edition",
        "on_change",
    )  # fmt: skip

    def __init__(self) -> None:
        self.counts = False
        """Whether any client has a quota of bytes or time."""
        self.edition = 0
        """Changes whenever a client may have another quota."""
        self._gateways = 1
        self._shares: Mapping[Sharers, float] = {}
        """This gateway's parts of quotas. Each gateway has an equal part of the other quotas."""
        self.on_change: set[Callable[[], None]] = set()
        """Called when quotas have changed: nobody pauses by a quota that is no more."""
        self._policy = Policy()
        self._revision = 0
        self._accounts: WeakValueDictionary[Sharers, Account] = WeakValueDictionary()
        self._kept: dict[Sharers, Account] = {}
        """Those that have been used lately, in the order in which they were made."""
        self._swept_at = 0.0

    def __len__(self) -> int:
        """The number of accounts."""
        return len(self._accounts)

    @property
    def policy(self) -> Policy:
        return self._policy

    def follow(self, message: quotas.QuotaPolicy | None) -> None:
        """Puts the policy of a table in force. A quota that this release does not know bounds nobody."""
        revision = 0 if message is None else message.revision
        if revision == self._revision:
            return
        self._revision = revision
        try:
            self._policy = Policy() if message is None else policy_from_proto(message)
        except ValueError as error:
            log.error("the quotas can't be read, so they bound nobody: upgrade the gateway", reason=str(error))
            self._policy = Policy()
        self.counts = any(self._policy.has(key) for key in Key if not key.is_about_addresses)
        self._changed()

    def _limit_of(self, sharers: Sharers) -> Limit | None:
        key, user, client_id, address = sharers
        if address is not None:
            return self._policy.limit_of_address(key, address)
        limit = self._policy.limit(key, user or "", client_id or "")
        return limit if limit is not None and limit.sharers == sharers else None

    def _changed(self) -> None:
        self.edition += 1
        for each in list(self.on_change):
            each()

    def account(self, key: Key, user: str, client_id: str, now: float, groups: Sequence[str] = ()) -> Account | None:
        """The account of a client; None if it has no such quota."""
        limit = self._policy.limit(key, user, client_id, groups)
        return None if limit is None else self._account(limit, now)

    def connected(self, address: str, now: float) -> float:
        """A connection has come from this address; returns for how many seconds it comes too early."""
        key = Key.CONNECTION_CREATION_RATE
        limit = self._policy.limit_of_address(key, plain_host(address)) if self._policy.has(key) else None
        if limit is None:
            return 0.0
        account = self._account(limit, now)
        pause = account.charge(1.0, now)
        if pause > 0.0:
            account.take_back(1.0, now)
        return pause

    def uses(self, now: float) -> dict[Sharers, Use]:
        """The parts of quotas that clients use now, for control."""
        found: dict[Sharers, Use] = {}
        for account in list(self._accounts.values()):
            limit = self._limit_of(account.sharers)
            rate = account.measured(now)
            if limit is not None and rate > 0.0:
                found[account.sharers] = Use(rate / limit.quota.value, now - account.paused_until < PAUSED_LATELY_S)
        return found

    def divide(self, gateways: int, shares: Mapping[Sharers, float]) -> None:
        """Control has divided the quotas over so many gateways."""
        if (gateways, shares) != (self._gateways, self._shares):
            self._gateways, self._shares = max(1, gateways), shares
            for account in list(self._accounts.values()):
                limit = self._limit_of(account.sharers)
                if limit is not None:
                    account.limit_to(self._own_part(limit))

    def _own_part(self, limit: Limit) -> float:
        return limit.quota.value * self._shares.get(limit.sharers, 1.0 / self._gateways)

    def _account(self, limit: Limit, now: float) -> Account:
        account = self._accounts.get(limit.sharers)
        value = self._own_part(limit)
        if account is None:
            account = self._accounts[limit.sharers] = Account(limit.sharers, Rate(value))
        else:
            account.limit_to(value)
        account.last = max(account.last, now)
        self._kept[limit.sharers] = account
        if now - self._swept_at >= KEPT_S or len(self._kept) > MOST_KEPT:
            self._sweep(now)
        return account

    def _sweep(self, now: float) -> None:
        self._swept_at = now
        self._kept = {sharers: each for sharers, each in self._kept.items() if now - each.last < KEPT_S}
        while len(self._kept) > MOST_KEPT * 9 // 10:
            del self._kept[next(iter(self._kept))]
            metrics.forgotten_quota_accounts.inc()
