"""ACLs, quotas, grants, users and subscriptions on pages: checked, changed, taken back; by role."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mesh.connection_security import Mechanism
from mesh.rpc import (
    acls,
    acls_grpc,
    grants,
    grants_grpc,
    listeners,
    listeners_grpc,
    quotas,
    quotas_grpc,
    subscriptions,
    tenants,
    tenants_grpc,
    users,
    users_grpc,
    validation,
    validation_grpc,
)
from mesh.scram import Verifier
from mesh.scram_codec import verifier_to_proto
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.consoles import ADMIN, OPERATOR, Consoled, Visitor, consoled
from tests.integration.control.world import CALL

ACL = "principal=User:alice&permission=allow&operation=Read&type=topic&pattern=prefixed&name=shop."


async def changes(visitor: Visitor, check: str, action: str, **fields: str) -> str:
    """Confirms what a check shows; the page of the change."""
    answer = await visitor.sends(check, action, **fields)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def takes_back(visitor: Visitor, landed: str) -> str:
    """The change is undone from its own page."""
    assert f'href="{landed}/take-back"' in (await visitor.client.get(landed)).text
    return await changes(visitor, f"{landed}/take-back", f"{landed}/take-back")


async def test_an_acl_is_checked_added_deleted_and_taken_back(console: Consoled) -> None:
    await console.grant("ada", ADMIN)

    async def present() -> list[str]:
        stub = acls_grpc.AclServiceStub(console.world.channel)
        found = await stub.ListAcls(acls.ListAclsRequest(), timeout=CALL)
        return [each.principal for each in found.acls]

    async with console.person("ada") as ada:
        check = f"/acls/check?action=add&{ACL}"
        page = await ada.sees(check)
        assert "Now it is not there" in page
        assert "ACLs refuse nobody now" in page
        assert await present() == [], "a check changes nothing"
        landed = await changes(ada, check, "/acls/change", reason="alice reads the shop")
        assert await present() == ["User:alice"]
        page = await ada.sees(landed)
        assert "alice reads the shop" in page
        assert "Take this change back" in page
        assert "User:alice allow Read topic prefixed shop. * Delete" in await ada.sees("/acls")

        gone = await changes(ada, f"/acls/check?action=delete&{ACL}", "/acls/change")
        assert await present() == []
        again = await takes_back(ada, gone)
        assert await present() == ["User:alice"]
        await takes_back(ada, again)
        assert await present() == []


async def test_the_mode_of_acls_is_set_and_taken_back(console: Consoled) -> None:
    await console.grant("ada", ADMIN)
    async with console.person("ada") as ada:
        check = "/acls/mode/check?mode=observe&super_users=User:root"
        assert "Mode now off Mode then observe" in await ada.sees(check)
        landed = await changes(ada, check, "/acls/mode/change")
        assert "Mode observe Super users User:root" in await ada.sees("/acls")
        await takes_back(ada, landed)
        assert "Mode off Super users none" in await ada.sees("/acls")


async def test_a_quota_is_set_explained_removed_and_taken_back(console: Consoled) -> None:
    await console.grant("ada", ADMIN)

    async def values() -> list[float]:
        stub = quotas_grpc.QuotaServiceStub(console.world.channel)
        return [each.value for each in (await stub.ListQuotas(quotas.ListQuotasRequest(), timeout=CALL)).quotas]

    async with console.person("ada") as ada:
        quota = "/quotas/check?user=alice&quota=producer_byte_rate"
        page = await ada.sees(f"{quota}&value=1000")
        assert "Now no such quota Then producer_byte_rate of user 'alice' is 1000 bytes/s" in page
        first = await changes(ada, f"{quota}&value=1000", "/quotas/change")
        second = await changes(ada, f"{quota}&value=2000", "/quotas/change")
        assert await values() == [2000]
        assert "user 'alice' producer_byte_rate 2000 bytes/s" in await ada.sees("/quotas")
        assert "2000 bytes/s" in await ada.sees("/quotas?user=alice")
        await takes_back(ada, second)
        assert await values() == [1000]
        await takes_back(ada, first)
        assert await values() == []
        assert "value: 'x' is no number" in await ada.sees(f"{quota}&value=x", 409)


async def test_a_role_is_granted_revoked_and_taken_back(console: Consoled) -> None:
    await console.grant("ada", ADMIN)

    async def granted() -> list[str]:
        request = grants.ListGrantsRequest(principal="oidc:bob")
        found = await grants_grpc.AccessServiceStub(console.world.channel).ListGrants(request, timeout=CALL)
        return [",".join(each.narrowing.topic_prefixes) for each in found.grants]

    async with console.person("ada") as ada:
        check = "/grants/check?action=grant&principal=oidc:bob&role=viewer&topics=shop.*, pay."
        assert "Then viewer for topics shop.*, pay.*" in await ada.sees(check)
        landed = await changes(ada, check, "/grants/change", reason="bob looks at the shop")
        assert await granted() == ["shop.,pay."]
        assert "oidc:bob viewer for topics shop.*, pay.*" in await ada.sees("/grants?principal=oidc:bob")
        gone = await changes(ada, "/grants/check?action=revoke&principal=oidc:bob&role=viewer", "/grants/change")
        assert await granted() == []
        await takes_back(ada, gone)
        assert await granted() == ["shop.,pay."]
        await takes_back(ada, landed)
        assert await granted() == []


async def test_a_user_is_deleted_and_brought_back(console: Consoled) -> None:
    stub = users_grpc.UserServiceStub(console.world.channel)
    verifier = verifier_to_proto(Verifier.of_password(Mechanism.SCRAM_SHA_256, "a secret", 4096))
    await stub.SetUser(users.SetUserRequest(user="alice", verifiers=[verifier]), timeout=CALL)
    await console.grant("ada", ADMIN)
    async with console.person("ada") as ada:
        assert "State can log in" in await ada.sees("/users/alice")
        await changes(ada, "/users/alice", "/users/alice/delete")
        assert "State deleted" in await ada.sees("/users/alice")
        await changes(ada, "/users/alice", "/users/alice/restore")
        assert "State can log in" in await ada.sees("/users/alice")


async def test_a_subscription_is_shown_withdrawn_and_taken_back(console: Consoled) -> None:
    spec = subscriptions.SubscriptionSpec(topics=["orders"], group="shop", max_retries=7)
    wanted = subscriptions.DeclaredSubscription(name="orders", sidecars=["shop-*"], spec=spec)
    request = subscriptions.DeclareSubscriptionRequest(subscription=wanted, reason="the shop reads")
    await console.world.subscriptions.DeclareSubscription(request, timeout=CALL)
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        assert "orders shop-* orders shop root" in await ada.sees("/subscriptions")
        page = await ada.sees("/subscriptions/orders")
        assert "max_retries 7" in page
        gone = await changes(ada, "/subscriptions/orders", "/subscriptions/orders/withdraw")
        await ada.sees("/subscriptions/orders", 404)
        await takes_back(ada, gone)
        assert "max_retries 7" in await ada.sees("/subscriptions/orders")


@pytest.mark.parametrize(
    ("check", "action"),
    [
        (f"/acls/check?action=delete&{ACL}", "/acls/change"),
        ("/quotas/check?user=alice&quota=producer_byte_rate&value=1", "/quotas/change"),
        ("/grants/check?action=grant&principal=oidc:otto&role=admin", "/grants/change"),
    ],
)
async def test_an_operator_is_no_admin(console: Consoled, check: str, action: str) -> None:
    await console.grant("otto", OPERATOR)
    async with console.person("otto") as otto:
        answer = await otto.sends(check, action)
        assert answer.status_code == 403
        assert "needs the role admin" in answer.text
    async with console.visitor() as visitor:
        assert "Confirm" not in await visitor.sees(check)


async def test_a_tenant_is_set_explained_removed_and_taken_back(console: Consoled) -> None:
    await console.grant("ada", ADMIN)

    async def members() -> dict[str, list[str]]:
        stub = tenants_grpc.TenantServiceStub(console.world.channel)
        found = await stub.ListTenants(tenants.ListTenantsRequest(), timeout=CALL)
        return {each.tenant_id: list(each.members) for each in found.tenants}

    async with console.person("ada") as ada:
        tenant = "/tenants/check?tenant=shop&members=User:ann, Group:sellers&shared=currencies"
        page = await ada.sees(tenant)
        assert "Now no such tenant Then shop: prefix 'shop.', members User:ann and Group:sellers" in page
        assert await members() == {}, "a check changes nothing"
        first = await changes(ada, tenant, "/tenants/change", reason="a new team")
        assert await members() == {"shop": ["Group:sellers", "User:ann"]}
        assert "shop shop. Group:sellers, User:ann currencies" in await ada.sees("/tenants")
        explained = await ada.sees("/tenants?principal=User:bob&groups=Group:sellers&topic=orders")
        assert "It belongs to shop, by its member Group:sellers." in explained
        assert "orders is topic shop.orders." in explained
        assert "It has no tenant" in await ada.sees("/tenants?principal=User:bob")
        gone = await changes(ada, "/tenants/check?tenant=shop&remove=yes", "/tenants/change")
        assert await members() == {}
        await takes_back(ada, gone)
        assert await members() == {"shop": ["Group:sellers", "User:ann"]}
        await takes_back(ada, first)
        assert await members() == {}


async def test_a_decision_about_a_listener_is_shown_and_taken_back(console: Consoled) -> None:
    await console.grant("ada", ADMIN)
    stub = listeners_grpc.ListenerServiceStub(console.world.channel)

    async def decide(**said: Any) -> int:
        wanted = listeners.Listener(name="outside", security=listeners.LISTENER_SECURITY_SASL_SSL, **said)
        change = listeners.ListenerChange(name="outside", listener=wanted)
        answer = await stub.ChangeListeners(listeners.ChangeListenersRequest(changes=[change]), timeout=CALL)
        return int(answer.revision)

    async with console.person("ada") as ada:
        assert "Nothing is decided" in await ada.sees("/listeners")
        await decide(port=9094)
        second = await decide(port=9095)
        assert "outside SASL_SSL, SCRAM-SHA-512 SCRAM-SHA-256, port 9095" in await ada.sees("/listeners")
        await takes_back(ada, f"/changes/{second}")
        assert "port 9094" in await ada.sees("/listeners")


async def test_a_rule_of_validation_is_taken_back(console: Consoled) -> None:
    await console.grant("ada", ADMIN)
    stub = validation_grpc.ValidationServiceStub(console.world.channel)

    async def decide(most: int) -> int:
        wanted = validation.ValidationRule(
            rule_id="small", topic="orders", mode=validation.VALIDATION_MODE_ENFORCE, max_record_bytes=most
        )
        change = validation.ValidationRuleChange(rule_id="small", rule=wanted)
        answer = await stub.ChangeValidationRules(
            validation.ChangeValidationRulesRequest(changes=[change]), timeout=CALL
        )
        return int(answer.revision)

    async def bounds() -> list[int]:
        found = await stub.ListValidationRules(validation.ListValidationRulesRequest(), timeout=CALL)
        return [each.max_record_bytes for each in found.rules]

    async with console.person("ada") as ada:
        first, second = await decide(10), await decide(20)
        await takes_back(ada, f"/changes/{second}")
        assert await bounds() == [10]
        await takes_back(ada, f"/changes/{first}")
        assert await bounds() == []


async def test_the_first_decision_of_a_mesh_is_taken_back(
    database: str, kafka_c1: KafkaCluster, unique_name: Callable[[str], str], authority: Authority
) -> None:
    """Nothing was before it: revision 0 is none, although control takes 0 for now."""
    events_topic = unique_name("console-events")
    async with consoled(database, events_topic, {"c1": kafka_c1}, authority, registered=False) as console:
        stub = acls_grpc.AclServiceStub(console.world.channel)
        request = acls.SetAclModeRequest(mode=acls.ACL_MODE_OBSERVE, super_users=acls.AclSuperUsers())
        decided = await stub.SetAclMode(request, timeout=CALL)
        assert decided.revision == 1
        await console.grant("ada", ADMIN)
        async with console.person("ada") as ada:
            await takes_back(ada, "/changes/1")
        assert (await stub.ListAcls(acls.ListAclsRequest(), timeout=CALL)).mode in (0, acls.ACL_MODE_OFF)
