"""A real API server of Kubernetes with its etcd. Without nodes it checks and keeps objects, and runs no pod."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.kubernetes import tools

HOST = "127.0.0.1"
START_S = 120.0
REQUEST_S = 30.0
STOP_S = 20.0
TOKEN = "tests"  # opens a server of this test alone
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class ApiServer:
    """The server, as an administrator sees it."""

    client: httpx.Client
    kubeconfig: Path

    def create(self, path: str, found: dict[str, Any]) -> None:
        """A new object, or a failed assertion with the server's sentence."""
        answer = self.client.post(path, json=found, params={"fieldValidation": "Strict"})
        assert answer.is_success, answer.text

    def served(self, group: str) -> bool:
        return self.client.get(f"/apis/{group}").is_success

    def would_apply(self, found: dict[str, Any], namespace: str) -> list[str]:
        """Server-side apply as a trial: the server's error and warnings, if it has any."""
        prefix = f"/apis/{found['apiVersion']}" if "/" in found["apiVersion"] else f"/api/{found['apiVersion']}"
        kinds = {
            each["kind"]: each["name"]
            for each in self.client.get(prefix).json()["resources"]
            if "/" not in each["name"]
        }
        answer = self.client.patch(
            f"{prefix}/namespaces/{namespace}/{kinds[found['kind']]}/{found['metadata']['name']}",
            content=json.dumps(found),
            headers={"Content-Type": APPLY},
            params={"fieldManager": "tests", "fieldValidation": "Strict", "dryRun": "All"},
        )
        faults = [] if answer.is_success else [answer.json()["message"]]
        return [*faults, *answer.headers.get_list("warning")]


@contextlib.contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """Started with its etcd, in this folder; both end with the block."""
    etcd_port, peer_port, port = range((first := free_block(3)), first + 3)
    store = f"http://{HOST}:{etcd_port}"
    etcd = ["--data-dir", str(folder / "etcd"), "--listen-client-urls", store, "--advertise-client-urls", store,
            "--listen-peer-urls", f"http://{HOST}:{peer_port}", "--initial-advertise-peer-urls", f"http://{HOST}:{peer_port}",
            "--initial-cluster", f"default=http://{HOST}:{peer_port}", "--unsafe-no-fsync"]  # fmt: skip
    key, tokens = folder / "accounts.pem", folder / "tokens.csv"
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key.write_bytes(made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ))  # fmt: skip
    tokens.write_text(f"{TOKEN},admin,admin,system:masters\n", encoding="utf-8")
    server = [f"--etcd-servers={store}", f"--bind-address={HOST}", f"--secure-port={port}", f"--cert-dir={folder}",
              f"--token-auth-file={tokens}", "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
              "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
              f"--service-account-signing-key-file={key}"]  # fmt: skip
    with contextlib.ExitStack() as stack:
        stack.enter_context(_process("etcd", etcd, folder))
        process = stack.enter_context(_process("kube-apiserver", server, folder))
        url = f"https://{HOST}:{port}"
        # the server signs its own certificate
        client = stack.enter_context(
            httpx.Client(base_url=url, verify=False, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=REQUEST_S)
        )

        def is_ready() -> bool:
            assert process.poll() is None, (folder / "kube-apiserver.log").read_text(encoding="utf-8")[-3000:]
            with contextlib.suppress(httpx.TransportError):
                return client.get("/readyz").is_success
            return False

        wait_until(is_ready, "the API server is ready", START_S)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(url)), encoding="utf-8")
        yield ApiServer(client, kubeconfig)


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
        "clusters": [{"name": "tests", "cluster": {"server": url, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
    }


@contextlib.contextmanager
def _process(name: str, options: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([tools.program(name), *options], stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_S)
