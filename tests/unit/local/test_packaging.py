"""What pyproject.toml and the locks promise."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_what_builds_the_package_is_what_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert project["build-system"]["requires"] == project["project"]["optional-dependencies"]["build"]


def test_locks_carry_hashes_and_no_addresses() -> None:
    locks = sorted((ROOT / "locks").glob("*.txt"))
    assert {lock.stem for lock in locks} >= {
        "dev",
        "control",
        "router",
        "gateway",
        "sidecar",
        "local",
        "pipeline",
        "uv",
    }
    for lock in locks:
        text = lock.read_text(encoding="utf-8")
        assert "://" not in text, lock.name
        pins = re.findall(r"^[a-zA-Z0-9][\w.-]*==\S+.*$", text, re.MULTILINE)
        assert pins and all(pin.endswith("\\") for pin in pins), lock.name


APART = ("dev", "quix", "uv")
"""`quix` is of an environment of its own: Quix Streams needs older releases than the mesh."""


def test_locks_agree_with_each_other() -> None:
    everything = _pins("dev")
    for lock in (ROOT / "locks").glob("*.txt"):
        if lock.stem not in APART:
            for pin, version in _pins(lock.stem).items():
                assert everything.get(pin, version) == version, f"{lock.name}: {pin[0]}"


def _pins(lock: str) -> dict[tuple[str, str], str]:
    text = (ROOT / "locks" / f"{lock}.txt").read_text(encoding="utf-8")
    found = re.findall(r"^([a-zA-Z0-9][\w.-]*)==(\S+)(.*)\\$", text, re.MULTILINE)
    return {(name, marker.strip()): version for name, version, marker in found}


START_WITH_A_LOCK = """
import importlib, re, sys
from importlib.metadata import packages_distributions

service, lock = sys.argv[1:]
spelled = lambda name: re.sub(r"[-_.]+", "-", name).lower()
locked = {spelled(line.split("==")[0]) for line in open(lock) if "==" in line} | {"kafka-mesh"}
absent = {name for name, owners in packages_distributions().items() if not {spelled(one) for one in owners} & locked}

class Image:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)

sys.meta_path.insert(0, Image())
importlib.import_module(f"services.{service}.__main__")
"""


@pytest.mark.parametrize("service", ["control", "router", "gateway", "sidecar", "console"])
def test_the_image_of_a_service_has_what_the_service_imports(service: str) -> None:
    lock = ROOT / "locks" / f"{service}.txt"
    command = [sys.executable, "-c", START_WITH_A_LOCK, service, str(lock)]

    started = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert started.returncode == 0, started.stderr[-2000:]
