"""The server's side of PLAIN, SCRAM and OAUTHBEARER: the conversations of the RFCs, and every way to be refused."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.connection_security import Mechanism
from mesh.scram import NotAVerifierError, Verifier, salted_password
from mesh.user_files import Users
from services.gateway.authentication.bearer_server import BearerServer, TokenRefusedError
from services.gateway.authentication.mechanisms import (
    Challenge,
    MechanismServer,
    PlainServer,
    Proved,
    RejectedError,
    ScramServer,
)
from services.gateway.authentication.principal import Principal
from services.gateway.upstream.sasl import Password, Scram

SHA_256, SHA_512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
USERS = Users(
    {
        "user": {SHA_256: Verifier.of_password(SHA_256, "pencil", 4096, SALT)},
        "a=b,c": {SHA_512: Verifier.of_password(SHA_512, "größe", 8192)},
    },
    b"decoys are made of this secret..",
)
TOKEN = "header.claims.signature"


async def check(verifier: Verifier, password: str) -> bool:
    return verifier.is_of(password)


async def token_check(token: str) -> tuple[Principal, float]:
    if token != TOKEN:
        raise TokenRefusedError("the token is not valid: it is no signed JWT")
    return Principal("ann", "OAUTHBEARER", ("buyers",)), 1000.0


def scram(mechanism: Mechanism = SHA_256, nonce: str | None = SERVER_NONCE) -> ScramServer:
    return ScramServer(mechanism, USERS, nonce)


async def refused(server: MechanismServer, *tokens: bytes) -> RejectedError:
    with pytest.raises(RejectedError) as caught:
        for token in tokens:
            await server.respond(token)
    return caught.value


async def test_scram_as_in_rfc_7677() -> None:
    server = scram()
    challenge = await server.respond(f"n,,n=user,r={CLIENT_NONCE}".encode())
    assert challenge == Challenge(f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    proved = await server.respond(FINAL)
    assert proved == Proved(Principal("user", "SCRAM-SHA-256"), b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


async def test_librdkafka_before_2_6_1_logs_in_though_it_says_its_nonce_twice() -> None:
    """Brokers take any final nonce that ends with that of the login."""
    server = scram()
    challenge = await server.respond(f"n,,n=user,r={CLIENT_NONCE}".encode())
    assert isinstance(challenge, Challenge)
    unproved = f"c=biws,r={CLIENT_NONCE}{CLIENT_NONCE}{SERVER_NONCE}".encode()
    exchanged = b",".join((f"n=user,r={CLIENT_NONCE}".encode(), challenge.token, unproved))
    key = hmac.digest(salted_password(SHA_256, "pencil", SALT, 4096), b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), exchanged, "sha256")
    proof = base64.b64encode(bytes(one ^ other for one, other in zip(key, signature, strict=True)))
    assert isinstance(await server.respond(unproved + b",p=" + proof), Proved)


async def test_both_sides_of_scram_agree_on_names_with_escapes_and_passwords_beyond_ascii() -> None:
    server, client = scram(SHA_512, None), Scram(Password(SHA_512, "a=b,c", "größe"))
    challenge = await server.respond(client.first())
    assert isinstance(challenge, Challenge)
    proof = client.next(challenge.token)
    assert proof is not None
    proved = await server.respond(proof)
    assert isinstance(proved, Proved)
    assert client.next(proved.token) is None, "the client accepts the server's own proof"
    assert proved.principal == Principal("a=b,c", "SCRAM-SHA-512")


async def conversation(name: str, password: str) -> tuple[bytes, str]:
    """The challenge without nonces, and the reason at the end."""
    server, client = scram(), Scram(Password(SHA_256, name, password), CLIENT_NONCE)
    challenge = await server.respond(client.first())
    assert isinstance(challenge, Challenge)
    proof = client.next(challenge.token)
    assert proof is not None
    error = await refused(server, proof)
    return challenge.token, f"{error.reason}|{error.text}"


async def test_an_unknown_user_is_told_what_a_known_one_with_a_wrong_password_is() -> None:
    known, reason = await conversation("user", "wrong")
    unknown, other_reason = await conversation("nobody", "wrong")
    assert reason == other_reason == "unknown user or wrong password|"
    assert len(unknown) - len(USERS.decoy("nobody", SHA_256).salt) * 4 / 3 == len(known) - len(
        "W22ZaJ0SNY7soEsUEjb6gQ=="
    )
    assert await conversation("nobody", "wrong") == (unknown, reason), "the salt of a decoy is the same at each try"
    assert (await conversation("somebody", "wrong"))[0] != unknown


def test_a_decoy_has_the_usual_iterations_and_the_same_salt_at_each_gateway() -> None:
    usual = {f"u{n}": {SHA_256: Verifier.of_password(SHA_256, "p", 8192)} for n in range(2)}
    users = Users({**USERS.by_name, **usual}, USERS.decoy_secret)
    assert users.decoy("x", SHA_256).iterations == 8192
    assert users.decoy("x", SHA_256).salt == USERS.decoy("x", SHA_256).salt


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"", "not as RFC 5802"),
        (b"\xff\xfe", "not text"),
        (b"p=tls-unique,,n=user,r=abc", "channel binding"),
        (b"y,,n=user,r=abc", "channel binding"),
        (b"n,,m=x,n=user,r=abc", "not as RFC 5802"),
        (b"n,,n=us=41er,r=abc", "an escape"),
        (b"n,,n=user,r=", "not as RFC 5802"),
        (b"n,,n=" + b"u" * 256 + b",r=abc", "too long"),
        (b"n,a=other,n=user,r=abc", "another authorization id"),
        (b"n,,n=user,r=abc,tokenauth=true", "delegation tokens"),
    ],
)
async def test_first_messages_that_are_refused(first: bytes, why: str) -> None:
    assert why in (await refused(scram(), first)).reason


@pytest.mark.parametrize(
    ("final", "why"),
    [
        (FINAL.replace(b"p=d", b"p=e"), "wrong password"),
        (FINAL.replace(b"biws", b"eSws"), "channel binding"),
        (FINAL.replace(b"k0,", b"k1,"), "the nonce"),
        (FINAL.replace(b"VQ=", b"V"), "not base64"),
        (FINAL.replace(b"p=d", b"q=d"), "not as RFC 5802"),
        (b"c=biws,r=x,p=" + b"A" * 9000, "the nonce"),
    ],
)
async def test_final_messages_that_are_refused(final: bytes, why: str) -> None:
    assert why in (await refused(scram(), f"n,,n=user,r={CLIENT_NONCE}".encode(), final)).reason


@pytest.mark.parametrize("identity", ["", "user"])
async def test_plain(identity: str) -> None:
    proved = await PlainServer(USERS, check).respond(f"{identity}\0user\0pencil".encode())
    assert proved == Proved(Principal("user", "PLAIN"))


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0user\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0pencil", "Authentication failed: Invalid username or password"),
        (b"\0\0pencil", "Authentication failed: username not specified"),
        (b"\0user\0", "Authentication failed: password not specified"),
        (b"user\0pencil", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0a\0b\0c\0d", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"other\0user\0pencil",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
async def test_plain_is_refused_with_the_texts_of_brokers(token: bytes, text: str) -> None:
    assert (await refused(PlainServer(USERS, check), token)).text == text


async def test_plain_computes_as_long_for_an_unknown_user() -> None:
    checked: list[int] = []

    async def counting(verifier: Verifier, password: str) -> bool:
        checked.append(verifier.iterations)
        return verifier.is_of(password)

    for name in ("user", "nobody"):
        await refused(PlainServer(USERS, counting), f"\0{name}\0wrong".encode())
    assert checked == [4096, 4096]


class ChangingUsers:
    """The users as they are now."""

    def __init__(self, users: Users) -> None:
        self.now = users

    def find(self, name: str, mechanism: Mechanism) -> Verifier | None:
        return self.now.find(name, mechanism)

    def decoy(self, name: str, mechanism: Mechanism) -> Verifier:
        return self.now.decoy(name, mechanism)


CHANGES = pytest.mark.parametrize(
    "after",
    [Users({}), Users({"user": {SHA_256: Verifier.of_password(SHA_256, "another")}})],
    ids=["deleted", "another password"],
)


@CHANGES
async def test_scram_is_refused_if_the_user_changes_before_the_end(after: Users) -> None:
    users = ChangingUsers(USERS)
    server, client = ScramServer(SHA_256, users), Scram(Password(SHA_256, "user", "pencil"))
    challenge = await server.respond(client.first())
    proof = client.next(challenge.token)
    assert proof is not None
    users.now = after
    assert (await refused(server, proof)).reason == "unknown user or wrong password"


@CHANGES
async def test_plain_is_refused_if_the_user_changes_while_the_password_is_checked(after: Users) -> None:
    users = ChangingUsers(USERS)

    async def changing(verifier: Verifier, password: str) -> bool:
        users.now = after
        return verifier.is_of(password)

    error = await refused(PlainServer(users, changing), b"\0user\0pencil")
    assert error.reason == "unknown user or wrong password"


async def test_bearer() -> None:
    proved = await BearerServer(token_check).respond(f"n,,\x01auth=Bearer {TOKEN}\x01tenant=fruit\x01\x01".encode())
    assert proved == Proved(Principal("ann", "OAUTHBEARER", ("buyers",)), b"", 1000.0, TOKEN)


async def test_a_refused_bearer_token_has_its_reason_and_is_not_repeated() -> None:
    server = BearerServer(token_check)
    told = await server.respond(b"n,,\x01auth=Bearer very-secret\x01\x01")
    assert told == Challenge(b'{"status":"invalid_token"}', "the token is not valid: it is no signed JWT")
    error = await refused(server, b"\x01")
    assert error.text == '{"status":"invalid_token"}'
    assert "very-secret" not in f"{error} {error.reason}"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"", "Invalid OAUTHBEARER client first message"),
        (b"n,,\x01host=h\x01\x01", "Invalid OAUTHBEARER client first message: 'auth' not specified"),
        (b"n,,\x01auth=Basic eDp5\x01\x01", "Invalid scheme in OAUTHBEARER client first message"),
    ],
)
async def test_bearer_messages_that_are_refused(message: bytes, text: str) -> None:
    assert (await refused(BearerServer(token_check), message)).text == text


async def test_a_bearer_may_not_ask_for_another_identity() -> None:
    message = f"n,a=bob,\x01auth=Bearer {TOKEN}\x01\x01".encode()
    assert "different from the token's" in (await refused(BearerServer(token_check), message)).text


@given(
    tokens=st.lists(st.binary(max_size=200) | st.text("n,=raciwsp1 \0\x01", max_size=60).map(str.encode), max_size=3)
)
async def test_hostile_bytes_are_refused_and_nothing_else(tokens: list[bytes]) -> None:
    for server in (scram(), PlainServer(USERS, check), BearerServer(token_check)):
        try:
            for token in tokens:
                assert not isinstance(await server.respond(token), Proved)
        except RejectedError as error:
            assert error.reason


def test_a_verifier_is_read_as_kafka_writes_it_and_shows_no_key() -> None:
    verifier = Verifier.of_password(SHA_256, "pencil", 4096, SALT)
    text = (
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )
    assert str(verifier) == text
    assert Verifier.parse(SHA_256, text) == verifier
    assert "WG5d8" not in repr(verifier)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected salt="),
        ("salt=!,stored_key=AA==,server_key=AA==,iterations=4096", "must be base64"),
        ("salt=AA==,stored_key=AA==,server_key=AA==,iterations=4096", "have 32 bytes each"),
        ("salt=AA==,stored_key=AA==,server_key=AA==,iterations=4095", "4096 to 16384"),
        ("salt=AA==,stored_key=AA==,server_key=AA==,iterations=16385", "4096 to 16384"),
        ("salt=AA==,stored_key=AA==,server_key=AA==,iterations=-1", "expected salt="),
        ("salt=,stored_key=AA==,server_key=AA==,iterations=4096", "a salt of 0 bytes"),
    ],
)
def test_texts_that_are_no_verifiers(text: str, why: str) -> None:
    with pytest.raises(NotAVerifierError, match=why):
        Verifier.parse(SHA_256, text)
