"""How every service gets its settings: one class per service, filled from environment and file, validated at start.

Precedence: environment `KAFKA_MESH_<SERVICE>_<FIELD>`, then the YAML file named by `--config` (or `KAFKA_MESH_CONFIG`;
the service's settings stand there under the service's name), then defaults. A wrong value or an unknown name ends the
start with one line per fault.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn, Self, TypeVar

from pydantic import AfterValidator, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

__all__ = ["Address", "AddressList", "SecretStr", "ServiceSettings", "Split", "WordList", "host_port", "load"]

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


class Split:
    """Lets a tuple field be written as one comma-separated string, in the environment and in files."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(_addresses, handler(source))


AddressList = Annotated[tuple[Address, ...], Split, NoDecode]
"""Addresses, written as one comma-separated string or as a list."""


WordList = Annotated[tuple[str, ...], Split, NoDecode]
"""Texts, written as one comma-separated string or as a list."""


def refuse_open_door(name: str, address: str, service: str, *, safe: bool, harm: str) -> None:
    """ValueError if everybody who reaches the address could do harm, and nobody has said that this is meant."""
    if not (safe or is_loopback(host_port(address)[0])):
        raise ValueError(
            f"{name} {address}: {harm}; listen on 127.0.0.1, ask callers for certificates (see the settings), "
            f"or set allow_insecure "
            f"(KAFKA_MESH_{service.upper()}_ALLOW_INSECURE=1) where nobody else reaches that address"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
            values = _section(path, cls.service)
        prefix = cls.model_config.get("env_prefix", "")
        known = {f"{prefix}{name}".upper() for name in cls.model_fields}
        unknown = [name for name in os.environ if name.startswith(prefix) and name.partition("__")[0] not in known]
        if unknown:
            raise ValueError(
                f"unknown settings in the environment: {', '.join(unknown)} (known: {', '.join(sorted(known))})"
            )
        return cls(**values)


def _section(path: Path, service: str) -> dict[str, Any]:
    """The service's part of a file; ValueError names the file and what is wrong in it."""
    import yaml  # 2 MB, which a service without a file never needs

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a mapping of service names, got {type(content).__name__}")
    for name, section in content.items():  # a file may hold the sections of all services, and nothing else
        if section is not None and not isinstance(section, dict):
            raise ValueError(f"{path}: {name!r} is no section; settings of this service stand under '{service}:'")
    return content.get(service) or {}


def load(
    settings: type[S], argv: list[str] | None = None, *, command: str = "", options: ArgumentParser | None = None
) -> S:
    """The settings of a service's process; on a fault prints each one with its place and exits with 2. `command` is
    what the user called, where it is not the service's name; `options`, without help of its own, what it takes beside
    settings.
    """
    command = command or settings.service
    parser = ArgumentParser(
        prog=f"kafka-mesh {command}",
        description=" ".join((settings.__doc__ or "").split()),
        epilog=_described(settings),
        formatter_class=RawDescriptionHelpFormatter,
        parents=[] if options is None else [options],
    )
    configured = os.environ.get("KAFKA_MESH_CONFIG")
    parser.add_argument(
        "--config", type=Path, default=configured, metavar="FILE",
        help=f"YAML file; the settings stand under '{settings.service}:', by their names in small letters",
    )  # fmt: skip
    path: Path | None = parser.parse_args(argv).config
    try:
        return settings.from_file(Path(path) if path else None)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        _exit(command, list(dict.fromkeys(_explained(settings, fault) for fault in _causes(faults))))
    except OSError as error:
        _exit(command, [f"{path}: {error.strerror or error}"])
    except ValueError as error:
        _exit(command, [str(error)])


def _described(settings: type[ServiceSettings]) -> str:
    """Every setting by the name of its variable, with what it is without one."""
    lines = ["settings, from the environment or the file:"]
    for name, field in settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "required" if field.is_required() else _shown(default)
        lines.append(f"  {settings.model_config.get('env_prefix', '')}{name.upper()}  [{shown}]")
    return "\n".join(lines)


def _shown(default: object) -> str:
    text = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return "empty" if text in ("", "None", "{}") else text


def _causes(faults: list[Any]) -> list[Any]:
    """Without what only follows from another fault: a list is too short when its items are wrong."""
    inner = {fault["loc"][0] for fault in faults if len(fault["loc"]) > 1}
    return [fault for fault in faults if len(fault["loc"]) != 1 or fault["loc"][0] not in inner]


def _explained(settings: type[ServiceSettings], fault: Any) -> str:
    place = ".".join(str(part) for part in fault["loc"])
    variable = f"{settings.model_config.get('env_prefix', '')}{str(fault['loc'][0]).upper()}" if fault["loc"] else ""
    return f"{place} ({variable}): {fault['msg'].removeprefix('Value error, ')}"


def _exit(command: str, faults: list[str]) -> NoReturn:
    for fault in faults:
        sys.stderr.write(f"kafka-mesh {command}: {fault}\n")
    raise SystemExit(EXIT_USAGE)
