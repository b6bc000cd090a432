"""The addresses of an issuer's document and of its keys."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from mesh.tokens.addresses import NotKeysError, document_url, is_untouched, keys_url
from mesh.tokens.issuers import TokenIssuer

ISSUER = "https://login.example/realms/shop"
KEYS = "https://keys.example/shop"


@pytest.mark.parametrize("issuer", [ISSUER, f"{ISSUER}/"])
def test_the_document_stands_below_the_issuers_own_path(issuer: str) -> None:
    assert document_url(issuer) == f"{ISSUER}/.well-known/openid-configuration"


def test_the_document_names_the_keys_even_on_another_host() -> None:
    assert keys_url({"issuer": ISSUER, "jwks_uri": KEYS, "response_types_supported": ["code"]}, ISSUER) == KEYS


@pytest.mark.parametrize("document", [{}, [], None, {"jwks_uri": KEYS}, {"issuer": f"{ISSUER}/", "jwks_uri": KEYS}])
def test_a_document_about_another_issuer_names_no_keys(document: object) -> None:
    with pytest.raises(NotKeysError, match=f"is not about the issuer {ISSUER}"):
        keys_url(document, ISSUER)


@pytest.mark.parametrize(
    "address", [None, 7, "", "http://keys.example/shop", "/shop", "https://", "http://[", "file:/k"]
)
def test_keys_that_anyone_on_the_way_could_replace_are_none(address: object) -> None:
    with pytest.raises(NotKeysError, match=r"jwks_uri in its document .* is no https address"):
        keys_url({"issuer": ISSUER, "jwks_uri": address}, ISSUER)
    assert not is_untouched(str(address))


def test_an_issuer_needs_an_address_for_its_keys_or_for_its_document() -> None:
    assert TokenIssuer(issuer=ISSUER).jwks_url == ""
    with pytest.raises(ValidationError, match="issuer 'shop' is no https address"):
        TokenIssuer(issuer="shop")
