"""How every service gets its settings: one class per service, filled from environment and file, validated at start.

Precedence: environment `KAFKA_MESH_<SERVICE>_<FIELD>`, then the YAML file named by `--config` (or `KAFKA_MESH_CONFIG`;
the service's settings stand there under the service's name), then defaults. A wrong value or an unknown name ends the
start with one line per fault.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn, Self, TypeVar

import yaml
from pydantic import AfterValidator, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

__all__ = ["Address", "AddressList", "SecretStr", "ServiceSettings", "host_port", "load"]

EXIT_USAGE = 2
S = TypeVar("S", bound="ServiceSettings")


def host_port(address: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port` as (host, port); ValueError says what would be right."""
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise ValueError(f"{address!r} is not an address; expected HOST:PORT, for example 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def _checked_address(value: str) -> str:
    host_port(value)
    return value


Address = Annotated[str, AfterValidator(_checked_address)]
"""A `host:port` string, checked."""


def _addresses(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


class _Split:
    """Lets a tuple field be written as one comma-separated string, in the environment and in files."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(_addresses, handler(source))


AddressList = Annotated[tuple[Address, ...], _Split, NoDecode]
"""Addresses, written as one comma-separated string or as a list."""


class ServiceSettings(BaseSettings):
    """Base of a service's settings: `class GatewaySettings(ServiceSettings, service="gateway")`."""

    service: ClassVar[str] = ""
    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_nested_delimiter="__")

    def __init_subclass__(cls, *, service: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.service = service

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        cls.model_config["env_prefix"] = f"KAFKA_MESH_{cls.service.upper()}_"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings

    @classmethod
    def from_file(cls, path: Path | None) -> Self:
        """Environment over file over defaults. ValueError or ValidationError say what is wrong."""
        values: dict[str, Any] = {}
        if path is not None:
            content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
            if not isinstance(content, dict):
                raise ValueError(f"{path}: expected a mapping of service names, got {type(content).__name__}")
            values = content.get(cls.service) or {}
        prefix = cls.model_config.get("env_prefix", "")
        known = {f"{prefix}{name}".upper() for name in cls.model_fields}
        unknown = [name for name in os.environ if name.startswith(prefix) and name.partition("__")[0] not in known]
        if unknown:
            raise ValueError(
                f"unknown settings in the environment: {', '.join(unknown)} (known: {', '.join(sorted(known))})"
            )
        return cls(**values)


def load(settings: type[S], argv: list[str] | None = None) -> S:
    """The settings of a service's process; on a fault prints each one with its place and exits with 2."""
    parser = ArgumentParser(prog=f"kafka-mesh {settings.service}", description=(settings.__doc__ or "").strip())
    configured = os.environ.get("KAFKA_MESH_CONFIG")
    parser.add_argument("--config", type=Path, default=configured, help="YAML file with settings")
    path: Path | None = parser.parse_args(argv).config
    try:
        return settings.from_file(Path(path) if path else None)
    except ValidationError as error:
        _exit(settings, [_explained(settings, fault) for fault in error.errors(include_url=False, include_input=False)])
    except (OSError, ValueError, yaml.YAMLError) as error:
        _exit(settings, [str(error)])


def _explained(settings: type[ServiceSettings], fault: Any) -> str:
    place = ".".join(str(part) for part in fault["loc"])
    variable = f"{settings.model_config.get('env_prefix', '')}{place.upper().replace('.', '__')}"
    return f"{place} ({variable}): {fault['msg']}"


def _exit(settings: type[ServiceSettings], faults: list[str]) -> NoReturn:
    for fault in faults:
        sys.stderr.write(f"kafka-mesh {settings.service}: {fault}\n")
    raise SystemExit(EXIT_USAGE)
