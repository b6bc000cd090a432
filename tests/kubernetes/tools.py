"""Helm, kubeconform, kube-apiserver and etcd: built by Go from the versions that `tools/go.mod` pins.

Their modules have the schemas as well: that of Kubernetes has the OpenAPI of all its objects, that of cert-manager the
definitions of its own. The first build takes minutes, and needs a Go module proxy; later runs find the programs in the
user's cache.
"""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.clients import builds
from tests.fixtures.toolchains import need

MODULE = Path(__file__).parent / "tools"
PINS = [MODULE / "go.mod", MODULE / "go.sum"]
BUILD_TIMEOUT_SECONDS = 3600.0
"""The API server alone takes many minutes of a busy machine."""
CERT_MANAGER = "github.com/cert-manager/cert-manager@v1.21.2"
"""Its definitions alone are read, so it is no part of tools/go.mod."""
KUBERNETES = "k8s.io/kubernetes"
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "helm": "helm.sh/helm/v3/cmd/helm",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform",
}

Schema = dict[str, Any]


@cache
def program(name: str) -> Path:
    """The program of this name, of a pinned module."""
    (go,) = need("go")
    package = PACKAGES[name]

    def build(working: Path) -> None:
        # without its release the server calls itself v0.0.0, and Helm refuses to install
        release = f"-X=k8s.io/component-base/version.gitVersion=v{kubernetes_release()}"
        flags = ["-buildvcs=false", f"-ldflags=-s -w {release}"]
        command: list[str | Path] = [go, "build", *flags, "-o", working / name, package]
        builds.run(command, folder=MODULE, timeout_seconds=BUILD_TIMEOUT_SECONDS)

    return builds.built(name, PINS, build) / name


@cache
def kubernetes_release() -> str:
    """The release whose objects are checked, as 1.37.0."""
    pinned = next(line.split() for line in PINS[0].read_text(encoding="utf-8").splitlines() if KUBERNETES in line)
    return pinned[1].removeprefix("v")


def custom_definitions() -> list[Path]:
    """The definitions of Certificate and Issuer."""
    return sorted((_source(CERT_MANAGER) / "deploy" / "crds").glob("cert-manager.io_*.yaml"))


@cache
def schemas() -> Path:
    """A folder with a JSON schema for each kind of object, in which unknown fields are refused."""

    def build(working: Path) -> None:
        openapi = json.loads((_source(KUBERNETES) / "api" / "openapi-spec" / "swagger.json").read_bytes())
        definitions = {name: _strict(each) for name, each in openapi["definitions"].items()}
        (working / "all.json").write_text(json.dumps({"definitions": definitions}), encoding="utf-8")
        for name, each in openapi["definitions"].items():
            for kind in each.get("x-kubernetes-group-version-kind", ()):
                target = _file(working, kind["group"], kind["version"], kind["kind"])
                target.write_text(json.dumps({"$ref": f"all.json#/definitions/{name}"}), encoding="utf-8")
        for path in custom_definitions():
            spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
            for version in spec["versions"]:
                found = _strict(version["schema"]["openAPIV3Schema"])
                found["properties"]["metadata"] = {"type": "object"}
                target = _file(working, spec["group"], version["name"], spec["names"]["kind"])
                target.write_text(json.dumps(found), encoding="utf-8")

    return builds.built("kubernetes-schemas", [*PINS, Path(__file__)], build)


def _file(folder: Path, group: str, version: str, kind: str) -> Path:
    """Named as kubeconform looks for it."""
    parts = [kind, *filter(None, [group.partition(".")[0]]), version]
    return folder / f"{'-'.join(parts).lower()}.json"


def _strict(schema: Schema) -> Schema:
    """An OpenAPI schema as a JSON schema: fields without a definition are refused, numbers may stand for texts."""
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    found: Schema = {}
    for name, value in schema.items():
        if name == "$ref":
            found[name] = value.replace("#/definitions/", "all.json#/definitions/")
        elif name == "properties":
            found[name] = {field: _strict(each) for field, each in value.items()}
        elif name in ("items", "additionalProperties") and isinstance(value, dict):
            found[name] = _strict(value)
        elif not name.startswith("x-") and name not in ("format", "default", "description", "nullable"):
            found[name] = value
    is_open = "additionalProperties" in found or schema.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in found and not is_open:
        found["additionalProperties"] = False
    return found


@cache
def _source(module: str) -> Path:
    """The folder of a module's sources."""
    (go,) = need("go")
    step = subprocess.run(
        [go, "mod", "download", "-json", module],
        cwd=MODULE,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_SECONDS,
        check=False,
    )
    if step.returncode != 0:
        raise RuntimeError(f"could not fetch {module}: {(step.stdout + step.stderr)[-2000:]}")
    return Path(json.loads(step.stdout)["Dir"])
