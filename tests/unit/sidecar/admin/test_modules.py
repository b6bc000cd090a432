"""Reloading parts of a running sidecar."""

import pytest

from services.sidecar.admin.modules import Modules


@pytest.fixture
def reloaded() -> list[str]:
    return []


@pytest.fixture
def modules(reloaded: list[str]) -> Modules:
    async def certificate() -> None:
        reloaded.append("tls")

    async def keys() -> None:
        reloaded.append("security")

    async def broken() -> None:
        raise OSError("no such file")

    return Modules({"tls": certificate, "security": keys, "settings": broken})


async def test_named_ones_are_reloaded_and_unknown_ones_left_out(modules: Modules, reloaded: list[str]) -> None:
    assert await modules.reload(["tls", "com.networknt.unknown"]) == ["tls"]
    assert reloaded == ["tls"]


@pytest.mark.parametrize("asked", [[], ["ALL"], ["tls", "ALL"]])
async def test_all_are_reloaded_but_those_that_fail(modules: Modules, reloaded: list[str], asked: list[str]) -> None:
    assert await modules.reload(asked) == ["security", "tls"]
    assert reloaded == ["security", "tls"]
