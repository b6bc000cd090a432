"""Settings of the authentication of callers, and of the listener's certificate."""

from pathlib import Path

from pydantic import SecretStr, field_validator, model_validator

from mesh.server_certificate import TlsFiles, load
from mesh.tokens.issuers import TokenBounds, TokenIssuer
from services.sidecar.state.settings import StateSettings


class SecuritySettings(TokenBounds, StateSettings):
    """A part of SidecarSettings."""

    allow_insecure: bool = False
    """Whether the sidecar may listen beyond loopback without authentication of callers.

    Callers are authenticated by token_issuers or by client certificates.
    """
    token_issuers: tuple[TokenIssuer, ...] = ()
    """The issuers whose bearer tokens count (JSON or YAML); empty: no token is needed. See
    `docs/how-to/sidecar-security.md`."""
    tls: bool = False
    """Whether callers come by HTTPS: with tls_certificate, or one that the sidecar makes for itself in state_dir."""
    tls_certificate: Path | None = None
    """Certificate for callers by HTTPS, with its chain, in PEM, loaded again when the file changes. The setting sets
    `TLS`, too."""
    tls_key: Path | None = None
    """The key of the certificate, in PEM, loaded again when the file changes."""
    tls_key_password: SecretStr = SecretStr("")
    """Opens the key; may be `${env:NAME}` or `${file:/path}`."""
    tls_client_ca: Path | None = None
    """Authorities, in PEM: callers must show a certificate that one of them signed."""
    tls_client_optional: bool = False
    """Whether callers may come without such a certificate."""
    tls_client_crl: Path | None = None
    """Lists of revoked certificates, in PEM, one for each of tls_client_ca, loaded again when the file changes. A
    certificate whose authority has no list here, or an outdated one, is refused."""

    @field_validator("token_issuers")
    @classmethod
    def _told_apart(cls, issuers: tuple[TokenIssuer, ...]) -> tuple[TokenIssuer, ...]:
        if len({issuer.issuer for issuer in issuers}) < len(issuers):
            raise ValueError("two of them have the same issuer (or none), so that a token would belong to both")
        return issuers

    @model_validator(mode="after")
    def _tls_is_whole(self) -> "SecuritySettings":
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together: set both, or neither for an own certificate")
        if self.tls and self.tls_certificate is None and self.state_dir is None:
            raise ValueError("tls without tls_certificate makes one of its own: it needs state_dir to keep it in")
        if self.tls_client_ca is not None and not self.serves_tls:
            raise ValueError("tls_client_ca is for TLS: set tls, or tls_certificate and tls_key")
        if self.tls_client_crl is not None and self.tls_client_ca is None:
            raise ValueError("tls_client_crl revokes certificates of tls_client_ca: set tls_client_ca, too")
        if self.tls_files is not None:
            load(self.tls_files)  # a part that cannot be served is reported before any other part begins
        return self

    @property
    def serves_tls(self) -> bool:
        return self.tls or self.tls_certificate is not None

    @property
    def asks_who_calls(self) -> bool:
        """Whether a caller needs a token or a certificate."""
        return bool(self.token_issuers) or (self.tls_client_ca is not None and not self.tls_client_optional)

    @property
    def tls_files(self) -> TlsFiles | None:
        """The TLS files that the settings name; None if there are none."""
        if self.tls_certificate is None or self.tls_key is None:
            return None
        password = self.tls_key_password.get_secret_value()
        return self.tls_files_of(self.tls_certificate, self.tls_key, password)

    def tls_files_of(self, certificate: Path, key: Path, password: str = "") -> TlsFiles:
        """A certificate of the listener, with the settings about certificates of callers."""
        return TlsFiles(
            certificate, key, password, self.tls_client_ca, self.tls_client_optional, client_crl=self.tls_client_crl
        )
