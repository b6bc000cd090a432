"""The policy of ACLs in a table, as it follows from events.

A table carries the policy as the message of acls.proto, in the order in which its ACLs came. Control and routers only
hand it on; `mesh.acls` is for those who decide by it. Nobody changes a policy that a table has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mesh.rpc import acls, events

ACL_EVENTS = frozenset({"acls_created", "acls_deleted", "acl_mode_set"})
"""The payloads that change the policy."""


class AclDraft:
    """A policy that is carried on from event to event; the message is made when it is asked for."""

    def __init__(self, policy: acls.AclPolicy | None) -> None:
        self._policy = policy
        """The last message that was asked for; it is up to date unless there was an event since then."""
        self._revision = 0 if policy is None else policy.revision
        self._mode = acls.ACL_MODE_UNSPECIFIED if policy is None else policy.mode
        self._super_users: Sequence[str] = () if policy is None else policy.super_users
        self._acls: dict[bytes, acls.Acl] | None = None
        """The ACLs by their bytes, from the first change of an ACL on."""

    @property
    def policy(self) -> acls.AclPolicy | None:
        """The policy now, None before the first event. Between two events it is the same object."""
        before = self._policy
        if self._revision != (0 if before is None else before.revision):
            known: Iterable[acls.Acl] = _acls_of(before) if self._acls is None else self._acls.values()
            self._policy = acls.AclPolicy(
                mode=self._mode, acls=known, super_users=self._super_users, revision=self._revision
            )
        return self._policy

    def change(self, event: events.Event) -> None:
        """Takes an event about ACLs."""
        match event.WhichOneof("payload"):
            case "acls_created":
                self._by_bytes.update((key_of(each), each) for each in event.acls_created.acls)
            case "acls_deleted":
                for each in event.acls_deleted.acls:
                    self._by_bytes.pop(key_of(each), None)
            case "acl_mode_set":
                self._mode, self._super_users = event.acl_mode_set.mode, event.acl_mode_set.super_users
        self._revision = event.position

    @property
    def _by_bytes(self) -> dict[bytes, acls.Acl]:
        if self._acls is None:
            self._acls = {key_of(each): each for each in _acls_of(self._policy)}
        return self._acls


def key_of(acl: acls.Acl) -> bytes:
    """Equal for equal ACLs."""
    return acl.SerializeToString(deterministic=True)


def _acls_of(policy: acls.AclPolicy | None) -> Sequence[acls.Acl]:
    return () if policy is None else policy.acls
