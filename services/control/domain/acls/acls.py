"""Decisions about ACLs: adding, deleting, and the mode in which gateways heed them.

The policy itself is in the routing table (`mesh.routing.acl_policy`), so gateways get it as they get rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from google.protobuf.message import Message

from mesh.acls.acl import EVERYBODY
from mesh.acls.words import MODES, mode_word
from mesh.routing.acl_policy import key_of
from mesh.rpc import acls, events
from services.control.domain.acls.checks import check_principal, checked, checked_filter
from services.control.domain.errors import InvalidField, NotAllowed

ACLS: Final = "acls"
"""The stream of all decisions about ACLs."""
MOST_ACLS: Final = 10_000
"""Each gateway holds all of them in memory, and gets them with each table: some 0.6 MB."""
MOST_AT_ONCE: Final = 1_000
"""ACLs, or filters, of one call, and ACLs that it deletes."""
MOST_SUPER_USERS: Final = 100

Matches = Callable[[acls.AclFilter], Sequence[acls.Acl]]
"""The ACLs of the policy that match a filter."""


def create_acls(policy: acls.AclPolicy, wanted: Sequence[acls.Acl]) -> events.AclsCreated | None:
    """The event that adds ACLs; None if all of them are there already."""
    _check_number("acls", wanted)
    asked = {key_of(each): each for each in (checked(each, f"acls[{index}]") for index, each in enumerate(wanted))}
    known = set(map(key_of, policy.acls))
    new = [each for key, each in asked.items() if key not in known]
    if len(known) + len(new) > MOST_ACLS:
        raise NotAllowed(
            "TOO_MANY_ACLS",
            ACLS,
            f"the policy has {len(known)} ACLs, {len(new)} would be new, and {MOST_ACLS} are possible: delete "
            "others, or use prefixes and groups",
        )
    return events.AclsCreated(acls=new) if new else None


def delete_acls(policy: acls.AclPolicy, wanted: acls.DeleteAclsRequest, matching: Matches) -> events.AclsDeleted | None:
    """The event that deletes the ACLs that match a filter; None if there are none."""
    _check_number("filters", wanted.filters)
    found: dict[bytes, acls.Acl] = {}
    for index, each in enumerate(wanted.filters):
        found.update((key_of(acl), acl) for acl in matching(checked_filter(each, f"filters[{index}]")))
    if len(found) > MOST_AT_ONCE:
        raise InvalidField(
            "filters", f"match {len(found)} ACLs, and one call deletes {MOST_AT_ONCE} at most: use narrower filters"
        )
    if policy.mode == acls.ACL_MODE_ENFORCE and not wanted.force and not policy.super_users:
        left = [each for each in policy.acls if key_of(each) not in found]
        if _allow_anything(policy.acls) and not _allow_anything(left):
            raise _refuses_everybody("these are its last ACLs that allow; add another one or a super user first")
    return events.AclsDeleted(acls=found.values()) if found else None


def set_mode(policy: acls.AclPolicy, wanted: acls.SetAclModeRequest) -> events.AclModeSet | None:
    """The event that sets the mode and the super users; None if both are so already."""
    if wanted.mode not in (acls.ACL_MODE_UNSPECIFIED, *MODES):
        raise InvalidField("mode", f"{wanted.mode} is no mode: OFF, OBSERVE and ENFORCE are")
    mode = wanted.mode or policy.mode or acls.ACL_MODE_OFF
    super_users = list(policy.super_users)
    if wanted.HasField("super_users"):
        super_users = sorted(set(wanted.super_users.principals))
        _check_super_users(super_users)
    if (mode, super_users) == (policy.mode, list(policy.super_users)):
        return None
    if mode == acls.ACL_MODE_ENFORCE and not wanted.force and not super_users and not _allow_anything(policy.acls):
        raise _refuses_everybody("it has no ACL that allows; add one of them first")
    return events.AclModeSet(mode=mode, super_users=super_users)


def narrows(payload: Message) -> bool:
    """Whether a decision only takes rights away: it denies more, or allows less."""
    match payload:
        case events.AclsCreated():
            return {each.permission for each in payload.acls} == {acls.ACL_PERMISSION_DENY}
        case events.AclsDeleted():
            return {each.permission for each in payload.acls} == {acls.ACL_PERMISSION_ALLOW}
        case _:
            return False


def order_of(acl: acls.Acl) -> tuple[object, ...]:
    """The order in lists: by the resource, then by the principal."""
    return (
        acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission,
    )  # fmt: skip


def _refuses_everybody(cause: str) -> NotAllowed:
    enforce = mode_word(acls.ACL_MODE_ENFORCE)
    text = f"mode {enforce} would refuse every client: the policy has no super user, and {cause}, or set force"
    return NotAllowed("ACLS_REFUSE_EVERYBODY", ACLS, text)


def _allow_anything(of: Iterable[acls.Acl]) -> bool:
    return any(each.permission == acls.ACL_PERMISSION_ALLOW for each in of)


def _check_super_users(principals: Sequence[str]) -> None:
    if len(principals) > MOST_SUPER_USERS:
        raise InvalidField(
            "super_users", f"has {len(principals)} principals, and {MOST_SUPER_USERS} are possible: use ACLs for others"
        )
    for each in principals:
        check_principal(each, "super_users")
    if EVERYBODY in principals:
        raise InvalidField("super_users", f"{EVERYBODY} would allow every client everything: that is mode OFF")


def _check_number(field: str, given: Sequence[object]) -> None:
    if not given:
        raise InvalidField(field, "is empty: name one at least")
    if len(given) > MOST_AT_ONCE:
        raise InvalidField(field, f"has {len(given)}, and one call takes {MOST_AT_ONCE}: make several calls")
