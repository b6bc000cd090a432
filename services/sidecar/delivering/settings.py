"""Settings of the backend that gets records, and of its failures."""

from pathlib import Path

from pydantic import BaseModel, Field, PositiveInt, SecretStr, model_validator

from mesh.settings import WordList
from mesh.subscriptions import (
    MOST_ROUTES,
    BackendRoute,
    Content,
    DelayMs,
    HeadersAs,
    MaxRetries,
    RollbackThreshold,
)
from mesh.subscriptions import (
    Path as BackendPath,
)
from services.sidecar.delivering.policy import WhenExhausted
from services.sidecar.delivering.routing import ContentRouting, Route

BACKEND_ADDRESS = r"^https?://(\[[0-9a-fA-F:.]+\]|[^\s/?#@:\[\]]+)(:\d{1,5})?/?$"


class BackendSettings(BaseModel):
    """A part of SidecarSettings."""

    backend_url: str = Field(default="http://localhost:8081", pattern=BACKEND_ADDRESS)
    """The backend beside this sidecar: see `docs/reference/backend-deliveries.md`."""
    backend_hosts: WordList = ()
    """Hosts to which an operator's order may send records, besides this machine and the host of backend_url.

    An order must not send records, and the backend's token with them, to any other host.
    """
    backend_path: BackendPath = "/kafka/records"
    """The backend's path for records."""
    backend_health_path: BackendPath = "/health"
    """The backend's path for health, which the sidecar requests when a call fails. While the path answers, even with
    404, a failure may be a record's fault."""
    backend_routes: tuple[BackendRoute, ...] = Field(default=(), max_length=MOST_ROUTES)
    """Rules of content (JSON or YAML): the first that is true of a record decides its path; backend_path otherwise."""
    backend_content: Content = "records"
    """The body that the backend gets: the original's array of records, or a batch of CloudEvents."""
    backend_headers_as: HeadersAs = "map"
    """How a record's headers look: names and texts, or a list of {key, value} with values in base64."""
    backend_timeout_ms: PositiveInt = 300_000
    """The time-out of one call, to the last byte of its answer."""
    backend_connect_timeout_ms: PositiveInt = 5_000
    """The time-out of a call's connection."""
    backend_max_answer_bytes: PositiveInt = 4 * 1024 * 1024
    """The bound of an answer; the rest of a larger answer is not read."""
    backend_max_record_bytes: PositiveInt | None = None
    """Key and value of a record that the backend is given; a larger one is given up at once. No bound unless set."""
    backend_max_connections: PositiveInt = 100
    """The most connections to the backend."""
    backend_connection_reset: bool = False
    """Whether each call has a connection of its own (`Connection: close`), which some servers need."""
    backend_headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Headers of each call, Authorization for example; values may be `${env:NAME}` or `${file:/path}`."""
    backend_token_url: str = Field(default="", pattern=r"^(https?://[^@\s#]+)?$")
    """The address that issues a bearer token for each call, by the client-credentials grant; empty for no token."""
    backend_token_client_id: str = ""
    """The client's id for that address; may be `${env:NAME}` or `${file:/path}`."""
    backend_token_client_secret: SecretStr = SecretStr("")
    """The client's secret for that address; may be `${env:NAME}` or `${file:/path}`."""
    backend_token_scope: str = ""
    """The scope of the token; empty for none."""
    backend_token_audience: str = ""
    """The audience of the token; empty for none."""
    backend_token_timeout_ms: PositiveInt = 5_000
    """The time-out of a request for a token."""
    backend_ca: Path | None = None
    """The authorities, in PEM, that may sign for the backend and for the issuer of tokens; empty: those of the system.
    """
    backend_certificate: Path | None = None
    """The sidecar's own certificate for the backend, in PEM."""
    backend_key: Path | None = None
    """The key of that certificate, in PEM."""
    backend_key_password: SecretStr = SecretStr("")
    """Opens the key; may be `${env:NAME}` or `${file:/path}`."""
    backend_max_retries: MaxRetries = 3
    """How often a record is tried again after it failed."""
    backend_retry_delay_ms: DelayMs = 1_000
    """The bound of the first pause before a record is tried again. Pauses are random, and the bound doubles each time.
    """
    backend_max_retry_delay_ms: DelayMs = 60_000
    """The largest bound of these pauses."""
    backend_max_retry_after_ms: int = Field(default=300_000, ge=0)
    """The longest pause that a backend may ask for by Retry-After."""
    backend_rollback_threshold: RollbackThreshold = 30
    """Percent: if more records of a call are not processed, the whole call is repeated; 0: if any, 100: never."""
    backend_when_exhausted: WhenExhausted | None = None
    """The end of a record that has used all its attempts: dead_letter, drop, or retry (for ever).

    Default: dead_letter; if dead letters are off (dead_letter_enabled), retry.
    """
    backend_circuit_refused: PositiveInt = 100
    """Records in a row that the backend may refuse (4xx) before the circuit opens after each refusal.

    Otherwise a backend that refuses all records would drain its topic into dead letters.
    """
    backend_circuit_failures: PositiveInt = 5
    """Failures in a row that open the circuit."""
    backend_circuit_pause_ms: PositiveInt = 1_000
    """The first pause without calls of an open circuit. The pause doubles each time."""
    backend_circuit_max_pause_ms: PositiveInt = 30_000
    """The longest pause without calls. After each pause, one call at a time tests whether the backend is back."""

    @model_validator(mode="after")
    def _backend_can_be_called(self) -> "BackendSettings":
        ContentRouting(routes=[Route(one.when, one.path) for one in self.backend_routes])
        if self.backend_key is not None and self.backend_certificate is None:
            raise ValueError("backend_key is set, and backend_certificate is not")
        if self.backend_token_url and not self.backend_token_client_id:
            raise ValueError("backend_token_url is set, and backend_token_client_id is not")
        if self.backend_token_url and any(name.lower() == "authorization" for name in self.backend_headers):
            raise ValueError("backend_token_url and an Authorization of backend_headers exclude each other; set one")
        _check_headers(self.backend_headers)
        return self


def _check_headers(headers: dict[str, SecretStr]) -> None:
    for name, value in headers.items():
        if (
            not name.isascii()
            or not all(letter.isalnum() or letter in "!#$%&'*+.^_`|~-" for letter in name)
            or not name
        ):
            raise ValueError(f"backend_headers: {name!r} is not the name of a header")
        if not value.get_secret_value().isprintable():
            raise ValueError(f"backend_headers {name}: a value of a header has no line breaks or other controls")
