"""The operator of the tests: sets rules over the admin API."""

from __future__ import annotations

import asyncio

from mesh.rpc import admin, admin_grpc, routing
from mesh.rpc.channels import open_blocking_channel
from mesh.rpc.tls import RpcTls

# A change waits until every data plane has switched, or gives up after control's own bound, which is far below this.
CHANGE_TIMEOUT_SECONDS = 30.0
# Topics move to and fro under load: their readers know that positions mean another place in the log each time.
MOVE_ANYHOW = admin.ChangeOptions(accept_skip=True)


class Operator:
    def __init__(self, control: str, caller: RpcTls | None = None) -> None:
        self._channel = open_blocking_channel(control, caller)
        self._rules = admin_grpc.RuleServiceStub(self._channel)

    def route_prefix(self, prefix: str, cluster: str) -> None:
        """Topics of this prefix live on the cluster; nothing changes if they do already."""
        self._set(routing.RuleMatch(topic_prefix=prefix), cluster)

    async def move(self, topic: str, cluster: str) -> admin.RuleChangeResponse:
        """The topic lives on the cluster from now on; returns when all gateways have switched."""
        return await asyncio.to_thread(self._set, routing.RuleMatch(topic=topic), cluster)

    async def forget(self, topic: str) -> None:
        """Removes the topic's own rule, if it has one."""
        await asyncio.to_thread(self._forget, topic)

    def close(self) -> None:
        self._channel.close()

    def _set(self, match: routing.RuleMatch, cluster: str) -> admin.RuleChangeResponse:
        request = admin.SetRuleRequest(match=match, target_cluster=cluster, options=MOVE_ANYHOW)
        return self._rules.SetRule(request, timeout=CHANGE_TIMEOUT_SECONDS)

    def _forget(self, topic: str) -> None:
        page_token = ""
        while True:
            page = self._rules.ListRules(admin.ListRulesRequest(page_token=page_token), timeout=CHANGE_TIMEOUT_SECONDS)
            for rule in page.rules:
                if rule.spec.match.topic == topic:
                    request = admin.RemoveRuleRequest(name=rule.name, options=MOVE_ANYHOW)
                    self._rules.RemoveRule(request, timeout=CHANGE_TIMEOUT_SECONDS)
                    return
            page_token = page.next_page_token
            if not page_token:
                return
