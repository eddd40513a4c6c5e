"""Settings of the running system: few, frozen, and each value knows where it came from.

Precedence: command line, then environment (``SLUICEGATE_*``), then the file, then the default.
The file is ``sluicegate.yaml`` in the working folder, or what ``SLUICEGATE_CONFIG`` names. Unknown
keys are refused in every source but the environment's own names, where a typo is refused too.

What belongs to a link (ttl, arm, hold, ages) is declared in its LinkProfile, never here: settings
describe this process, resources describe the estate.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from policy_engine.errors import SettingsError
from policy_engine.resources.yaml_tree import read_document

PREFIX: Final = "SLUICEGATE_"
DEFAULT_FILE: Final = "sluicegate.yaml"
FRACTION: Final = "looks like a fraction"
# Names with our prefix that are no settings of this class, but read elsewhere.
RESERVED: Final = frozenset({"CONFIG", "SAMPLES", "TOKEN", "API", "CA", "OPA", "DEBUG"})


class Settings(BaseSettings):
    """One attribute per setting; the docstring of each states unit and reason of the default."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True
    )

    state: Path = Path("sluicegate-state")
    """Folder of everything that must survive a restart. One `up` at a time. Never from the file."""
    estate_dir: Path | None = None
    """Folder of declared resources (YAML). Unset: the example estate that ships with the program."""
    host: str = "127.0.0.1"
    """Address on which the three listeners and OpenBao listen."""
    admission_port: int = Field(default=9443, ge=0, le=65535)
    """Port of the admission webhook; 0 takes a free one and writes it to run/endpoints.json."""
    api_port: int = Field(default=9444, ge=0, le=65535)
    """Port of the API and its documentation."""
    agents_port: int = Field(default=9445, ge=0, le=65535)
    """Port on which agents dial in."""
    tick_seconds: float = Field(default=1.0, gt=0, le=3600)
    """Time between two ticks of the ledger: embedded 1 s, production 60 s."""
    verdict_seconds: float = Field(default=300.0, gt=0, le=3600)
    """Time between two verdict records of a link: encrypted yes, no or unknown."""
    reconcile_seconds: float = Field(default=0.5, gt=0, le=60)
    """Time between two looks of the conductor at every link."""
    poll_seconds: float = Field(default=25.0, gt=0, le=30)
    """How long an agent's poll is held open when nothing is pending."""
    traffic: bool = True
    """Whether the example traffic (numbered frames with a canary) runs over the software links."""
    traffic_fps: int = Field(default=250, ge=1, le=5000)
    """Frames per second and direction of the example traffic, sent in bursts each 10 ms."""
    agent_restart_seconds: float = Field(default=5.0, ge=0, le=300)
    """Pause before a dead agent is restarted; set it above the profiles' arm where the path shall have closed
    by then."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is logged. Logs are in the state folder's logs/."""
    unseal_key: SecretStr | None = None
    """Unseal key of the embedded OpenBao when it shall not rest in the state folder."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load` passes in: it reads file and environment itself, to know the source."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings with the source of each value: command line, environment, file or default."""

    settings: Settings
    sources: Mapping[str, str]

    def rows(self) -> list[tuple[str, str, str]]:
        """(name, value with secrets redacted, source), in order of declaration."""
        return [(name, _shown(getattr(self.settings, name)), self.sources[name]) for name in _names()]


def load(
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Loaded:
    """Read every source and validate once.

    Args:
        overrides: Values from the command line; ``None`` values count as not given.
        environ: The environment, `os.environ` by default.
        file: Settings file; by default what ``SLUICEGATE_CONFIG`` names, or ``sluicegate.yaml`` if there.

    Raises:
        SettingsError: A source is unreadable, a key unknown or a value out of range; names the source.
    """
    env = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    sources = dict.fromkeys(_names(), "default")
    path = file or (Path(env[PREFIX + "CONFIG"]) if env.get(PREFIX + "CONFIG") else None)
    for given, origin in (
        (_from_file(path), f"file {path or DEFAULT_FILE}"),
        (_from_environment(env), "environment"),
        ({k: v for k, v in (overrides or {}).items() if v is not None}, "command line"),
    ):
        for name, value in given.items():
            values[name] = value
            sources[name] = f"environment {PREFIX}{name.upper()}" if origin == "environment" else origin
    try:
        return Loaded(Settings(**values), sources)
    except ValidationError as error:
        raise SettingsError(_explain(error, sources), fix="`sluicegate config` lists them") from None


def known() -> list[tuple[str, str, str]]:
    """(name, default, what it is) of every setting."""
    return [
        (name, _shown(field.default), " ".join((field.description or "").split()))
        for name, field in Settings.model_fields.items()
    ]


def _names() -> tuple[str, ...]:
    return tuple(Settings.model_fields)


def _from_file(path: Path | None) -> dict[str, Any]:
    """The settings file as a mapping, read as strictly as declared state; a missing default is no error."""
    target = path or Path(DEFAULT_FILE)
    if path is None and not target.exists():
        return {}
    try:
        octets = target.read_bytes()
    except OSError as error:
        raise SettingsError(
            f"settings file {target} cannot be read: {error.strerror or type(error).__name__}",
            fix="name it with --config or SLUICEGATE_CONFIG, or leave both out",
        ) from None
    if all(not line.strip() or line.lstrip().startswith(b"#") for line in octets.splitlines()):
        return {}
    document, problems = read_document(str(target), octets)
    # A fraction is read by the setting's own type, so no two readers can differ about it.
    refused = [str(one) for one in problems if not one.message.endswith(FRACTION)]
    if refused or document is None:
        raise SettingsError("settings refused: " + "; ".join(refused), fix=f"correct {target}")
    if not isinstance(document.data, dict):
        raise SettingsError(
            f"settings refused: {target}:1: this is no mapping", fix="write one `name: value` a line"
        )
    if "state" in document.data:  # `links`, `rotate` and `evidence` read no settings file
        raise SettingsError(
            f"settings refused: {target}: state is not read from a file, since not every command reads one",
            fix="give it by --state or SLUICEGATE_STATE",
        )
    return document.data


def _from_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Our variables; an unknown name with our prefix is passed on, so that validation refuses it."""
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in env.items()
        if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in RESERVED
    }


def _explain(error: ValidationError, sources: Mapping[str, str]) -> str:
    """Names, messages and sources; never the offending value, which may be a secret."""
    parts = []
    for item in error.errors(include_input=False, include_url=False):
        name = ".".join(str(part) for part in item["loc"]) or "settings"
        parts.append(f"{name} ({sources.get(name, 'unknown source')}): {item['msg']}")
    return "settings refused: " + "; ".join(parts)


def _shown(value: object) -> str:
    if isinstance(value, SecretStr):
        return "(redacted)"
    return "(unset)" if value is None else str(value)
