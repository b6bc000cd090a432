"""Roles on the pages: control decides with the identity of the viewer, and the console adds no right."""

from __future__ import annotations

import httpx
import pytest

from mesh.rpc import admin
from services.console.process import ConsoleProcess
from services.console.settings import ConsoleSettings, ReadWithoutLogin
from tests.fixtures.consoles import OPERATOR, VIEWER, Consoled
from tests.fixtures.token_issuer import TokenIssuer
from tests.integration.control.world import CALL


async def test_a_viewer_reads_and_changes_nothing(console: Consoled) -> None:
    await console.grant("vera", VIEWER)
    async with console.person("vera") as vera:
        await vera.sees("/rules")
        answer = await vera.sends("/schedules", "/freeze", reason="x")
        assert answer.status_code == 403
        assert "needs the role operator; oidc:vera has viewer" in answer.text
        assert "Control takes changes." in await vera.sees("/schedules")


async def test_a_narrowed_viewer_sees_its_topics_and_nothing_else(console: Consoled) -> None:
    await console.world.set("shop.orders", "c1")
    await console.world.set("pay", "c1")
    await console.grant("vera", VIEWER, topic_prefixes=["shop."])
    async with console.person("vera") as vera:
        assert "Cluster c1" in await vera.sees("/explain?about=topic&name=shop.orders")
        other = "/explain?about=topic&name=pay"
        for path in ("/", "/rules", other, "/history", "/audit", "/users", "/grants", "/acls"):
            page = await vera.sees(path, 403)
            assert "oidc:vera has viewer for topics shop.*" in page
            assert "pay c1" not in page


async def test_a_token_without_a_grant_sees_nothing_and_does_not_borrow_the_consoles_rights(console: Consoled) -> None:
    async with console.visitor() as visitor:
        await visitor.sees("/rules")
        assert (await visitor.log_in(console.token("nobody"))).status_code == 303
        assert "oidc:nobody has no grant" in await visitor.sees("/rules", 403)


async def test_an_operator_changes_by_the_own_name(console: Consoled) -> None:
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        assert (await ada.sends("/schedules", "/freeze", reason="a test")).status_code == 303
        assert "oidc:ada Freeze" in await ada.sees("/audit")
    status = await console.world.status()
    assert status.frozen.actor == "oidc:ada"


async def test_who_has_not_logged_in_reads_by_the_certificate_and_has_no_form_that_changes(console: Consoled) -> None:
    await console.world.set("apples", "c1")
    async with console.visitor() as visitor:
        assert "apples" in await visitor.sees("/rules")
        page = (await visitor.client.get("/rules/apples")).text
        assert 'method="post" action="/' not in page
        key = (await visitor.client.get("/login")).text.partition('name="key" value="')[2].partition('"')[0]
        answer = await visitor.client.post("/freeze", data={"key": key, "reason": "x"})
        assert answer.status_code == 401
        assert "Changes need a log-in." in answer.text
    assert not (await console.world.status()).HasField("frozen")
    events = await console.world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(actor="console"), timeout=CALL)
    assert not events.audit_events, "the console never wanted to change anything by its own name"


@pytest.mark.parametrize("problem", ["expired", "forged", "nonsense"])
async def test_a_token_that_does_not_count_opens_no_session(console: Consoled, problem: str) -> None:
    tokens = {
        "expired": console.token("ada", expires_in=-600),
        "forged": TokenIssuer().token(iss=console.issuer.url, aud="mesh", sub="ada"),
        "nonsense": "two words",
    }
    async with console.visitor() as visitor:
        answer = await visitor.log_in(tokens[problem])
        assert answer.status_code in (400, 401)
        assert "Log out" not in (await visitor.client.get("/rules")).text


async def test_a_form_of_another_site_and_a_form_without_its_key_change_nothing(console: Consoled) -> None:
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        form = await ada.form("/schedules", "/freeze")
        refused = [
            await ada.client.post("/freeze", data={**form, "key": "0" * 64}),
            await ada.client.post("/freeze", data={name: value for name, value in form.items() if name != "key"}),
            await ada.client.post("/freeze", data=form, headers={"Origin": "http://evil.example"}),
            await ada.client.post("/freeze", data=form, headers={"Sec-Fetch-Site": "cross-site"}),
        ]
        assert [each.status_code for each in refused] == [403] * 4
        other = await ada.client.post("/freeze", data=form, headers={"Host": "evil.example"})
        assert other.status_code == 421
    assert not (await console.world.status()).HasField("frozen")


async def test_a_session_ends_with_its_log_out(console: Consoled) -> None:
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        cookie = dict(ada.client.cookies)
        answer = await ada.sends("/rules", "/logout")
        assert answer.status_code == 303
        async with console.visitor() as thief:
            thief.client.cookies.update(cookie)
            assert "Log out" not in (await thief.client.get("/rules")).text


async def test_headers_forbid_scripts_inside_pages_and_other_hosts(console: Consoled) -> None:
    async with console.visitor() as visitor:
        for path in ("/", "/login", "/static/console.js", "/none", "/live/none"):
            headers = (await visitor.client.get(path)).headers
            assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
            assert headers["x-content-type-options"] == "nosniff"
        page = (await visitor.client.get("/")).text
        assert "<style" not in page
        assert " style=" not in page
        assert " onclick=" not in page
        assert "://" not in page, "no other host"
        cookie = (await visitor.client.get("/login", headers={"Cookie": ""})).headers.get("set-cookie", "")
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie


async def test_without_reading_for_all_nobody_sees_a_page(console: Consoled) -> None:
    settings = ConsoleSettings(
        listen="127.0.0.1:0",
        control_address=f"127.0.0.1:{console.world.control.port}",
        token_address=f"127.0.0.1:{console.world.control.server.token_port}",
        rpc_tls_folder=console.world.settings.rpc_tls_folder,
        read_without_login=ReadWithoutLogin.NEVER,
    )
    strict = ConsoleProcess(settings, console.stopping)
    await strict.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{strict.port}", timeout=CALL) as client:
            answer = await client.get("/rules")
            assert answer.status_code == 401
            assert "Log in to see this mesh." in answer.text
            assert (await client.get("/live/status")).status_code == 204
    finally:
        await strict.stop()
