"""An assistant by a context and its login: the token of the person counts, as it is at each call, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from meshctl.contexts import FOLDER_VARIABLE
from tests.fixtures.assistants import Assistant, assistant
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.consoles import OPERATOR, VIEWER, Consoled, consoled
from tests.fixtures.databases import PostgresServer
from tests.fixtures.forked_meshctl import forked_meshctl

CONTEXT = "production"


@pytest.fixture
async def console(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> AsyncIterator[Consoled]:
    """A control that takes tokens; its console has no part in these stories."""
    clusters = {"c1": kafka_c1, "c2": kafka_c2}
    authority = Authority(tmp_path / "authority")
    async with consoled(postgres.migrated(), unique_name("assistant-events"), clusters, authority) as made:
        await made.world.set("shop.orders", "c1")
        await made.world.set("pay", "c1")
        yield made


class Person:
    """Somebody with a context, who logs in."""

    def __init__(self, console: Consoled, folder: Path) -> None:
        self._console, self._folder = console, folder
        self._token = folder / "token"
        self.logs_in("nobody")
        assert console.world.caller is not None
        ca = console.world.caller.folder / "ca.crt"
        port = console.world.control.server.token_port
        self._runs(
            "context",
            "set",
            CONTEXT,
            "--address",
            f"127.0.0.1:{port}",
            "--token-file",
            str(self._token),
            "--ca",
            str(ca),
        )
        self._runs("context", "use", CONTEXT)

    @property
    def _environment(self) -> dict[str, str]:
        return {FOLDER_VARIABLE: str(self._folder / "config")}

    def _runs(self, *arguments: str) -> None:
        done = forked_meshctl().call(arguments, self._environment, self._folder)
        assert done.returncode == 0, done.stderr

    def logs_in(self, name: str, **claims: int) -> None:
        """As `meshctl login` does: the file has another token."""
        self._token.write_text(self._console.token(name, **claims))
        self._token.chmod(0o600)

    def is_helped(self, *options: str) -> AbstractAsyncContextManager[Assistant]:
        return assistant(*options, environment=self._environment, folder=self._folder)


async def test_the_login_of_each_call_decides(console: Consoled, tmp_path: Path) -> None:
    await console.grant("vera", VIEWER)
    await console.grant("ada", OPERATOR)
    person = Person(console, tmp_path)
    wanted = {
        "match": "topic",
        "name": "shop.orders",
        "target_cluster": "c2",
        "reason": "x",
        "consents": ["accept_skip"],
    }
    async with person.is_helped("--allow-changes") as helper:
        assert "oidc:nobody has no grant" in (await helper.is_refused("list_rules"))["message"]

        person.logs_in("vera")
        assert len((await helper.asks("list_rules"))["rules"]) == 2
        plan = await helper.asks("plan_rule_set", **wanted)
        error = await helper.is_refused("carry_out", token=plan["token"])
        assert error["status"] == "PERMISSION_DENIED"
        assert "needs the role operator; oidc:vera has viewer" in error["message"]

        person.logs_in("ada")
        error = await helper.is_refused("carry_out", token=plan["token"])
        assert "counts once" in error["message"], "a refused plan is not kept for somebody else"
        plan = await helper.asks("plan_rule_set", **wanted)
        await helper.asks("carry_out", token=plan["token"])
        [entry, *_] = (await helper.asks("history"))["entries"]
        assert entry["actor"] == "oidc:ada"

        person.logs_in("ada", expires_in=-600)
        assert (await helper.is_refused("list_rules"))["status"] == "UNAUTHENTICATED"


async def test_a_narrowed_viewer_gets_the_own_part_and_no_word_more(console: Consoled, tmp_path: Path) -> None:
    await console.grant("vera", VIEWER, topic_prefixes=["shop."])
    person = Person(console, tmp_path)
    person.logs_in("vera")
    async with person.is_helped() as helper:
        assert (await helper.asks("explain_topic", topic="shop.orders"))["cluster"] == "c1"
        for tool, arguments in (
            ("explain_topic", {"topic": "pay"}), ("list_rules", {}), ("list_topics", {}), ("history", {}),
            ("mesh_status", {}), ("audit_calls", {}), ("explain_lag", {"topic": "pay"}),
        ):  # fmt: skip
            error = await helper.is_refused(tool, **arguments)
            assert "oidc:vera has viewer for topics shop.*" in error["message"], tool
