"""Every setting of the runner, once: name, type, default and what it is for."""

from __future__ import annotations

import difflib
import os
import socket
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from runner import idle
from runner.config import home as home_module
from runner.config import options
from runner.errors import OperatorError, UserError
from runner.idle import hung_rule
from runner.units import parse_duration, parse_size_mib


def refusing(parse: Any) -> Any:
    """Pydantic wants ValueError; our parsers raise UserError with the sentence to show."""

    def checked(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return parse(value)
        except UserError as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(checked)


def _idle_rule(text: str) -> str:
    return idle.format_policy(idle.parse_policy(text))


def _hung_rule(text: str) -> str:
    return hung_rule.format_policy(hung_rule.parse_policy(text))


def _retry_reasons(text: str) -> tuple[str, ...]:
    return options.parse_reasons(text)


Seconds = Annotated[float, refusing(parse_duration)]
Mebibytes = Annotated[int, refusing(parse_size_mib)]
Folder = Annotated[str, BeforeValidator(lambda text: os.path.abspath(os.path.expanduser(text)))]
Percent = Annotated[float, BeforeValidator(lambda value: str(value).removesuffix("%")), Field(ge=0, le=100)]


class FromEnvironment(BaseSettings):
    """Settings from the environment, then from the .env file (given as arguments), then their defaults."""

    model_config = SettingsConfigDict(env_prefix=home_module.PREFIX, env_ignore_empty=True, extra="ignore", frozen=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the base class' signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over what the file says."""
        return env_settings, init_settings


class Settings(FromEnvironment):
    """What the runner goes by."""

    home: Folder = Field(
        home_module.DEFAULT,
        validate_default=True,
        description="State folder, made 0700 on first use; on a local disk.",
    )
    box: str = Field(
        default_factory=socket.gethostname,
        description="This box's name in notices. Default: the host's name.",
        json_schema_extra={"shown_default": "the host's name"},
    )
    gpus: str = Field(
        "auto",
        description="auto: what NVML shows, or an error · none · 0,1 or UUIDs · sim:2x24GiB simulates.",
    )
    slots_per_gpu: int = Field(1, ge=1, le=64, description="Jobs at once on one GPU.")
    settle: Seconds = Field(
        10.0, ge=0, description="Between two starts on one GPU, at most; sooner if the memory of the first is at rest.",
        json_schema_extra={"shown_default": "10s"},
    )  # fmt: skip
    gpus_each: int | None = Field(None, ge=1, description="GPUs at once for one person. Default: no limit.")
    gpus_each_low: int | None = Field(None, ge=1, description="... at low priority, all of theirs counted.")
    cpus: int = Field(
        default_factory=lambda: len(os.sched_getaffinity(0)), ge=1, description="CPU cores for jobs that ask for some.",
        json_schema_extra={"shown_default": "the number of CPUs"},
    )  # fmt: skip
    ram: Mebibytes = Field(
        default_factory=lambda: os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20, ge=1,
        description="Memory of the host for jobs that ask for some.",
        json_schema_extra={"shown_default": "what the host has"},
    )  # fmt: skip
    age: Seconds = Field(
        86400.0, ge=0, description="For each of these that it waited, a job counts as one priority higher. 0: never.",
        json_schema_extra={"shown_default": "1d"},
    )  # fmt: skip
    time: Seconds | None = Field(None, gt=0, description="Time limit of a job that names none. Default: no limit.")
    time_max: Seconds | None = Field(None, gt=0, description="The longest that may be asked for. Default: any.")
    time_warning: Seconds | None = Field(
        None, ge=0, description="How long before the limit its owner is warned; 0: never. Default: a tenth, 1h at most."
    )
    retry_on: Annotated[tuple[str, ...], NoDecode, refusing(_retry_reasons)] = Field(
        (), description="Jobs that end so are tried again, three times at most: HOST, SUPERVISOR. Default: none."
    )
    cpu_slots: int = Field(
        default_factory=lambda: os.cpu_count() or 1,
        ge=0,
        description="Jobs with --gpus 0 at once. Default: the number of CPUs.",
        json_schema_extra={"shown_default": "the number of CPUs"},
    )
    free_utilization: Percent = Field(50.0, description="A GPU is free for us below this utilisation by others.")
    free_memory: Percent = Field(10.0, description="... and while others hold less than this share of its memory.")
    stop_grace: Seconds = Field(
        10.0, ge=0, description="Between SIGTERM and SIGKILL.", json_schema_extra={"shown_default": "10s"}
    )
    log_limit: Mebibytes = Field(
        256,
        ge=1,
        description="A job's output is kept whole up to this size.",
        json_schema_extra={"shown_default": "256M"},
    )
    log_tail: Mebibytes = Field(
        16,
        ge=1,
        description="Beyond it, this much of its end (at least) is kept.",
        json_schema_extra={"shown_default": "16M"},
    )
    snapshot_limit: Mebibytes = Field(
        200, ge=1, description="The largest copy of the code that `submit --snapshot` makes.",
        json_schema_extra={"shown_default": "200M"},
    )  # fmt: skip
    breaker: int = Field(
        3, ge=0, description="So many jobs in a row that fail the same way at once pause the queue; 0: never."
    )
    breaker_within: Seconds = Field(
        10.0,
        ge=0,
        description="At once means within this time of starting.",
        json_schema_extra={"shown_default": "10s"},
    )
    breaker_again: Seconds = Field(
        300.0,
        ge=0,
        description="A queue that was paused so is tried with one job: at once with one unlike those that failed,"
        " otherwise after this time, then after twice as long, up to 1h. 0s: never, somebody has to resume it.",
        json_schema_extra={"shown_default": "5m"},
    )
    idle: Annotated[str, refusing(_idle_rule)] = Field(
        "5%:5s:60:12",
        description="A job is stopped if all its GPUs stay below 5 % in 60 samples of 5 s, past its first 12; or off.",
    )
    idle_warning: Seconds | None = Field(
        None, description="How long before that its owner is warned. Default: half the time."
    )
    hung: Annotated[str, refusing(_hung_rule)] = Field(
        "yield",
        description="What looks hung (GPUs at 100 % and low power, no output for 10 min): yield (told, and stopped"
        " where another job waits for its GPUs), alert, kill or off.",
    )
    probe_batch: int = Field(8, ge=1, le=4096, description="The batch of a probe's first run; see docs/batch.md.")
    probe_margin: Percent = Field(
        92.0, ge=10, le=100, description="The part of a GPU's memory that may be used, in percent."
    )
    probe_cap: int = Field(4096, ge=1, description="The largest batch that is ever chosen.")
    probe_round_to: int = Field(8, ge=1, description="Batches are rounded down to a multiple of this ...")
    probe_round_from: int = Field(64, ge=1, description="... from this size up.")
    probe_limit: Seconds = Field(
        120.0, ge=5, le=3600, description="A probe takes no longer.", json_schema_extra={"shown_default": "2m"}
    )
    probe_quiet: Seconds = Field(
        10.0,
        ge=0.5,
        le=3600,
        description="The first probe ends when its memory has not grown for so long, unless it has an end of its own.",
        json_schema_extra={"shown_default": "10s"},
    )
    backup_dir: Folder | None = Field(
        None,
        description="Folder (a network mount may be) for a continuous copy of the queue; restored from by itself.",
    )
    when_empty: str | None = Field(
        None,
        description="Shell command to run when no job is left, e.g. runpodctl stop pod $RUNPOD_POD_ID. Default: none.",
    )
    when_empty_grace: Seconds = Field(
        600.0,
        ge=0,
        description="... so long after; a job submitted by then, `nightshift stay` or `nightshift pause` prevents it.",
        json_schema_extra={"shown_default": "10m"},
    )
    keep_logs: Seconds | None = Field(
        None, description="Output of finished jobs is removed after this time. Default: never."
    )
    keep_runs: Seconds | None = Field(None, description="Run directories of finished jobs likewise.")
    keep_jobs: Seconds | None = Field(None, description="Finished jobs are forgotten after this time.")
    disk_limit: Mebibytes | None = Field(
        None,
        description="Oldest run directories are removed when all, with the copies of code they ran from, are larger.",
    )
    disk_warning: Mebibytes = Field(
        1024, ge=0, description="The admins are told when less is free on the state folder's disk; 0: never.",
        json_schema_extra={"shown_default": "1G"},
    )  # fmt: skip


# names that belong to the chat face; the runner only has to know that they are not misspelt
CHAT_SETTINGS = frozenset(
    {
        *("token", "token_file", "api_url", "proxy", "chat", "page_port", "admins", "users", "viewers", "groups"),
        *("submits_per_minute", "queued_per_person", "log_text", "quiet_hours", "heartbeat_url", "heartbeat_every"),
    }
)
LATER_SETTINGS = frozenset({"engine"})

T = TypeVar("T", bound=FromEnvironment)


def load() -> Settings:
    """The runner's settings in force; OperatorError says which one is wrong and how to put it."""
    return load_as(Settings)


def load_as(kind: type[T]) -> T:
    """The settings of this kind in force."""
    given: dict[str, Any] = {
        key.removeprefix(home_module.PREFIX).lower(): value for key, value in _file_values().items()
    }
    given["home"] = home_module.state_folder()
    try:
        return kind(**{key: value for key, value in given.items() if value != ""})
    except ValidationError as error:
        raise OperatorError("\n".join(_sentence(problem) for problem in error.errors())) from error


def _file_values() -> dict[str, str]:
    found = {key: value for key, value in home_module.values().items() if key not in os.environ}
    known = set(Settings.model_fields) | CHAT_SETTINGS | LATER_SETTINGS
    for key in found:
        name = key.removeprefix(home_module.PREFIX).lower()
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {home_module.PREFIX}{near[0].upper()}?" if near else ""
            raise OperatorError(f"There is no setting {key}.{hint}")
    return found


def _sentence(problem: Any) -> str:
    name = home_module.PREFIX + "_".join(str(part) for part in problem["loc"]).upper()
    given = "…" if "token" in problem["loc"] else problem.get("input")
    return f"{name}={given!s}: {problem['msg'].removeprefix('Value error, ')}"
