"""The settings of a sidecar about ksqlDB."""

import ssl
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, PositiveInt, SecretStr, model_validator

from mesh.secret_references import UnresolvedReferenceError, resolve_property
from services.sidecar.ksqldb.active_query import AnswerLimits
from services.sidecar.ksqldb.client import KsqldbOptions
from services.sidecar.ksqldb.row_follower import FollowedQuery, FollowLimits
from services.sidecar.ksqldb.rows import RowFormat


class KsqldbSettings(BaseModel):
    """A part of SidecarSettings."""

    ksqldb_url: str = Field(default="", pattern=r"^(https?://(\[[0-9a-fA-F:.]+\]|[^\s/?#@:\[\]]+)(:\d{1,5})?/?)?$")
    """The address of the ksqlDB server, which must speak HTTP/2; empty for no server: see `docs/how-to/ksqldb.md`."""
    ksqldb_user_info: SecretStr = SecretStr("")
    """The sidecar's login at the server: `user:password`; may be `${env:NAME}` or `${file:/path}`."""
    ksqldb_ca_location: Path | None = None
    """The authorities, in PEM, that sign the server's certificate."""
    ksqldb_certificate_location: Path | None = None
    """The sidecar's own certificate for the server, in PEM."""
    ksqldb_key_location: Path | None = None
    """The key of that certificate, in PEM."""
    ksqldb_key_password: SecretStr = SecretStr("")
    """Opens the key."""
    ksqldb_timeout_ms: PositiveInt = 10_000
    """The longest time to connect, and the longest time until a query begins."""
    ksqldb_active_enabled: bool = True
    """Whether the backend may ask queries (`POST /ksqldb/active`), if there is a server."""
    ksqldb_answer_timeout_ms: PositiveInt = 30_000
    """The longest time of the answer to a query that is asked once."""
    ksqldb_answer_max_rows: PositiveInt = 10_000
    """The most rows of such an answer."""
    ksqldb_answer_max_bytes: PositiveInt = 8 * 1024 * 1024
    """The most bytes of such an answer."""
    ksqldb_query: str = ""
    """A push query; the sidecar posts each of its rows to the backend. Empty for no query."""
    ksqldb_query_properties: dict[str, Any] = Field(default_factory=lambda: {"auto.offset.reset": "earliest"})
    """Properties of the query, as ksqlDB names them; by default `{"auto.offset.reset": "earliest"}`."""
    ksqldb_initial_streams: tuple[str, ...] = ()
    """Statements about streams that are run before the query. A stream that exists already is no error."""
    ksqldb_initial_tables: tuple[str, ...] = ()
    """Statements about tables that are run before the query. A table that exists already is no error."""
    ksqldb_backend_url: str = ""
    """The address that rows are posted to; empty for the sidecar's usual backend."""
    ksqldb_backend_path: str = Field(default="/kafka/ksqldb", pattern=r"^/[!-~]*$")
    """The backend's path for rows."""
    ksqldb_row_format: RowFormat = RowFormat.ARRAY
    """`array`: the values; `object`: values by their columns' names."""
    ksqldb_batch_rows: int = Field(default=1, ge=1, le=10_000)
    """Rows of one post, at most, as an array of rows. With 1, each row is posted by itself."""
    ksqldb_continuation: bool = True
    """Whether the server is asked for continuation tokens, to resume behind the last row after a break."""
    ksqldb_retry_ms: PositiveInt = 1_000
    """The first pause before a broken query, or a failed post, is tried again."""
    ksqldb_max_retry_ms: PositiveInt = 30_000
    """The longest of these pauses."""
    ksqldb_max_retries: int = Field(default=3, ge=0)
    """Retries for a row that the backend refuses (4xx), before the row is skipped. A row that the backend cannot take
    now comes again until the backend takes it."""
    ksqldb_heartbeat_ms: PositiveInt = 15_000
    """The time between two requests for a sign of life, while a query is followed."""

    @model_validator(mode="after")
    def _ksqldb_is_whole(self) -> "KsqldbSettings":
        if self.ksqldb_query and not self.ksqldb_url:
            raise ValueError("ksqldb_query is for a ksqlDB server: set ksqldb_url, or no query")
        if (self.ksqldb_certificate_location is None) != (self.ksqldb_key_location is None):
            raise ValueError("ksqldb_certificate_location and ksqldb_key_location belong together: set both, or none")
        if self.ksqldb_url.startswith("http://") and (self.ksqldb_ca_location or self.ksqldb_certificate_location):
            raise ValueError("ksqldb_ca_location and ksqldb_certificate_location are for TLS: ksqldb_url is http://")
        if self.ksqldb_url:
            self.ksqldb_options()  # options that cannot be used are reported before anything else begins
        return self

    def ksqldb_options(self) -> KsqldbOptions:
        """The client's options: address and login. Reads files; ValueError."""
        try:
            user_info = resolve_property("ksqldb_user_info", self.ksqldb_user_info.get_secret_value())
            key_password = resolve_property("ksqldb_key_password", self.ksqldb_key_password.get_secret_value())
        except UnresolvedReferenceError as error:
            raise ValueError(str(error)) from None
        user, colon, password = user_info.partition(":")
        if user_info and not colon:
            raise ValueError("ksqldb_user_info has no colon; expected user:password")
        return KsqldbOptions(
            self.ksqldb_url, user, password, self._tls(key_password), timeout=self.ksqldb_timeout_ms / 1000
        )

    def followed_query(self) -> FollowedQuery:
        """The query to follow; only valid if ksqldb_query is set."""
        return FollowedQuery(
            self.ksqldb_query,
            self.ksqldb_query_properties,
            (*self.ksqldb_initial_streams, *self.ksqldb_initial_tables),
            self.ksqldb_row_format,
            self.ksqldb_batch_rows,
            self.ksqldb_continuation,
        )

    def follow_limits(self) -> FollowLimits:
        return FollowLimits(
            self.ksqldb_retry_ms / 1000,
            self.ksqldb_max_retry_ms / 1000,
            self.ksqldb_heartbeat_ms / 1000,
            self.ksqldb_max_retries,
        )

    def answer_limits(self) -> AnswerLimits:
        return AnswerLimits(
            self.ksqldb_answer_timeout_ms / 1000, self.ksqldb_answer_max_rows, self.ksqldb_answer_max_bytes
        )

    def _tls(self, key_password: str) -> ssl.SSLContext | None:
        if not self.ksqldb_url.startswith("https://"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ksqldb_ca_location)
            if self.ksqldb_certificate_location is not None:
                context.load_cert_chain(
                    self.ksqldb_certificate_location, self.ksqldb_key_location, key_password or None
                )
        except (OSError, ssl.SSLError) as error:
            raise ValueError(f"the TLS files of ksqldb_url cannot be used: {error}") from None
        return context
