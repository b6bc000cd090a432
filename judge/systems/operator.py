"""The operator of a judge's mesh: moves topics, and edits rules that lead none of the judge's topics."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from mesh.rpc import admin, admin_grpc, routing
from mesh.rpc.channels import open_blocking_channel

MOVE_S = 30.0
NOISE = 20
"""Rules that come, change and go."""
LARGE_RULES, LARGE_NAME = 5_500, 240
"""A change whose event is larger than a record of Kafka may be: 1.3 MB."""
LARGE_S = 60.0


@dataclass(slots=True)
class MeshOperator:
    leader: Callable[[], str]
    """The address of the control that leads; empty: none does."""
    owners: dict[str, str] = field(default_factory=dict)
    """The cluster of each topic, except for topics whose last move has an unknown outcome."""
    _noise: set[str] = field(default_factory=set)

    def move(self, topic: str, cluster: str) -> int:
        """The operator's order; returns the revision when all gateways have switched."""
        request = admin.SetRuleRequest(
            match=routing.RuleMatch(topic=topic), target_cluster=cluster, options=_options(accept_skip=True)
        )
        self.owners.pop(topic, None)
        revision = int(self._asked("SetRule", request, MOVE_S).revision)
        self.owners[topic] = cluster
        return revision

    def edits(self) -> list[tuple[str, Callable[[random.Random], None]]]:
        return [("a rule of nobody's topic", self._edit), ("a large change of rules", self._edit_largely)]

    def _edit(self, chance: random.Random) -> None:
        name = f"noise-{chance.randrange(NOISE)}"
        if name in self._noise and chance.random() < 0.5:
            self._asked("RemoveRule", admin.RemoveRuleRequest(name=f"rules/{name}", options=_options()), MOVE_S)
            self._noise.discard(name)
            return
        if name in self._noise:
            target = chance.choice(("c1", "c2"))
            match = routing.RuleMatch(topic_prefix=f"{name}-")
            request = admin.SetRuleRequest(match=match, target_cluster=target, options=_options(accept_skip=True))
            self._asked("SetRule", request, MOVE_S)
            return
        match = routing.RuleMatch(topic_prefix=f"{name}-")
        rule = routing.RuleSpec(rule_id=name, match=match, target_cluster="c1")
        self._asked("CreateRule", admin.CreateRuleRequest(rule=rule, options=_options()), MOVE_S)
        self._noise.add(name)

    def _edit_largely(self, chance: random.Random) -> None:
        """And back."""
        run = f"{chance.getrandbits(32):08x}"
        names = [f"large-{run}-{number}" for number in range(LARGE_RULES)]
        specs = [
            routing.RuleSpec(
                rule_id=name, match=routing.RuleMatch(topic=name.ljust(LARGE_NAME, "x")), target_cluster="c1"
            )
            for name in names
        ]
        edits = [admin.RuleEdit(create=admin.CreateRuleRequest(rule=spec)) for spec in specs]
        self._asked("ChangeRules", admin.ChangeRulesRequest(edits=edits, options=_options()), LARGE_S)
        edits = [admin.RuleEdit(remove=admin.RemoveRuleRequest(name=f"rules/{name}")) for name in names]
        self._asked("ChangeRules", admin.ChangeRulesRequest(edits=edits, options=_options()), LARGE_S)

    def _asked(self, method: str, request: object, within_s: float) -> admin.RuleChangeResponse:
        leader = self.leader()
        if not leader:
            raise RuntimeError(f"{method}: no control leads")
        with open_blocking_channel(leader) as channel:
            try:
                answer: admin.RuleChangeResponse = getattr(admin_grpc.RuleServiceStub(channel), method)(
                    request, timeout=within_s
                )
            except grpc.RpcError as error:
                said = error.details() if hasattr(error, "details") else str(error)
                raise RuntimeError(f"{method}: {said}") from error
        return answer


def _options(*, accept_skip: bool = False) -> admin.ChangeOptions:
    return admin.ChangeOptions(request_id=str(uuid.uuid4()), accept_skip=accept_skip)
