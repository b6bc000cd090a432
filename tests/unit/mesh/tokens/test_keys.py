"""What a JWK set gives: keys that verify signatures, and nothing else."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from mesh.tokens.addresses import NotKeysError
from mesh.tokens.keys import ALGORITHMS, MAX_KEYS, KeySet
from tests.fixtures.token_issuer import jwk_of, new_key

RSA_KEY = new_key("RS256")
EC_KEY = new_key("ES256")
SIGNS = jwk_of(EC_KEY, "ES256", kid="good")


def parsed(*keys: Any) -> KeySet:
    return KeySet.parse({"keys": [SIGNS, *keys]})


def test_only_algorithms_with_two_different_keys() -> None:
    assert not [name for name in ALGORITHMS if name == "none" or name.startswith("HS")]


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS384"])
def test_an_rsa_key_without_an_algorithm_serves_those_of_rsa(algorithm: str) -> None:
    described = jwk_of(RSA_KEY, "RS256", kid="r")
    assert parsed(described).find("r", algorithm) is not None
    assert parsed({**described, "alg": "RS256"}).find("r", "RS512") is None


@pytest.mark.parametrize(("curve", "algorithm"), [("ES384", "ES384"), ("ES512", "ES512"), ("EdDSA", "EdDSA")])
def test_a_curve_serves_its_own_algorithm(curve: str, algorithm: str) -> None:
    keys = parsed(jwk_of(new_key(curve), curve, kid="c"))
    assert keys.find("c", algorithm) is not None
    assert keys.find("c", "ES256") is None


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"kty": "oct", "kid": "x", "k": "c2VjcmV0"}, id="a secret"),
        pytest.param(jwk_of(RSA_KEY, "RS256", kid="x", use="enc"), id="for encryption"),
        pytest.param(jwk_of(RSA_KEY, "RS256", kid="x", key_ops=["encrypt"]), id="for other operations"),
        pytest.param(jwk_of(RSA_KEY, "RS256", kid="x", alg="HS256"), id="public key as a secret"),
        pytest.param(jwk_of(RSA_KEY, "RS256", kid="x", alg="none"), id="none"),
        pytest.param(jwk_of(rsa.generate_private_key(65537, 1024), "RS256", kid="x"), id="a short key"),
        pytest.param(jwk_of(ec.generate_private_key(ec.SECP256K1()), "ES256K", kid="x"), id="another curve"),
        pytest.param({"kty": "RSA", "kid": "x", "n": "!", "e": "AQAB"}, id="broken"),
        pytest.param({"kid": "x"}, id="nothing"),
        pytest.param("x", id="no object"),
    ],
)
def test_what_is_no_key_for_signatures_is_passed_over(other: Any) -> None:
    keys = parsed(other)
    assert [key.id for key in keys.keys] == ["good"]
    assert all(keys.find("x", algorithm) is None for algorithm in ALGORITHMS)


def test_a_private_key_that_got_among_them_is_passed_over() -> None:
    described = jwk_of(EC_KEY, "ES256", kid="x")
    described["d"] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE"
    assert parsed(described).find("x", "ES256") is None


def test_a_token_that_names_no_key_gets_the_only_one() -> None:
    assert parsed().find(None, "ES256") is not None
    assert parsed(jwk_of(new_key("ES256"), "ES256", kid="other")).find(None, "ES256") is None


@pytest.mark.parametrize(
    "document", [None, [], {}, {"keys": {}}, {"keys": []}, {"keys": [{"kty": "oct", "k": "c2Vj"}]}]
)
def test_no_set_of_keys(document: object) -> None:
    with pytest.raises(NotKeysError):
        KeySet.parse(document)


def test_too_many_keys() -> None:
    with pytest.raises(NotKeysError, match="more than"):
        KeySet.parse({"keys": [SIGNS] * (MAX_KEYS + 1)})
