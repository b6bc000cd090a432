"""Names in certificates: Kafka's own examples of mapping rules, and names as RFC 2253 writes them."""

from __future__ import annotations

import pytest

from mesh.listeners import name_rules
from services.gateway.authentication.certificate_names import distinguished_name, principal_of

SUBJECT = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", SUBJECT, SUBJECT),
        ("", SUBJECT, SUBJECT),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", SUBJECT, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", SUBJECT, "duke"),
        ("RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U", "cn=duke,ou=sme,dc=my,dc=com", "DUKE@SME"),
        ("RULE:^CN=(.*?),OU=Other.*$/$1/, RULE:.*CN=(.*?),.*/User-$1/L, DEFAULT", SUBJECT, "user-duke"),
        ("RULE:^CN=(.*?),OU=Other.*$/$1/ , DEFAULT", SUBJECT, SUBJECT),
        (r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT", SUBJECT, "duke"),
        (r"RULE:^CN=a\/(.*)$/x\/$1/", "CN=a/b", "x/b"),
        ("RULE:^CN=(.*?),OU=Other.*$/$1/", SUBJECT, None),
        ("DEFAULT", "", None),
        ("RULE:CN=.*//", SUBJECT, None),
    ],
)
def test_rules(rules: str, subject: str, name: str | None) -> None:
    found = principal_of(subject, name_rules(rules))
    assert (found and found.name) == name


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("deny", "expected DEFAULT, or RULE"),
        ("RULE:^CN=(.*", "expected DEFAULT, or RULE"),
        ("RULE:^CN=(.*$/$1/", "is no pattern"),
        ("RULE:^CN=.*$/$1/", "names group 1"),
        ("DEFAULT;RULE:a/b/", "expected DEFAULT, or RULE"),
        ("RULE:a/b/X", "expected DEFAULT, or RULE"),
    ],
)
def test_rules_that_can_not_be(rules: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        name_rules(rules)


def test_a_name_is_written_by_rfc_2253() -> None:
    certificate = {
        "subject": (
            (("countryName", "US"),),
            (("organizationName", 'Fruit, "Fresh"'),),
            (("userId", "7"), ("commonName", " shop ")),
        )
    }
    assert distinguished_name(certificate) == r"UID=7+CN=\ shop\ ,O=Fruit\, \"Fresh\",C=US"
