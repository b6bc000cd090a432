"""No setting shows its secret: not in what is printed of it, not where it is refused, not in the help."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from mesh.settings import load
from tests.fixtures.secret_settings import (
    LITERAL_TOO,
    LOOKS_SECRET,
    NO_SECRETS,
    REFERENCES,
    SERVICES,
    SecretSetting,
    holds_secrets,
    secret_settings,
)

PLANTED = "planted-Tr0ub4dor&3"
SETTINGS = list(secret_settings())
NEEDED = {
    "KAFKA_MESH_CONTROL_DATABASE_URL": "postgresql://127.0.0.1:1/mesh",
    "KAFKA_MESH_CONTROL_HOME_BOOTSTRAP_SERVERS": "127.0.0.1:1",
}


def told(setting: SecretSetting) -> str:
    return f"{setting.settings.__name__}.{setting.name}"


@pytest.fixture(autouse=True)
def needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in NEEDED.items():
        monkeypatch.setenv(variable, value)


def outcome(setting: SecretSetting, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, bool]:
    """All that a start prints, and of its settings; and whether the settings were taken."""
    try:
        settings = load(setting.settings, list(arguments))
    except SystemExit:
        return "".join(capsys.readouterr()), False
    shown = f"{settings!r} {settings}"
    if holds_secrets(setting.annotation):
        shown += f"{settings.model_dump()} {settings.model_dump_json()}"
    return shown + "".join(capsys.readouterr()), True


def test_a_setting_that_looks_like_a_secret_has_the_type_of_one_or_takes_references_alone() -> None:
    for settings in SERVICES:
        for name, field in settings.model_fields.items():
            is_known = holds_secrets(field.annotation) or name in REFERENCES | NO_SECRETS
            assert is_known or not LOOKS_SECRET.search(name), f"{settings.__name__}.{name}"
    assert len(SETTINGS) > 25


@pytest.mark.parametrize("setting", SETTINGS, ids=told)
def test_a_secret_is_printed_nowhere_and_a_literal_one_is_refused_where_a_reference_is_due(
    setting: SecretSetting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(setting.variable, setting.with_secret(PLANTED))
    shown, taken = outcome(setting, capsys)
    assert PLANTED not in shown
    if not holds_secrets(setting.annotation) and setting.name != LITERAL_TOO:
        assert not taken
        assert setting.name in shown


@pytest.mark.parametrize("setting", SETTINGS, ids=told)
def test_a_start_that_another_setting_ends_and_the_help_print_no_secret(
    setting: SecretSetting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(setting.variable, setting.with_secret(PLANTED))
    assert PLANTED not in outcome(setting, capsys, "--help")[0]
    for faulty in ("LOG_LEVEL__NONE", "NO_SUCH_SETTING", "METRICS_LISTEN", "RPC_TLS_FOLDER"):
        variable = f"KAFKA_MESH_{setting.settings.service.upper()}_{faulty}"
        with monkeypatch.context() as patched:
            patched.setenv(variable, "no-such-thing")
            assert PLANTED not in outcome(setting, capsys)[0]


@pytest.mark.parametrize("setting", [each for each in SETTINGS if holds_secrets(each.annotation)], ids=told)
def test_the_value_itself_shows_nothing(setting: SecretSetting) -> None:
    text = setting.with_secret(PLANTED)
    adapter = TypeAdapter(setting.annotation)
    value = adapter.validate_json(text) if text.startswith("{") else adapter.validate_python(text)
    assert PLANTED not in f"{value!r} {value} {adapter.dump_json(value)!r}"
