"""Subscriptions of sidecars through a real control, by the commands that an operator types."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

Meshctl = Callable[..., subprocess.CompletedProcess[str]]
OURS = ("sidecars", "subscriptions")


def test_the_life_of_a_subscription(meshctl: Meshctl) -> None:
    assert "No subscription is declared." in meshctl(*OURS, "list").stdout
    reads = ("--sidecar", "shop-*", "--sidecar", "till", "--topic", "orders", "--group", "shop")
    more = ("--path", "/orders", "--route", "key == 'x' -> /x", "--set", "maxRetries=7", "--set", "exactly_once=true")
    added = meshctl(*OURS, "add", "orders", *reads, *more, "--reason", "a shop opens").stdout
    assert added.startswith("subscription orders is declared for shop-*, till (revision ")
    revision = int(added.rpartition(" ")[2].rstrip(")\n"))
    (declared,) = json.loads(meshctl(*OURS, "list", "-o", "json").stdout)["subscriptions"]
    assert {member: value for member, value in declared["spec"].items() if value} == {
        "topics": ["orders"],
        "group": "shop",
        "path": "/orders",
        "routes": [{"when": "key == 'x'", "path": "/x"}],
        "max_retries": 7,
        "exactly_once": True,
    }
    assert (declared["sidecars"], declared["reason"]) == (["shop-*", "till"], "a shop opens")
    assert "orders" in meshctl(*OURS, "list", "shop-9").stdout
    assert "No subscription is declared." in meshctl(*OURS, "list", "bakery").stdout
    explained = meshctl(*OURS, "explain", "orders").stdout
    assert f"(revision {revision}): a shop opens\n  no sidecar that control hears has it" in explained

    meshctl(*OURS, "add", "orders", *reads, "--path", "/other")
    meshctl(*OURS, "remove", "orders", "--reason", "it closes")
    back = meshctl(*OURS, "revert", str(revision)).stdout
    assert back.startswith(f"the subscriptions of revision {revision} are back (revision ")
    assert "are those of revision" in meshctl(*OURS, "revert", str(revision)).stdout
    told = meshctl("history", "--subscription", "orders").stdout
    for sentence in (
        "subscription orders declared for sidecars shop-*, till: orders",
        "subscription orders: path /orders -> /other, routes ",
        "max_retries 7 -> unset",
        "subscription orders withdrawn",
    ):
        assert sentence in told
    meshctl(*OURS, "remove", "orders")


def test_what_is_wrong_is_named(meshctl: Meshctl) -> None:
    def fails(code: int, *arguments: str) -> str:
        ran = meshctl(*OURS, *arguments, check=False)
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stderr

    reads = ("--sidecar", "shop", "--topic", "orders")
    assert "no MEMBER=VALUE; members are auto_offset_reset" in fails(2, "add", "orders", *reads, "--set", "speed=9")
    assert "maxRetries is a number" in fails(2, "add", "orders", *reads, "--set", "maxRetries=many")
    assert "exactlyOnce is true or false" in fails(2, "add", "orders", *reads, "--set", "exactlyOnce=1")
    assert "no 'CEL -> PATH'" in fails(2, "add", "orders", *reads, "--route", "/x")
    assert "maxRetries: Input should be greater" in fails(2, "add", "orders", *reads, "--set", "maxRetries=-1")
    assert "no subscription 'nothing'" in fails(4, "remove", "nothing")
    assert "nobody has declared a subscription 'nothing'" in fails(4, "explain", "nothing")
