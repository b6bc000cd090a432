"""`.ci/release` makes what docs/how-to/install-on-servers.md installs; the units are good ones for systemd."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.fixtures.pages import steps
from tests.fixtures.toolchains import need
from tests.plain_english import ROOT

PAGE = ROOT / "docs/how-to/install-on-servers.md"
UNITS = ROOT / "deploy/systemd"
WHERE = "/opt/kafka-mesh"
MOST_EXPOSED = 20
"""In tenths, as `systemd-analyze security` counts: a service without any bounds has 96."""
KEY = "releases@example.com"
WITHIN_S = 600


def run(
    command: list[str], where: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    merged = {**os.environ, **(environment or {})}
    return subprocess.run(command, cwd=where, env=merged, check=False, capture_output=True, text=True, timeout=WITHIN_S)


@pytest.mark.parametrize("unit", ["kafka-mesh@gateway", "kafka-mesh-job@archive"])
def test_systemd_takes_each_unit_and_finds_it_well_bounded(unit: str, tmp_path: Path) -> None:
    need("systemd-analyze")
    program = tmp_path / "kafka-mesh"
    program.write_text("#!/bin/sh\n", encoding="ascii")
    program.chmod(0o755)
    text = (UNITS / f"{unit.partition('@')[0]}@.service").read_text(encoding="utf-8")
    (tmp_path / f"{unit}.service").write_text(text.replace(f"{WHERE}/bin/kafka-mesh", str(program)), encoding="utf-8")
    verified = run(["systemd-analyze", "verify", "--man=no", f"./{unit}.service"], tmp_path)
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", f"./{unit}.service"], tmp_path
    )
    assert judged.returncode == 0, judged.stdout


def test_a_tag_of_another_version_is_refused(tmp_path: Path) -> None:
    refused = run([str(ROOT / ".ci/release"), "v99.0.0"], tmp_path, {"RELEASE_KEY": KEY})
    assert refused.returncode == 1
    assert "the tag is v99.0.0, and pyproject.toml has version" in refused.stderr


def test_a_release_without_a_key_is_refused(tmp_path: Path) -> None:
    refused = run([str(ROOT / ".ci/release"), "v0.1.0"], tmp_path, {"RELEASE_KEY": ""})
    assert refused.returncode != 0
    assert "who signs?" in refused.stderr


@pytest.fixture
def keyring() -> Iterator[Path]:
    """A keyring with a key that lives for a day. Its path is short: the agent has a socket there."""
    with tempfile.TemporaryDirectory(prefix="k") as folder:
        made = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", KEY, "ed25519", "sign", "1d"]
        subprocess.run(made, env={**os.environ, "GNUPGHOME": folder}, check=True, capture_output=True, timeout=60)
        yield Path(folder)
        subprocess.run(["gpgconf", "--homedir", folder, "--kill", "all"], check=False, timeout=60)


@pytest.mark.soak
@pytest.mark.timeout(2 * WITHIN_S)
def test_a_release_is_verified_and_installed_as_the_page_says(keyring: Path, tmp_path: Path) -> None:
    need("gpg")
    settings = {"GNUPGHOME": str(keyring), "RELEASE_KEY": KEY, "RELEASE_IMAGES": ""}
    tag = "v0.1.0"
    made = run([str(ROOT / ".ci/release"), tag], ROOT, settings)
    assert made.returncode == 0, made.stderr
    release, where = tmp_path / "release", tmp_path / "opt"
    shutil.move(ROOT / "dist", release)
    assert len(list(release.glob("kafka_mesh-0.1.0-*manylinux*.whl"))) == 1
    for step in steps(PAGE.read_text(encoding="utf-8")):
        done = run(["bash", "-euc", step.typed.replace(WHERE, str(where))], release, settings)
        assert done.returncode == 0, f"{step.typed}\n{done.stdout}\n{done.stderr}"
    compiled = "import sys; from services.gateway import copies; sys.exit(copies.taken())"
    ran = run([str(where / "bin/python"), "-c", compiled], tmp_path)
    assert ran.returncode == 0, f"the wheel has no compiled modules: {ran.stderr}"

    with next(release.glob("*.whl")).open("ab") as wheel:
        wheel.write(b"tampered")
    assert run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], release).returncode == 1


@pytest.mark.soak
@pytest.mark.timeout(2 * WITHIN_S)
def test_an_operator_installs_the_wheel_with_an_extra_as_pipx_does(tmp_path: Path) -> None:
    """pipx makes an environment of its own, installs there by pip, and links the commands."""
    made = run([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)], ROOT)
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    environment = tmp_path / "venv"
    assert run([sys.executable, "-m", "venv", str(environment)], tmp_path).returncode == 0
    installed = run([str(environment / "bin/pip"), "install", "--quiet", f"{wheel}[meshctl]"], tmp_path)
    assert installed.returncode == 0, installed.stderr
    for command in ("meshctl", "kafka-mesh"):
        version = run([str(environment / "bin" / command), "--version"], tmp_path)
        assert (version.returncode, version.stderr) == (0, ""), version.stderr
        assert version.stdout.strip().endswith(wheel.name.split("-")[1])
