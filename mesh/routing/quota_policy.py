"""The policy of quotas in a table, as it follows from events.

A table carries the policy as the message of quotas.proto. Control and routers only hand it on; `mesh.quotas` is for
those who count by it. Nobody changes a policy that a table has.
"""

from __future__ import annotations

from mesh.rpc import events, quotas

QUOTA_EVENTS = frozenset({"quotas_changed"})
"""The payloads that change the policy."""


class QuotaDraft:
    """A policy that is carried on from event to event; the message is made when it is asked for."""

    def __init__(self, policy: quotas.QuotaPolicy | None) -> None:
        self._policy = policy
        """The last message that was asked for; it is up to date unless there was an event since then."""
        self._revision = 0 if policy is None else policy.revision
        self._quotas: dict[bytes, quotas.Quota] | None = None
        """The quotas by entity and key, from the first change on."""

    @property
    def policy(self) -> quotas.QuotaPolicy | None:
        """The policy now, None before the first event. Between two events it is the same object."""
        known = self._quotas
        if known is not None and self._revision != (0 if self._policy is None else self._policy.revision):
            self._policy = quotas.QuotaPolicy(quotas=[known[key] for key in sorted(known)], revision=self._revision)
        return self._policy

    def change(self, event: events.Event) -> None:
        """Takes an event about quotas."""
        if self._quotas is None:
            self._quotas = {} if self._policy is None else {key_of(each): each for each in self._policy.quotas}
        for each in event.quotas_changed.changes:
            if each.HasField("value"):
                self._quotas[key_of(each)] = quotas.Quota(entity=each.entity, key=each.key, value=each.value)
            else:
                self._quotas.pop(key_of(each), None)
        self._revision = event.position


def key_of(quota: quotas.Quota | quotas.QuotaChange) -> bytes:
    """Equal for quotas of the same entity and key."""
    return quotas.Quota(entity=quota.entity, key=quota.key).SerializeToString(deterministic=True)
