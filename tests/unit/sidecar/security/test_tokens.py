"""Tokens against an issuer that is there, rotates its keys, goes away and comes back."""

import asyncio
import base64
import hmac
import json
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from mesh.tokens.issuers import TokenBounds
from mesh.tokens.issuers import TokenIssuer as IssuerSettings
from mesh.tokens.key_source import KeyBounds, KeySource, KeysUnavailableError
from mesh.tokens.verifying import MAX_TOKEN_BYTES, Issuer, issuers_of
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.security.tokens import TokenVerifier
from tests.fixtures.token_issuer import AUDIENCE, HOUR, TokenIssuer

SKEW_S = 60
BOUNDS = KeyBounds(max_age=300, max_stale=3600, pause=10, timeout=20)


class Clock:
    """Goes when a test says so."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return self.ahead

    def wall(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer().running() as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def verifier(issuer: TokenIssuer, clock: Clock) -> TokenVerifier:
    return TokenVerifier([known(issuer, clock)], clock_skew=SKEW_S, clock=clock.wall)


def known(issuer: TokenIssuer, clock: Clock, name: str | None = None, bounds: KeyBounds = BOUNDS) -> Issuer:
    keys = KeySource(issuer.jwks_url, issuer.url, bounds, ssl.create_default_context(), clock.monotonic)
    return Issuer(keys, issuer.url if name is None else name, (AUDIENCE,))


def without_address(issuer: TokenIssuer) -> Issuer:
    """The issuer, if the settings do not say where its keys are."""
    settings = IssuerSettings(issuer=issuer.url, audience=(AUDIENCE,))
    (made,) = issuers_of([settings], TokenBounds(token_keys_timeout_ms=20_000))
    return made


async def refusal(verifier: TokenVerifier, token: str) -> tuple[FaultKind, str]:
    with pytest.raises(Fault) as refused:
        await verifier.caller(f"Bearer {token}")
    assert token not in refused.value.description
    return refused.value.kind, refused.value.description


async def is_taken(verifier: TokenVerifier, token: str) -> None:
    assert (await verifier.caller(f"Bearer {token}")).name == "shop"


async def is_refused(verifier: TokenVerifier, token: str, why: str) -> None:
    kind, text = await refusal(verifier, token)
    assert kind is FaultKind.INVALID_AUTH_TOKEN
    assert text.startswith("Incorrect signature or malformed token in authorization header: ")
    assert why in text


@pytest.mark.parametrize("algorithm", ["RS256", "PS512", "ES256", "ES512", "EdDSA"])
async def test_a_token_says_who_calls(issuer: TokenIssuer, verifier: TokenVerifier, algorithm: str) -> None:
    issuer.rotate("k", algorithm)
    caller = await verifier.caller(f"Bearer {issuer.token('kafka:r kafka:w:orders.*')}")
    assert (caller.name, sorted(caller.scopes)) == ("shop", ["kafka:r", "kafka:w"])
    assert str(caller.writes) == "orders.*"


@pytest.mark.parametrize(
    "claims",
    [
        {"scope": "kafka:r other"},
        {"scope": ["kafka:r", "other"]},
        {"scope": None, "scp": "kafka:r other"},
        {"scope": None, "scp": ["kafka:r", "other"]},
        {"scope": "other", "scp": ["kafka:r"]},
    ],
)
async def test_scopes_come_in_either_claim_as_text_or_list(
    issuer: TokenIssuer, verifier: TokenVerifier, claims: dict[str, Any]
) -> None:
    caller = await verifier.caller(f"bearer {issuer.token(**claims)}")
    assert caller.scopes == {"kafka:r", "other"}


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic c2hvcDpzZWNyZXQ=", "shop"])
async def test_no_token(verifier: TokenVerifier, header: str) -> None:
    with pytest.raises(Fault) as refused:
        await verifier.caller(header)
    assert refused.value.kind is FaultKind.MISSING_AUTH_TOKEN


@pytest.mark.parametrize("token", ["x", "a.b", "a.b.c", "a.b.c.d.e", "..", "e30.e30.e30", "ä.b.c", "a\tb.c.d"])
async def test_no_jwt(issuer: TokenIssuer, verifier: TokenVerifier, token: str) -> None:
    kind, _ = await refusal(verifier, token)
    assert kind is FaultKind.INVALID_AUTH_TOKEN
    assert issuer.asked == 0


async def test_a_token_longer_than_any(issuer: TokenIssuer, verifier: TokenVerifier) -> None:
    await is_refused(verifier, issuer.token(note="x" * MAX_TOKEN_BYTES), f"longer than {MAX_TOKEN_BYTES} bytes")


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"aud": "another"}, "(aud)"),
        ({"aud": ["another", "third"]}, "(aud)"),
        ({"aud": None}, "lacks a claim"),
        ({"iss": "https://elsewhere"}, "(iss)"),
        ({"iss": None}, "(iss)"),
        ({"exp": None}, "lacks a claim"),
        ({"exp": "soon"}, "claims"),
        ({"nbf": time.time() + HOUR}, "does not count yet"),
        ({"scope": 7}, "neither a text nor a list"),
        ({"scope": [7]}, "neither a text nor a list"),
    ],
)
async def test_a_token_for_others(
    issuer: TokenIssuer, verifier: TokenVerifier, claims: dict[str, Any], why: str
) -> None:
    await is_refused(verifier, issuer.token(**claims), why)


async def test_one_of_several_audiences_is_enough(issuer: TokenIssuer, verifier: TokenVerifier) -> None:
    await is_taken(verifier, issuer.token(aud=["another", AUDIENCE]))


async def test_clocks_may_differ_within_the_skew(issuer: TokenIssuer, verifier: TokenVerifier) -> None:
    await is_taken(verifier, issuer.token(expires_in=-SKEW_S // 2))
    kind, text = await refusal(verifier, issuer.token(expires_in=-2 * SKEW_S))
    assert (kind, text) == (FaultKind.AUTH_TOKEN_EXPIRED, "Jwt token in authorization header expired")


async def test_a_remembered_token_expires_all_the_same(
    issuer: TokenIssuer, verifier: TokenVerifier, clock: Clock
) -> None:
    token = issuer.token(expires_in=1)
    await is_taken(verifier, token)
    clock.ahead = SKEW_S + 2
    kind, _ = await refusal(verifier, token)
    assert kind is FaultKind.AUTH_TOKEN_EXPIRED


def encoded(part: dict[str, Any]) -> str:
    """As a part of a JWT."""
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


async def test_a_signature_of_somebody_else(issuer: TokenIssuer, verifier: TokenVerifier) -> None:
    stranger = TokenIssuer()
    token = stranger.token(iss=issuer.url)
    await is_refused(verifier, token, "signature")


async def test_none_is_no_signature(issuer: TokenIssuer, verifier: TokenVerifier) -> None:
    _, claims, signature = issuer.token().split(".")
    await is_refused(verifier, f"{encoded({'alg': 'none', 'kid': 'k1'})}.{claims}.{signature}", "its algorithm")
    await is_refused(verifier, f"{encoded({'alg': 'none'})}.{claims}.", "no signed JWT")


async def test_a_public_key_is_no_secret_to_sign_with(issuer: TokenIssuer, verifier: TokenVerifier) -> None:
    """The classic confusion of RS256 and HS256: the public key, which everyone has, as an HMAC secret."""
    public = json.dumps(issuer.document["keys"][0]).encode()
    _, claims, _ = issuer.token().split(".")
    signed = f"{encoded({'alg': 'HS256', 'kid': 'k1'})}.{claims}"
    digest = hmac.digest(public, signed.encode(), "sha256")
    await is_refused(verifier, f"{signed}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}", "its algorithm")


async def test_a_key_for_one_algorithm_does_not_verify_another(issuer: TokenIssuer, verifier: TokenVerifier) -> None:
    _, claims, signature = issuer.token().split(".")
    await is_refused(verifier, f"{encoded({'alg': 'RS256', 'kid': 'k1'})}.{claims}.{signature}", "no such key")


async def test_claims_that_were_changed(issuer: TokenIssuer, verifier: TokenVerifier) -> None:
    header, _, signature = issuer.token("kafka:r").split(".")
    _, claims, _ = issuer.token("kafka:r kafka:w kafka:admin").split(".")
    await is_refused(verifier, f"{header}.{claims}.{signature}", "signature")


async def test_many_calls_ask_the_issuer_once(issuer: TokenIssuer, verifier: TokenVerifier) -> None:
    tokens = [issuer.token(jti=str(number)) for number in range(50)]
    await asyncio.gather(*(verifier.caller(f"Bearer {token}") for token in tokens))
    assert issuer.asked == 1


async def test_a_new_key_is_asked_for_and_the_old_one_forgotten(
    issuer: TokenIssuer, verifier: TokenVerifier, clock: Clock
) -> None:
    old = issuer.token()
    await is_taken(verifier, old)
    issuer.rotate("k2")
    clock.ahead = BOUNDS.pause
    await is_taken(verifier, issuer.token())
    assert issuer.asked == 2
    await is_refused(verifier, old, "no such key")


async def test_tokens_with_made_up_keys_do_not_reach_the_issuer(
    issuer: TokenIssuer, verifier: TokenVerifier, clock: Clock
) -> None:
    await is_taken(verifier, issuer.token())
    stranger = TokenIssuer()
    clock.ahead = BOUNDS.pause
    for number in range(20):
        stranger.rotate(f"made-up-{number}")
        await is_refused(verifier, stranger.token(iss=issuer.url), "no such key")
    assert issuer.asked == 2


async def test_keys_are_asked_for_again_when_they_are_old(
    issuer: TokenIssuer, verifier: TokenVerifier, clock: Clock
) -> None:
    await is_taken(verifier, issuer.token())
    clock.ahead = BOUNDS.max_age - 1
    await is_taken(verifier, issuer.token(jti="1"))
    assert issuer.asked == 1
    clock.ahead = BOUNDS.max_age
    await is_taken(verifier, issuer.token(jti="2", expires_in=2 * HOUR))
    assert issuer.asked == 2


async def test_keys_serve_on_while_the_issuer_is_away_but_not_for_ever(
    issuer: TokenIssuer, verifier: TokenVerifier, clock: Clock
) -> None:
    await is_taken(verifier, issuer.token())
    issuer.outage = True
    clock.ahead = BOUNDS.max_age
    with structlog.testing.capture_logs() as lines:
        await is_taken(verifier, issuer.token(jti="1"))
    assert [(line["event"], line["reason"]) for line in lines] == [
        ("no keys from the issuer of tokens", "it answers 503")
    ]
    clock.ahead = BOUNDS.max_stale
    kind, text = await refusal(verifier, issuer.token(jti="2", expires_in=2 * HOUR))
    assert kind is FaultKind.TOKEN_ISSUER_UNAVAILABLE
    assert "it answers 503" in text


async def test_an_issuer_that_is_away_is_left_in_peace(
    issuer: TokenIssuer, verifier: TokenVerifier, clock: Clock
) -> None:
    issuer.outage = True
    for number in range(5):
        kind, _ = await refusal(verifier, issuer.token(jti=str(number)))
        assert kind is FaultKind.TOKEN_ISSUER_UNAVAILABLE
    assert issuer.asked == 1
    issuer.outage = False
    clock.ahead = BOUNDS.pause
    await is_taken(verifier, issuer.token())


async def test_an_issuer_that_is_back_is_believed_at_once(
    issuer: TokenIssuer, verifier: TokenVerifier, clock: Clock
) -> None:
    await is_taken(verifier, issuer.token())
    issuer.outage = True
    clock.ahead = BOUNDS.max_age
    await is_taken(verifier, issuer.token(jti="1"))
    issuer.outage = False
    issuer.rotate("k2")
    clock.ahead += BOUNDS.pause
    await is_taken(verifier, issuer.token())


async def test_an_issuer_that_does_not_answer_in_time(issuer: TokenIssuer, clock: Clock) -> None:
    issuer.held.clear()
    slow = known(issuer, clock, bounds=KeyBounds(timeout=0.05))
    kind, text = await refusal(TokenVerifier([slow], clock_skew=0), issuer.token())
    assert (kind, "no answer within 0.05 s" in text) == (FaultKind.TOKEN_ISSUER_UNAVAILABLE, True)


@pytest.mark.parametrize(
    ("answer", "why"),
    [(b"<html>", "not JSON"), (b"[" * 10_000, "not JSON"), (b'{"keys":1}', "no list"), (b" " * 300_000, "larger")],
)
async def test_an_issuer_that_answers_something_else(
    issuer: TokenIssuer, verifier: TokenVerifier, answer: bytes, why: str
) -> None:
    issuer.document = answer
    kind, text = await refusal(verifier, issuer.token())
    assert (kind, why in text) == (FaultKind.TOKEN_ISSUER_UNAVAILABLE, True)


async def test_the_document_of_an_issuer_leads_to_its_keys(issuer: TokenIssuer, clock: Clock) -> None:
    discovered = without_address(issuer)
    verifier = TokenVerifier([discovered], clock_skew=0)
    await is_taken(verifier, issuer.token())
    issuer.rotate("k2")
    await verifier.reload()
    await is_taken(verifier, issuer.token())
    assert issuer.asked == 4  # the document and the keys, twice
    await verifier.close()


async def test_a_document_about_another_issuer_leads_nowhere(issuer: TokenIssuer) -> None:
    issuer.about = {"issuer": "https://elsewhere", "jwks_uri": issuer.jwks_url}
    discovered = without_address(issuer)
    kind, text = await refusal(TokenVerifier([discovered], clock_skew=0), issuer.token())
    assert (kind, f"is not about the issuer {issuer.url}" in text) == (FaultKind.TOKEN_ISSUER_UNAVAILABLE, True)
    await discovered.keys.close()


async def test_each_of_two_issuers_speaks_for_itself(issuer: TokenIssuer, clock: Clock) -> None:
    with TokenIssuer().running() as second:
        verifier = TokenVerifier([known(issuer, clock), known(second, clock)], clock_skew=0)
        await is_taken(verifier, issuer.token())
        await is_taken(verifier, second.token())
        await is_refused(verifier, second.token(iss=issuer.url), "signature")


async def test_an_issuer_without_a_name_speaks_for_all_others(issuer: TokenIssuer, clock: Clock) -> None:
    verifier = TokenVerifier([known(issuer, clock, name="")], clock_skew=0)
    await is_taken(verifier, issuer.token(iss="https://whoever"))
    await is_taken(verifier, issuer.token(iss=None))


async def test_an_operator_has_keys_asked_for_at_once(
    issuer: TokenIssuer, verifier: TokenVerifier, clock: Clock
) -> None:
    await is_taken(verifier, issuer.token())
    withdrawn = issuer.token()
    issuer.rotate("k2")
    await verifier.reload()
    await is_taken(verifier, issuer.token())
    await is_refused(verifier, withdrawn, "no such key")
    issuer.outage = True
    with pytest.raises(KeysUnavailableError, match="503"):
        await verifier.reload()
    await is_taken(verifier, issuer.token())
