"""Each block of code on a page is run by a test, or says why not. Pictures and outputs have no language, or `text`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from local.services import PORTS
from services.sidecar.settings import SidecarSettings
from tests.fixtures.pages import blocks
from tests.plain_english import ROOT
from tests.unit.test_pages import name, pages

RUN_BY = {
    "README.md": ("e2e/test_readme.py", "e2e/test_envoy_yaml.py"),
    "docs/concepts/reactive-consumer.md": ("unit/test_blocks.py",),
    "docs/how-to/authorize-clients.md": ("e2e/test_page_blocks.py",),
    "docs/how-to/back-up-and-restore.md": ("e2e/test_how_to.py",),
    "docs/how-to/client-authentication.md": ("e2e/test_page_blocks.py",),
    "docs/how-to/declare-subscriptions.md": ("e2e/test_page_blocks.py",),
    "docs/how-to/install-on-servers.md": ("e2e/test_release.py",),
    "docs/how-to/limit-clients.md": ("e2e/test_page_blocks.py",),
    "docs/how-to/member-certificates.md": ("e2e/test_page_blocks.py",),
    "docs/how-to/migrate-from-envoy.md": ("e2e/test_page_blocks.py",),
    "docs/how-to/migrate-from-kroxylicious.md": ("e2e/test_migrate_from_kroxylicious.py",),
    "docs/how-to/migrate-from-mirrormaker-2.md": ("e2e/test_migrate_from_mirror_maker.py",),
    "docs/how-to/monitor-and-alert.md": ("unit/test_blocks.py",),
    "docs/how-to/production-topology.md": ("e2e/test_how_to.py", "e2e/test_page_blocks.py"),
    "docs/how-to/recover-from-loss.md": (
        "e2e/test_how_to.py",
        "e2e/test_page_blocks.py",
        "e2e/test_home_cluster_lost.py",
    ),
    "docs/how-to/roles.md": ("e2e/test_page_blocks.py",),
    "docs/how-to/protect-fields.md": ("e2e/test_page_blocks.py",),
    "docs/how-to/validate-records.md": ("e2e/test_page_blocks.py",),
    "docs/how-to/see-who-has-read.md": ("e2e/pipeline/test_receipts.py",),
    "docs/how-to/secure-a-mesh.md": ("e2e/test_how_to.py",),
    "docs/how-to/tenants.md": ("e2e/test_page_blocks.py",),
    "docs/how-to/topologies.md": ("unit/sidecar/streams/test_page.py",),
    "docs/how-to/upgrade.md": ("e2e/test_how_to.py",),
    "docs/reference/sidecar-calls.md": ("e2e/test_page_blocks.py",),
    "docs/reference/sidecar-formats.md": ("e2e/test_page_blocks.py",),
    "docs/tutorials/look-inside.md": ("e2e/test_tutorials.py",),
    "docs/tutorials/move-a-topic.md": ("e2e/test_tutorials.py",),
    "docs/tutorials/pipeline.md": ("e2e/pipeline/test_tutorial.py",),
    "docs/tutorials/secured-mesh.md": ("e2e/test_secured_mesh_tutorial.py",),
    "docs/tutorials/sidecar.md": ("e2e/test_sidecar_tutorial.py",),
    "meshctl/README.md": ("e2e/test_page_blocks.py",),
    "services/sidecar/README.md": ("e2e/test_page_blocks.py",),
}
"""The tests that run the blocks of a page, below `tests`."""
WRITTEN = ("docs/reference/meshctl-options.md", "docs/reference/grpc-calls.md")
"""By `make reference`; test_command_lines.py parses each line of a command."""
NO_CODE = ("", "text")
SETTINGS = "ini"
"""test_command_lines.py knows each setting."""
COMMAND = re.compile(
    r"^(\.venv/bin/|curl |docker |kubectl |make |meshctl .*(?<!\.)$(?!\n.* {3})|kafka-mesh |KAFKA_MESH_\w+=)"
)
FENCE = re.compile(
    r"(<!-- not run: (?P<why>[^\n]+) -->\n)?^```(?P<language>\w*)\n(?P<block>.*?)^```$", re.MULTILINE | re.DOTALL
)
NAMED_TEST = re.compile(r"\btests/[\w/]+(?:\.py)?")


def fences(page: Path) -> list[re.Match[str]]:
    return list(FENCE.finditer(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", [page for page in pages() if name(page) not in WRITTEN], ids=name)
def test_each_block_is_run_or_says_why_not(page: Path) -> None:
    code = [each for each in fences(page) if each["language"] not in (*NO_CODE, SETTINGS) and not each["why"]]
    assert not code or name(page) in RUN_BY, f"no test runs {code[0]['block']!r}"


@pytest.mark.parametrize("page", pages(), ids=name)
def test_a_block_of_commands_is_one_for_a_shell(page: Path) -> None:
    untitled = [each["block"] for each in fences(page) if each["language"] in NO_CODE]
    assert not [block for block in untitled if COMMAND.match(block) and page.name != "meshctl-commands.md"]


@pytest.mark.parametrize("page", RUN_BY)
def test_the_test_of_a_page_names_the_page(page: str) -> None:
    path = ROOT / page
    assert any(each["language"] not in NO_CODE and not each["why"] for each in fences(path)), "nothing is run"
    for test in RUN_BY[page]:
        source = (ROOT / "tests" / test).read_text(encoding="utf-8")
        assert path.name in source or (path.name == "README.md" and "README" in source), test


@pytest.mark.parametrize("page", pages(), ids=name)
def test_a_reason_names_tests_that_exist(page: Path) -> None:
    named = [test for each in fences(page) if each["why"] for test in NAMED_TEST.findall(each["why"])]
    assert not [test for test in named if not (ROOT / test).exists()]


def test_the_sidecar_takes_the_subscriptions_of_the_page() -> None:
    (block,) = blocks((ROOT / "docs/concepts/reactive-consumer.md").read_text(encoding="utf-8"), "json")
    settings = SidecarSettings(subscriptions=json.loads(block))
    assert [each.name for each in settings.subscriptions] == ["orders", "prices"]


def test_the_page_scrapes_ports_and_jobs_that_exist() -> None:
    (block,) = blocks((ROOT / "docs/how-to/monitor-and-alert.md").read_text(encoding="utf-8"), "yaml")
    ours = yaml.safe_load((ROOT / "deploy/monitoring/prometheus.yaml").read_text(encoding="utf-8"))
    shown = yaml.safe_load(block)
    assert all((ROOT / "deploy/monitoring" / file).exists() for file in shown["rule_files"])
    for job in shown["scrape_configs"]:
        service = job["job_name"].removeprefix("kafka-mesh-")
        assert job["job_name"] in [each["job_name"] for each in ours["scrape_configs"]]
        targets = job["static_configs"][0]["targets"]
        assert {int(target.rpartition(":")[2]) for target in targets} == {PORTS[f"{service}-metrics"]}
