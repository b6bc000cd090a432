"""Contexts and logins: what is kept, who can read it, and the device flow against a server that speaks it."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from click.testing import CliRunner, Result

from meshctl.cli import cli
from meshctl.contexts import FOLDER_VARIABLE
from meshctl.device_flow import GRANT, Login, token_of
from meshctl.failures import MeshctlError

TOKEN = "secret.secret.secret"


class Issuer:
    """Answers as RFC 8628 says; `answers` are those of the token endpoint, in their order."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)
        self.forms: list[dict[str, list[str]]] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say(
                    {
                        "issuer": issuer.url,
                        "device_authorization_endpoint": f"{issuer.url}/device",
                        "token_endpoint": f"{issuer.url}/token",
                    }
                )

            def do_POST(self) -> None:
                issuer.forms.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
                if self.path == "/device":
                    about = {"device_code": "dev", "user_code": "ABCD", "verification_uri": f"{issuer.url}/open"}
                    self._say({**about, "interval": 2, "expires_in": 60})
                    return
                answer = issuer.answers.pop(0)
                self._say(answer, 400 if "error" in answer else 200)

            def _say(self, said: dict[str, Any], status: int = 200) -> None:
                body = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name that the base class gives
                """Tests look at what was asked."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "config"))
    return tmp_path / "config"


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


class Time:
    """Goes on while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        return self.now


def test_a_login_waits_for_the_browser_as_long_as_the_issuer_says(issuer: Issuer) -> None:
    issuer.answers = [{"error": "authorization_pending"}, {"error": "slow_down"}, {"access_token": TOKEN}]
    time, shown = Time(), list[tuple[str, str]]()
    token = token_of(Login(issuer.url, "meshctl"), lambda *said: shown.append(said), time.wait, time.clock)
    assert token == TOKEN
    assert shown == [(f"{issuer.url}/open", "ABCD")]
    assert time.waits == [2, 2, 7]
    assert issuer.forms[0] == {"client_id": ["meshctl"], "scope": ["openid"]}
    assert issuer.forms[-1] == {"grant_type": [GRANT], "device_code": ["dev"], "client_id": ["meshctl"]}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"error": "access_denied"}, "refused in the browser"),
        ({"error": "expired_token"}, "expired_token"),
        ({}, "without a token"),
    ],
)
def test_a_login_that_fails_says_why(issuer: Issuer, answer: dict[str, Any], why: str) -> None:
    issuer.answers = [answer]
    time = Time()
    with pytest.raises(MeshctlError, match=why):
        token_of(Login(issuer.url, "meshctl"), lambda *_: None, time.wait, time.clock)


def test_a_login_ends_when_nobody_allows_it(issuer: Issuer) -> None:
    issuer.answers = [{"error": "authorization_pending"}] * 40
    time = Time()
    with pytest.raises(MeshctlError, match="nobody allowed the login in time"):
        token_of(Login(issuer.url, "meshctl"), lambda *_: None, time.wait, time.clock)
    assert time.now == 60


@pytest.mark.parametrize("url", ["http://login.example.com", "ftp://127.0.0.1"])
def test_no_token_travels_where_others_can_read_it(url: str) -> None:
    with pytest.raises(MeshctlError, match="only https is served"):
        token_of(Login(url, "meshctl"), lambda *_: None)


def test_an_issuer_that_calls_itself_another_one_is_refused(issuer: Issuer) -> None:
    with pytest.raises(MeshctlError, match="about another issuer"):
        token_of(Login(f"{issuer.url}/", "meshctl"), lambda *_: None)


def test_a_login_keeps_the_token_in_a_file_of_its_own_that_only_the_user_can_read(
    issuer: Issuer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshctl.device_flow.time.sleep", lambda _: None)
    issuer.answers = [{"access_token": TOKEN}, {"access_token": "second.second.second"}]
    assert run("context", "set", "prod", "--address", "control.example.com:7071").exit_code == 0
    done = run("login", "--issuer", issuer.url, "--client-id", "meshctl")
    assert done.exit_code == 0, done.output
    token = folder / "tokens" / "prod"
    assert token.read_text() == f"{TOKEN}\n"
    assert {stat.S_IMODE(each.stat().st_mode) for each in (token, folder / "contexts.json")} == {0o600}
    assert TOKEN not in (folder / "contexts.json").read_text() + done.output
    assert run("login").exit_code == 0
    assert token.read_text() == "second.second.second\n"


def test_a_login_takes_the_token_of_a_file(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o644)
    words = ("login", "--context", "prod", "--token-file", str(path))
    assert "chmod 600" in run(*words).output
    path.chmod(0o600)
    assert run(*words).exit_code == 0
    assert json.loads((folder / "contexts.json").read_text())["contexts"]["prod"] == {"token_file": str(path)}


def test_contexts_are_listed_used_and_changed(folder: Path) -> None:
    run("context", "set", "one", "--address", "a:1", "--tls-folder", "/certificates")
    run("context", "set", "two", "--address", "b:2", "--token-file", "/token")
    listed = json.loads(run("context", "list", "-o", "json").output)
    assert listed["current"] == "one"
    assert listed["contexts"]["two"] == {"address": "b:2", "token_file": "/token"}
    assert run("context", "use", "two").exit_code == 0
    run("context", "set", "two", "--token-file", "", "--ca", "/ca")
    listed = json.loads(run("context", "list", "-o", "json").output)
    assert (listed["current"], listed["contexts"]["two"]) == ("two", {"address": "b:2", "ca": "/ca"})
    assert "no context is called 'three' (known: one, two)" in run("context", "use", "three").output


def test_a_context_in_use_gives_the_address_and_an_address_of_ones_own_gets_no_token(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o644)  # meshctl names the file when it is about to send the token
    run("context", "set", "prod", "--address", "127.0.0.1:1", "--token-file", str(path))
    assert "chmod 600" in run("status").output
    assert "leave --address out" in run("--context", "prod", "--address", "127.0.0.1:2", "status").output
    elsewhere = run("--address", "127.0.0.1:2", "--timeout", "5", "status").output
    assert "127.0.0.1:2" in elsewhere
    assert "chmod" not in elsewhere


def test_a_file_of_contexts_that_is_damaged_says_so(folder: Path) -> None:
    folder.mkdir()
    (folder / "contexts.json").write_text("[]")
    assert "it is not what `meshctl context set` writes" in run("context", "list").output
