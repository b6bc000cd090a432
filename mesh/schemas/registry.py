"""Questions to a schema registry with Confluent's API. They wait within bounds, so they run in threads."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from mesh.schemas.answers import NOT_THERE, check_registered, read_latest, read_schema
from mesh.schemas.schema import RegisteredSchema, RegistryUnavailableError, SchemaError, UnknownSchemaError
from mesh.secret_references import UnresolvedReferenceError, resolve_property
from mesh.tls import TlsSettingsError, https_context

MOST_BYTES = 1024 * 1024
"""Bytes of one schema with all that it refers to. Schemas are texts that people write: few have more than 100 kB."""
STEP_BYTES = 64 * 1024
NO_ANSWER = "answers with something else than was asked for; is its address right?"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The login is for the registry alone."""

    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Registry:
    """The address of a registry, and the own login there."""

    url: str
    user_info: str = field(default="", repr=False)
    """USER:PASSWORD, or a reference to it; read for each question."""
    ca: str = ""
    """A file of authorities in PEM; empty: those of the system."""
    seconds: float = 3.0
    """For one schema with all that it refers to."""

    def check_registered(self, prefix: bytes, subject: str) -> None:
        """UnknownSchemaError if the registry has no such schema, or not under this subject. Empty: any subject.

        RegistryUnavailableError.
        """
        question = _Question(self, time.monotonic() + self.seconds)
        check_registered(prefix, subject, question.ask, question.listed)

    def schema(self, prefix: bytes) -> RegisteredSchema:
        """The schema that a prefix names. SchemaError: it can't be used. RegistryUnavailableError."""
        question = _Question(self, time.monotonic() + self.seconds)
        return read_schema(prefix, question.ask)

    def latest(self, subject: str) -> RegisteredSchema:
        """The latest schema of a subject. As `schema`."""
        question = _Question(self, time.monotonic() + self.seconds)
        return read_latest(subject, question.ask)


@dataclass(slots=True)
class _Question:
    """One schema under way, with all that it refers to."""

    registry: Registry
    deadline: float
    left: int = MOST_BYTES

    def ask(self, path: str, what: str) -> Mapping[str, Any]:
        """An object with a text `schema`."""
        said = self._answer(path, what, lambda said: isinstance(said, dict) and isinstance(said.get("schema"), str))
        assert isinstance(said, dict)
        return said

    def listed(self, path: str, what: str) -> list[Any]:
        said = self._answer(path, what, lambda said: isinstance(said, list))
        assert isinstance(said, list)
        return said

    def _answer(self, path: str, what: str, is_right: Callable[[Any], bool]) -> Any:
        try:
            said = self._asked(path)
            if is_right(said):
                return said
            problem = NO_ANSWER
        except SchemaError:
            raise
        except urllib.error.HTTPError as error:
            if error.code == 404 and _code(error) in NOT_THERE:
                raise UnknownSchemaError(f"the schema registry has no {what}") from None
            problem = f"answers {error.code} {error.reason}"
        except TimeoutError:
            problem = f"does not answer within {self.registry.seconds:g} s"
        except urllib.error.URLError as error:
            is_late = isinstance(error.reason, TimeoutError)
            problem = f"does not answer ({'TimeoutError' if is_late else error.reason})"
        except (OSError, HTTPException) as error:
            problem = f"does not answer ({type(error).__name__})"
        except (TlsSettingsError, UnresolvedReferenceError) as error:
            problem = f"can't be asked: {error}"
        except (ValueError, RecursionError):
            problem = NO_ANSWER
        raise RegistryUnavailableError(f"the schema registry at {self.registry.url} {problem}; needed is {what}")

    def _asked(self, path: str) -> Any:
        registry = self.registry
        request = urllib.request.Request(registry.url.rstrip("/") + path)
        if registry.user_info:
            login = resolve_property("schema_registry_user_info", registry.user_info)
            request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if registry.url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=https_context("", registry.ca)))
        opener = urllib.request.build_opener(*handlers)
        found = bytearray()
        with opener.open(request, timeout=self._time_left()) as answer:
            while part := answer.read1(STEP_BYTES):
                self._time_left()
                found += part
                self.left -= len(part)
                if self.left < 0:
                    raise SchemaError(f"it has more than {MOST_BYTES} bytes with all that it refers to")
        return json.loads(found)

    def _time_left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _code(error: urllib.error.HTTPError) -> object:
    try:
        said = json.loads(error.read(STEP_BYTES))
    except (OSError, HTTPException, ValueError, RecursionError):
        return None
    return said.get("error_code") if isinstance(said, dict) else None
