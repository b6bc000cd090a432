"""Logging in to a broker: the conversation as it stands in the RFCs, and what a broker may not do."""

from __future__ import annotations

import pytest

from mesh.bearer_tokens import BearerToken
from mesh.connection_security import Mechanism
from services.gateway.upstream.bearer import Bearer
from services.gateway.upstream.sasl import Login, LoginRefusedError, Password, Plain, Scram, Step
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from services.gateway.wire.messages.api_versions import ApiVersion
from services.gateway.wire.schema import Struct

HOST = "broker"
NONCE = "rOprNGfwEbeRWgbNEkqO"
BOTH_NONCES = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = f"r={BOTH_NONCES},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
TOKEN = BearerToken("header.claims.signature", {"tenant": "fruit"}, 0.0, 60.0)
PROVED = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credentials(mechanism: Mechanism = Mechanism.SCRAM_SHA_256, username: str = "user") -> Password:
    return Password(mechanism, username, "pencil")


def speaks(*, handshake: int = 1, authenticate: int = 2) -> ApiVersionsResponse:
    keys = [ApiVersion(ApiKey.SASL_HANDSHAKE, 0, handshake), ApiVersion(ApiKey.SASL_AUTHENTICATE, 0, authenticate)]
    return ApiVersionsResponse(api_keys=keys)


def sent(step: Step | None) -> tuple[Struct, int]:
    assert step is not None
    return step.message, step.version


def test_plain() -> None:
    plain = Plain(credentials(Mechanism.PLAIN))
    assert plain.first() == b"\0user\0pencil"
    assert plain.next(b"") is None


def test_scram_as_in_rfc_7677() -> None:
    scram = Scram(credentials(), NONCE)
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    proof = b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert scram.next(CHALLENGE) == f"c=biws,r={BOTH_NONCES},".encode() + proof
    assert scram.next(PROVED) is None


def test_names_are_escaped() -> None:
    assert Scram(credentials(username="a=b,c"), NONCE).first().startswith(b"n,,n=a=3Db=2Cc,")


def test_nonces_are_not_used_again() -> None:
    assert Scram(credentials()).first() != Scram(credentials()).first()


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        (b"r=another,s=AAAA,i=4096", "nonce"),
        (f"r={NONCE},s=AAAA,i=4096".encode(), "nonce"),
        (f"r={BOTH_NONCES},s=AAAA,i=4095".encode(), "4095"),
        (f"r={BOTH_NONCES},s=AAAA,i=2000000000".encode(), "2000000000"),
        (f"r={BOTH_NONCES},s=?,i=4096".encode(), "base64"),
        (b"\xff", "not text"),
    ],
)
def test_a_challenge_that_is_not_taken(challenge: bytes, said: str) -> None:
    with pytest.raises(LoginRefusedError, match=said):
        Scram(credentials(), NONCE).next(challenge)


@pytest.mark.parametrize("final", [b"v=AAAA", b"", b"e=invalid-proof", b"v=?"])
def test_a_broker_that_cannot_prove_itself_is_refused(final: bytes) -> None:
    scram = Scram(credentials(), NONCE)
    scram.next(CHALLENGE)
    with pytest.raises(LoginRefusedError):
        scram.next(final)


def test_the_salted_password_is_computed_once() -> None:
    shared = credentials()
    assert shared.salted_password(b"salt", 4096) is shared.salted_password(b"salt", 4096)
    assert shared.salted_password(b"other", 4096) != shared.salted_password(b"salt", 4096)


def test_a_login_step_by_step() -> None:
    login = Login(credentials(Mechanism.PLAIN), HOST)
    assert sent(login.begin()) == (ApiVersionsRequest(), 0)
    assert sent(login.next(speaks(authenticate=1))) == (SaslHandshakeRequest("PLAIN"), 1)
    assert sent(login.next(SaslHandshakeResponse())) == (SaslAuthenticateRequest(b"\0user\0pencil"), 1)
    assert login.next(SaslAuthenticateResponse(session_lifetime_ms=90_000)) is None
    assert login.lifetime_s == 90.0


def test_a_renewal_begins_with_the_handshake() -> None:
    login = Login(credentials(Mechanism.PLAIN), HOST, authenticate_version=2)
    assert sent(login.begin()) == (SaslHandshakeRequest("PLAIN"), 1)
    assert sent(login.next(SaslHandshakeResponse()))[1] == 2


def test_a_mechanism_that_is_not_offered() -> None:
    login = Login(credentials(Mechanism.PLAIN), HOST)
    with pytest.raises(LoginRefusedError, match=r"PLAIN is not offered \(offered: SCRAM-SHA-256, GSSAPI\)"):
        login.next(SaslHandshakeResponse(33, ["SCRAM-SHA-256", "GSSAPI"]))


@pytest.mark.parametrize("spoken", [ApiVersionsResponse(), speaks(handshake=0)])
def test_a_broker_that_is_too_old(spoken: ApiVersionsResponse) -> None:
    with pytest.raises(LoginRefusedError, match=r"older than Kafka 1\.0"):
        Login(credentials(), HOST).next(spoken)


def test_the_brokers_reason_is_told_and_never_the_password() -> None:
    login = Login(credentials(Mechanism.PLAIN), HOST, authenticate_version=2)
    with pytest.raises(LoginRefusedError) as refused:
        login.next(SaslAuthenticateResponse(58, "Invalid\ncredentials: pencil " + "x" * 1000))
    assert str(refused.value).startswith("Invalid credentials: (secret)")
    assert len(str(refused.value)) <= 300
    assert "pencil" not in repr(credentials())


def test_a_token_and_what_is_told_beside_it() -> None:
    bearer = Bearer(TOKEN).conversation(HOST)
    assert bearer.first() == b"n,,\x01auth=Bearer header.claims.signature\x01tenant=fruit\x01\x01"
    assert bearer.next(b"") is None


def test_a_token_that_is_not_believed() -> None:
    login = Login(Bearer(TOKEN), HOST, authenticate_version=2)
    login.begin()
    login.next(SaslHandshakeResponse())
    heard = login.next(SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}'))
    assert sent(heard) == (SaslAuthenticateRequest(b"\x01"), 2)
    with pytest.raises(LoginRefusedError, match=r"^invalid_token: \(secret\)$"):
        login.next(SaslAuthenticateResponse(58, f"invalid_token: {TOKEN.value}"))


def test_a_broker_that_does_not_believe_a_token_and_lets_us_in_is_refused() -> None:
    bearer = Bearer(TOKEN).conversation(HOST)
    bearer.next(b"invalid_token")
    with pytest.raises(LoginRefusedError, match="refused the token"):
        bearer.next(b"")
