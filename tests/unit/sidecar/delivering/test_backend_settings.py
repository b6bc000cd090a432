"""What may be said of the backend, and what is refused by name."""

from typing import Any

import pytest
from pydantic import ValidationError

from services.sidecar.delivering.policy import WhenExhausted
from services.sidecar.delivering.settings import BackendSettings
from services.sidecar.wiring.delivering import backend_access, delivery_policy


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"backend_url": "localhost:8081"}, "backend_url"),
        ({"backend_url": "http://user:password@localhost"}, "backend_url"),
        ({"backend_url": "http://localhost/path"}, "backend_url"),
        ({"backend_path": "records"}, "backend_path"),
        ({"backend_routes": [{"when": "value ==", "path": "/a"}]}, "route 1: 'value =='"),
        ({"backend_routes": [{"when": "true", "path": "a"}]}, "path"),
        ({"backend_key": "key.pem"}, "backend_certificate is not"),
        ({"backend_token_url": "https://issuer/token"}, "backend_token_client_id is not"),
        ({"backend_headers": {"a b": "c"}}, "'a b' is not the name of a header"),
        ({"backend_headers": {"X-Key": "hush\r\nX-Evil: 1"}}, "no line breaks"),
        ({"backend_rollback_threshold": 101}, "backend_rollback_threshold"),
        (
            {
                "backend_token_url": "https://issuer/token", "backend_token_client_id": "me",
                "backend_headers": {"authorization": "Basic eA=="},
            },
            "exclude each other",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_and_no_secret_told(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError) as refused:
        BackendSettings(**wrong)
    said = [error["msg"] + str(error["loc"]) for error in refused.value.errors()]
    assert any(complaint in one for one in said)
    assert not any("hush" in one for one in said)


def test_without_dead_letters_records_are_tried_for_ever_unless_it_is_said() -> None:
    assert delivery_policy(BackendSettings(), has_dead_letters=True).when_exhausted is WhenExhausted.DEAD_LETTER
    assert delivery_policy(BackendSettings(), has_dead_letters=False).when_exhausted is WhenExhausted.RETRY
    drops = BackendSettings(backend_when_exhausted=WhenExhausted.DROP)
    assert delivery_policy(drops, has_dead_letters=False).when_exhausted is WhenExhausted.DROP


def test_times_are_milliseconds_and_secrets_are_not_shown() -> None:
    settings = BackendSettings.model_validate(
        {
            "backend_timeout_ms": 1500, "backend_headers": {"X-Key": "hush"}, "backend_token_url": "https://issuer/token",
            "backend_token_client_id": "me", "backend_token_client_secret": "hush", "backend_key_password": "hush",
        }
    )  # fmt: skip
    access = backend_access(settings)
    assert (access.timeout, access.headers) == (1.5, (("X-Key", "hush"),))
    assert "hush" not in f"{settings!r} {access!r}"
