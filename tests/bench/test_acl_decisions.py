"""The time of one decision of ACLs at a gateway: 10,000 ACLs, 1,000 principals, remembered by the connection and not.

Each decision is timed by itself; the time of an empty measurement is taken off. Figures, never verdicts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

import pytest

from mesh.acls import Operation, ResourceType
from mesh.acls.codec import policy_from_proto
from mesh.rpc import acls
from services.gateway.authentication.principal import Principal
from services.gateway.authorization.access import Access, Authorization, Mode
from tests.bench.figures import Sheet, Table, watched

PRINCIPALS: Final = 1_000
ACLS: Final = 10_000
ASKED: Final = 50_000
TOPICS: Final = 100
"""Topics that one connection uses."""
TARGETS_US: Final = {"remembered": 2.0, "first time": 50.0}
"""At the 99th percentile."""


def policy_message(principals: int = PRINCIPALS, count: int = ACLS) -> acls.AclPolicy:
    """For each principal ten ACLs: literal and prefixed topics and groups, of which some deny; some for everybody."""
    made: list[acls.Acl] = []

    def add(principal: str, kind: acls.AclResourceType.ValueType, name: str, *, prefixed: bool, deny: bool) -> None:
        made.append(
            acls.Acl(
                resource_type=kind,
                pattern_type=acls.ACL_PATTERN_TYPE_PREFIXED if prefixed else acls.ACL_PATTERN_TYPE_LITERAL,
                resource_name=name,
                principal=principal,
                host="*",
                operation=acls.ACL_OPERATION_READ if deny else acls.ACL_OPERATION_WRITE,
                permission=acls.ACL_PERMISSION_DENY if deny else acls.ACL_PERMISSION_ALLOW,
            )
        )

    topic, group = acls.ACL_RESOURCE_TYPE_TOPIC, acls.ACL_RESOURCE_TYPE_GROUP
    for number in range(count):
        owner, kind = number % principals, number // principals
        principal = "User:*" if number % 997 == 0 else f"User:client-{owner}"
        prefixed, deny = kind % 2 == 1, kind % 5 == 4
        name = f"team-{owner}." if prefixed else f"team-{owner}.topic-{kind}"
        add(principal, group if kind % 3 == 2 else topic, name, prefixed=prefixed, deny=deny)
    return acls.AclPolicy(acls=made, mode=acls.ACL_MODE_ENFORCE, revision=1)


def percentile(values: list[int], share: float) -> float:
    return sorted(values)[int(len(values) * share)] / 1000


def timed(calls: list[Callable[[], object]]) -> list[int]:
    """Nanoseconds of each."""
    clock, found = time.perf_counter_ns, []
    for call in calls:
        began = clock()
        call()
        found.append(clock() - began)
    return found


@pytest.mark.timeout(3600)
def test_decisions(sheet: Sheet) -> None:
    chance = random.Random(25)
    rules = Authorization(Mode.ENFORCE, policy_from_proto(policy_message()), 1)
    names = [f"team-{chance.randrange(PRINCIPALS)}.topic-{n}" for n in range(TOPICS)]

    def access() -> Access:
        return Access.of(rules, Principal(f"client-{chance.randrange(PRINCIPALS)}"), "10.0.0.1")

    def asks(who: Access, name: str) -> Callable[[], object]:
        return lambda: who.allows(Operation.WRITE, ResourceType.TOPIC, name)

    one = access()
    remembered = [asks(one, chance.choice(names)) for _ in range(ASKED)]
    for each in remembered:
        each()
    connections = [access() for _ in range(ASKED)]
    first = [asks(each, f"team-{chance.randrange(PRINCIPALS)}.topic-{chance.randrange(10)}") for each in connections]
    idle = percentile(timed([lambda: None] * ASKED), 0.5)
    rows = []
    for name, calls in (("remembered", remembered), ("first time", first)):
        with watched() as disturbance:
            found = timed(calls)
        p50, p99, p999 = (max(0.0, percentile(found, share) - idle) for share in (0.5, 0.99, 0.999))
        wanted = f"p99 < {TARGETS_US[name]:g}"
        rows.append([name, f"{p50:.2f}", f"{p99:.2f}", f"{p999:.2f}", wanted, f"{disturbance.cores:.1f}"])
    note = f"{ACLS:,} ACLs, {PRINCIPALS:,} principals; {ASKED:,} decisions each, timed one by one"
    columns = ("decision", "p50, us", "p99, us", "p99.9, us", "wanted, us", "others, cores")
    sheet.add(Table("ACLs: one decision", columns, rows, [note]))
    assert len(rows) == len(TARGETS_US)
