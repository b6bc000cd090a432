"""Java's key and trust stores. A store in PEM is used; another store is refused with the command that converts it."""

from pathlib import Path

PEM_BEGINNING = b"-----BEGIN "
LOOK_BYTES = 64 * 1024


class NotPemError(ValueError):
    """A store cannot be used; the text has the store and the remedy."""


def pem_path(store: Path, *, with_key: bool = False) -> Path:
    """The store itself, if it is in PEM."""
    try:
        with store.open("rb") as file:
            beginning = file.read(LOOK_BYTES)
    except OSError as error:
        raise NotPemError(f"{store} can't be read: {error.strerror or type(error).__name__}") from None
    if PEM_BEGINNING in beginning:
        return store
    raise NotPemError(f"{store} is a Java store, and PEM is needed here; make it with: {_command(store, with_key)}")


def _command(store: Path, with_key: bool) -> str:
    pem = store.with_suffix(".pem")
    if with_key:
        archive = store.with_suffix(".p12")
        return (
            f"keytool -importkeystore -srckeystore {store} -destkeystore {archive} -deststoretype PKCS12 && "
            f"openssl pkcs12 -in {archive} -nodes -out {pem}   (and name {pem} instead)"
        )
    return f"keytool -list -rfc -keystore {store} > {pem}   (and name {pem} instead)"
