"""The workflow of a release calls what the repository has, and `.ci/release` does what a release needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from tests.plain_english import ROOT

WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = WORKFLOW["jobs"]["release"]["steps"]
RUN = [step["run"] for step in STEPS if "run" in step]
SCRIPT = (ROOT / ".ci" / "release").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
ON = True
"""YAML 1.1 reads the key `on` so."""


def test_a_tag_of_a_version_starts_it() -> None:
    assert WORKFLOW[ON] == {"push": {"tags": ["v*"]}}


def test_each_step_calls_targets_and_scripts_that_exist() -> None:
    called = {target for run in RUN for target in re.findall(r"^make (\S+)", run, re.MULTILINE)}
    scripts = {script for run in RUN for script in re.findall(r"(?:^|\s)(\.ci/\S+)", run)}
    assert (called, scripts) == ({"check"}, {".ci/release"})
    assert called <= TARGETS
    assert all(os.access(ROOT / script, os.X_OK) for script in scripts)


@pytest.mark.parametrize("run", [*RUN, SCRIPT])
def test_the_shell_takes_each_step(run: str) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    checked = subprocess.run([bash, "-n"], input=run, capture_output=True, text=True, timeout=30, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_step_gets_secrets_by_its_environment_alone() -> None:
    assert not [run for run in RUN if "${{" in run], "a value in a command line is code, and shows in the log"


def test_each_action_has_a_version_and_the_tools_of_the_script_are_there() -> None:
    actions = dict(step["uses"].split("@") for step in STEPS if "uses" in step)
    assert all(re.fullmatch(r"v\d+", version) for version in actions.values())
    for tool, action in (
        ("docker buildx build", "docker/setup-buildx-action"),
        ("cosign sign", "sigstore/cosign-installer"),
    ):
        assert tool in SCRIPT
        assert action in actions


def test_images_are_for_two_platforms_with_sbom_provenance_and_signature() -> None:
    (build,) = re.findall(r"docker buildx build (.+?)\n +digest=", SCRIPT, re.DOTALL)
    for option in ("--platform linux/amd64,linux/arm64", "--sbom=true", "--provenance=mode=max", "--push"):
        assert option in build
    assert re.search(r"cosign sign --yes \"\$RELEASE_IMAGES-\$service@\$digest\"", SCRIPT)
    (services,) = re.findall(r"^services=\((.*)\)$", SCRIPT, re.MULTILINE)
    assert {"control", "router", "gateway", "sidecar", "console", "pipeline", "meshctl"} == set(services.split())


def test_images_run_as_an_ordinary_user() -> None:
    stage = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8").rpartition("FROM ")[2]
    assert re.search(r"^USER mesh$", stage, re.MULTILINE)
