"""Two people at two browsers: one changes a rule, the other sees the plan and approves; by role."""

from __future__ import annotations

import pytest

from mesh.rpc import access, admin, proposals, proposals_grpc
from tests.fixtures.consoles import OPERATOR, VIEWER, Consoled, Visitor
from tests.integration.control.world import CALL


@pytest.fixture
async def guarded(console: Consoled) -> Consoled:
    """Bob and Cleo are operators, Vera is a viewer; changes of rules need two."""
    for person, role in (("bob", OPERATOR), ("cleo", OPERATOR), ("vera", VIEWER)):
        await console.grant(person, role)
    await console.grant("nina", VIEWER, topic_prefixes=["pay-"])
    rules = [proposals.ApprovalRule(kinds=[access.CHANGE_KIND_RULES])]
    request = proposals.SetApprovalPolicyRequest(policy=proposals.ApprovalPolicy(rules=rules))
    await proposals_grpc.ApprovalServiceStub(console.world.channel).SetApprovalPolicy(request, timeout=CALL)
    return console


async def proposed(person: Visitor) -> str:
    """The page of the proposal to which a change leads."""
    form = "/rules/check?action=create&kind=topic&name=apples&target_cluster=c1"
    answer = await person.sends(form, "/rules/change", reason="ripe")
    assert answer.status_code == 303, answer.text
    path = answer.headers["location"]
    assert path.startswith("/proposals/"), path
    return str(path)


async def rules_of(console: Consoled) -> list[str]:
    listed = await console.world.rules.ListRules(admin.ListRulesRequest(), timeout=CALL)
    return [each.spec.match.topic for each in listed.rules]


async def test_a_change_leads_to_its_proposal_and_a_second_person_makes_it(guarded: Consoled) -> None:
    async with guarded.person("bob") as bob, guarded.person("cleo") as cleo:
        path = await proposed(bob)
        page = await bob.sees(path)
        assert "State open" in page and "rule apples added: topic apples -> c1" in page and "Why ripe" in page
        again = await bob.sends(path, f"{path}/approve")
        assert again.status_code == 409 and "it needs a second person" in again.text
        assert await rules_of(guarded) == []
        overview = (await cleo.client.get("/")).text
        assert '<span class="badge" title="Changes that wait for a second person">1</span>' in overview
        assert "1 change wait" in await cleo.sees("/proposals")
        answer = await cleo.sends(path, f"{path}/approve", reason="read it")
        assert answer.status_code == 303 and answer.headers["location"] == path
        page = await cleo.sees(path)
        assert "State applied" in page and "Decided by oidc:cleo" in page and "Their reason read it" in page
        assert await rules_of(guarded) == ["apples"]
        assert 'class="badge"' not in (await cleo.client.get("/")).text
        late = await bob.client.post(f"{path}/approve", data=await bob.form("/schedules", "/freeze"))
        assert late.status_code == 409


async def test_a_proposal_is_refused_or_withdrawn(guarded: Consoled) -> None:
    async with guarded.person("bob") as bob, guarded.person("cleo") as cleo:
        path = await proposed(bob)
        other = await cleo.sends(path, f"{path}/withdraw")
        assert other.status_code == 409 and "oidc:bob has proposed" in other.text
        assert (await cleo.sends(path, f"{path}/refuse", reason="unripe")).status_code == 303
        assert "State refused" in await bob.sees(path)
        path = await proposed(bob)
        assert (await bob.sends(path, f"{path}/withdraw")).status_code == 303
        assert "State withdrawn" in await bob.sees(path)
    assert await rules_of(guarded) == []


async def test_a_viewer_reads_a_proposal_and_decides_nothing(guarded: Consoled) -> None:
    async with guarded.person("bob") as bob, guarded.person("vera") as vera:
        path = await proposed(bob)
        assert "rule apples added" in await vera.sees(path)
        assert "changes of rules" in await vera.sees("/proposals")
        for word in ("approve", "refuse"):
            answer = await vera.sends(path, f"{path}/{word}")
            assert answer.status_code == 403 and "needs the role operator" in answer.text
    async with guarded.visitor() as visitor:
        page = (await visitor.client.get(path)).text
        assert "rule apples added" in page and f'action="{path}/approve"' not in page


async def test_who_may_not_see_proposals_gets_neither_page_nor_badge(guarded: Consoled) -> None:
    async with guarded.person("bob") as bob, guarded.person("nina") as nina:
        path = await proposed(bob)
        for _ in range(3):
            assert "badge" not in (await nina.client.get("/explain?about=topic&name=pay-1")).text
        for there in ("/proposals", path):
            assert "rule apples added" not in await nina.sees(there, 403)
    request = admin.ListAuditEventsRequest(actor="oidc:nina", page_size=100)
    found = await guarded.world.decisions.ListAuditEvents(request, timeout=CALL)
    asked = [each for each in found.audit_events if each.method.endswith("/ListProposals")]
    assert len(asked) <= 2, "the badge is asked for once, and the page itself"
