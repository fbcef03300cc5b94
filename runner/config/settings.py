"""Every setting of the runner, defined once: name, type, default and description."""

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
    """Wrap a parser for pydantic, which wants ValueError where our parsers raise UserError with the message to show."""

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
    """Settings from the environment, then from the .env file (passed as arguments), then the defaults."""

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
        """Let the environment win over the .env file."""
        return env_settings, init_settings


class Settings(FromEnvironment):
    """The settings of the runner."""

    home: Folder = Field(
        home_module.DEFAULT,
        validate_default=True,
        description="State folder. Must be on a local disk. Created with mode 0700 on first use.",
    )
    box: str = Field(
        default_factory=socket.gethostname,
        description="Name of this box in messages. Default: the host name.",
        json_schema_extra={"shown_default": "the host's name"},
    )
    gpus: str = Field(
        "auto",
        description="Which GPUs to use: auto (all that NVML lists, an error if there are none), none, 0,1 or UUIDs,"
        " or sim:2x24GiB for simulated ones.",
    )
    slots_per_gpu: int = Field(1, ge=1, le=64, description="How many jobs may share one GPU.")
    settle: Seconds = Field(
        10.0, ge=0, description="Longest pause between two starts on one GPU. It ends early when the memory of the"
        " first job stops growing.",
        json_schema_extra={"shown_default": "10s"},
    )  # fmt: skip
    gpus_each: int | None = Field(
        None, ge=1, description="How many GPUs one person may use at a time. Default: no limit."
    )
    gpus_each_low: int | None = Field(
        None, ge=1, description="The same for jobs of low priority, counting all GPUs the person uses."
    )
    cpus: int = Field(
        default_factory=lambda: len(os.sched_getaffinity(0)), ge=1, description="CPU cores that jobs may reserve with"
        " -c. Default: all of them.",
        json_schema_extra={"shown_default": "the number of CPUs"},
    )  # fmt: skip
    ram: Mebibytes = Field(
        default_factory=lambda: os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20, ge=1,
        description="Host memory that jobs may reserve with -m. Default: all of it.",
        json_schema_extra={"shown_default": "what the host has"},
    )  # fmt: skip
    age: Seconds = Field(
        86400.0, ge=0, description="A waiting job gains one priority level per this much time. 0: never.",
        json_schema_extra={"shown_default": "1d"},
    )  # fmt: skip
    time: Seconds | None = Field(None, gt=0, description="Time limit for jobs that do not set one. Default: no limit.")
    time_max: Seconds | None = Field(None, gt=0, description="The longest time limit a job may ask for. Default: any.")
    time_warning: Seconds | None = Field(
        None,
        ge=0,
        description="When to warn the owner before a job's time limit. 0: never. Default: when a tenth is left, at"
        " most 1h.",
    )
    retry_on: Annotated[tuple[str, ...], NoDecode, refusing(_retry_reasons)] = Field(
        (),
        description="Retry every job that ends for these reasons, up to three times: HOST, SUPERVISOR. Default: none.",
    )
    cpu_slots: int = Field(
        default_factory=lambda: os.cpu_count() or 1,
        ge=0,
        description="How many jobs with --gpus 0 may run at a time. Default: the number of CPUs.",
        json_schema_extra={"shown_default": "the number of CPUs"},
    )
    free_utilization: Percent = Field(
        50.0, description="A GPU counts as free if others use less than this percentage of it ..."
    )
    free_memory: Percent = Field(10.0, description="... and less than this percentage of its memory.")
    stop_grace: Seconds = Field(
        10.0,
        ge=0,
        description="Time between SIGTERM and SIGKILL when a job is stopped.",
        json_schema_extra={"shown_default": "10s"},
    )
    log_limit: Mebibytes = Field(
        256,
        ge=1,
        description="Keep all output of a job up to this size.",
        json_schema_extra={"shown_default": "256M"},
    )
    log_tail: Mebibytes = Field(
        16,
        ge=1,
        description="Beyond that, keep at least this much of its end.",
        json_schema_extra={"shown_default": "16M"},
    )
    snapshot_limit: Mebibytes = Field(
        200, ge=1, description="Largest copy of the code that `submit --snapshot` may make.",
        json_schema_extra={"shown_default": "200M"},
    )  # fmt: skip
    breaker: int = Field(
        3,
        ge=0,
        description="Pause the queue after this many attempts in a row fail quickly and in the same way. 0: never.",
    )
    breaker_within: Seconds = Field(
        10.0,
        ge=0,
        description="Quickly means within this time after the start.",
        json_schema_extra={"shown_default": "10s"},
    )
    breaker_again: Seconds = Field(
        300.0,
        ge=0,
        description="Try a queue that was paused like that with one job: a job of another kind at once, otherwise any"
        " job"
        " after this time, then after twice as long, up to 1h. 0s: never, resume it yourself.",
        json_schema_extra={"shown_default": "5m"},
    )
    idle: Annotated[str, refusing(_idle_rule)] = Field(
        "5%:5s:60:12",
        description="Stop a job if all its GPUs stay below 5 % for 60 samples, one every 5 s, ignoring the first 12."
        " Or: off.",
    )
    idle_warning: Seconds | None = Field(
        None, description="How long before that to warn the owner. Default: half of the window."
    )
    hung: Annotated[str, refusing(_hung_rule)] = Field(
        "yield",
        description="What to do with a job that looks hung (GPUs at 100 % but low power, no output for 10 min): yield"
        " (tell the owner, stop it if another job waits for its GPUs), alert, kill or off.",
    )
    probe_batch: int = Field(8, ge=1, le=4096, description="Batch size of the first probe; see docs/batch.md.")
    probe_margin: Percent = Field(
        92.0, ge=10, le=100, description="How much of the GPU memory a probed job may use, in percent."
    )
    probe_cap: int = Field(4096, ge=1, description="Largest batch size a probe may choose.")
    probe_round_to: int = Field(8, ge=1, description="Round batch sizes down to a multiple of this ...")
    probe_round_from: int = Field(64, ge=1, description="... from this size up.")
    probe_limit: Seconds = Field(
        120.0, ge=5, le=3600, description="Longest time one probe may take.", json_schema_extra={"shown_default": "2m"}
    )
    probe_quiet: Seconds = Field(
        10.0,
        ge=0.5,
        le=3600,
        description="The first probe ends when its memory has not grown for this long, unless it ends by itself.",
        json_schema_extra={"shown_default": "10s"},
    )
    backup_dir: Folder | None = Field(
        None,
        description="Folder for a continuous copy of the queue; may be a network mount. A lost queue is restored from"
        " it.",
    )
    when_empty: str | None = Field(
        None,
        description="Shell command to run when no job is left, e.g. runpodctl stop pod $RUNPOD_POD_ID. Default: none.",
    )
    when_empty_grace: Seconds = Field(
        600.0,
        ge=0,
        description="Wait this long first. A new job, `nightshift stay` or `nightshift pause` cancels it.",
        json_schema_extra={"shown_default": "10m"},
    )
    keep_logs: Seconds | None = Field(
        None, description="Remove the output of finished jobs after this time. Default: never."
    )
    keep_runs: Seconds | None = Field(
        None, description="Remove the run directories of finished jobs after this time. Default: never."
    )
    keep_jobs: Seconds | None = Field(
        None, description="Remove finished jobs from the queue's record after this time. Default: never."
    )
    disk_limit: Mebibytes | None = Field(
        None,
        description="Remove the oldest run directories when all of them, with their snapshots, take more than this.",
    )
    disk_warning: Mebibytes = Field(
        1024, ge=0, description="Tell the admins when less than this is free on the disk of the state folder. 0:"
        " never.",
        json_schema_extra={"shown_default": "1G"},
    )  # fmt: skip


# settings of the bot; the runner only checks their spelling
CHAT_SETTINGS = frozenset(
    {
        *("token", "token_file", "api_url", "proxy", "chat", "page_port", "admins", "users", "viewers", "groups"),
        *("submits_per_minute", "queued_per_person", "log_text", "quiet_hours", "heartbeat_url", "heartbeat_every"),
    }
)
LATER_SETTINGS = frozenset({"engine"})

T = TypeVar("T", bound=FromEnvironment)


def load() -> Settings:
    """Return the runner's settings. Raise OperatorError that says which one is wrong and how to write it."""
    return load_as(Settings)


def load_as(kind: type[T]) -> T:
    """Return the settings of this class, as set in the environment and the .env file."""
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
