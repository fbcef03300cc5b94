"""Every setting of the runner, defined once: name, type, default and description."""

from __future__ import annotations

import os
import socket
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from runner.config import home as home_module
from runner.config import options
from runner.errors import OperatorError, UserError
from runner.text.words import did_you_mean
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


Seconds = Annotated[float, refusing(parse_duration)]
Mebibytes = Annotated[int, refusing(parse_size_mib)]
Folder = Annotated[str, BeforeValidator(lambda text: os.path.abspath(os.path.expanduser(text)))]


def _ahead(text: str) -> int | None:
    if text.strip().lower() == "all":
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise UserError("write how many, like 4, or: all")
    return int(text)


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
    """The settings of the runner. .env.example lists them in this order."""

    # The box
    home: Folder = Field(
        home_module.DEFAULT,
        validate_default=True,
        description="State folder. Must be on a local disk. Created with mode 0700 on first use.",
    )
    box: str = Field(
        default_factory=socket.gethostname, description="Name of this box in messages. Default: the host name."
    )
    backup_dir: Folder | None = Field(
        None,
        description="Folder for a continuous copy of the queue, for example on a network mount. If the queue is lost,"
        " it is restored from there. Default: no copy.",
    )
    when_empty: str | None = Field(
        None,
        description="Shell command to run when no job is left, like runpodctl stop pod $RUNPOD_POD_ID. Default: none.",
    )
    when_empty_grace: Seconds = Field(
        600.0,
        ge=0,
        description="Wait this long before running that command. A new job, `nightshift stay` or `nightshift pause`"
        " cancels it.",
    )

    # Where jobs run: docs/slurm.md
    engine: Literal["local", "slurm"] = Field(
        "local", description="Where jobs run: local (this host) or slurm (a cluster that this account may use)."
    )
    shared: Folder | None = Field(
        None, description="With Slurm: a folder that all its nodes see. Run directories and snapshots are kept there."
    )
    slurm_ahead: Annotated[int | None, refusing(_ahead)] = Field(
        4,
        description="With Slurm: how many jobs may wait in its queue. The others wait here, so their order can still"
        " be changed. Or: all.",
    )
    slurm_partition: str | None = Field(None, description="Partition for jobs without --partition. Default: Slurm's.")
    slurm_account: str | None = Field(None, description="Account for jobs without --account. Default: Slurm's.")
    slurm_qos: str | None = Field(None, description="Quality of service for jobs without --qos. Default: Slurm's.")
    slurm_constraint: str | None = Field(
        None, description="Features of nodes for jobs without --constraint. Default: none."
    )
    slurm_shared_account: bool = Field(
        False,
        description="Let everybody who may submit use the Slurm account that runs nightshift. Slurm charges it for all"
        " of their jobs. yes or no.",
    )
    slurm_poll: Seconds = Field(5.0, ge=0.1, description="With Slurm: how often to look at its queue.")
    slurm_forgotten_after: Seconds = Field(
        60.0,
        ge=0.1,
        description="With Slurm: a job that it no longer knows counts as gone if it still does not this much later.",
    )

    # GPUs, CPUs and memory
    gpus: str = Field(
        "auto",
        description="Which GPUs to use: auto (all that NVML lists; an error if there are none), none, indices or UUIDs"
        " like 0,1, or simulated ones like sim:2x24GiB.",
    )
    slots_per_gpu: int = Field(1, ge=1, le=64, description="How many jobs may share one GPU.")
    settle: Seconds = Field(
        10.0,
        ge=0,
        description="If jobs share a GPU: wait up to this long between two starts on it, or until the memory of the"
        " first job stops growing.",
    )
    free_utilization: Percent = Field(
        50.0, description="A GPU counts as free if its load by other programs is below this percentage ..."
    )
    free_memory: Percent = Field(10.0, description="... and they hold less than this percentage of its memory.")
    cpu_slots: int = Field(
        default_factory=lambda: os.cpu_count() or 1,
        ge=0,
        description="How many jobs with --gpus 0 may run at a time. Default: the number of CPUs.",
    )
    cpus: int = Field(
        default_factory=lambda: len(os.sched_getaffinity(0)),
        ge=1,
        description="CPU cores that jobs may reserve with -c. Default: all of them.",
    )
    ram: Mebibytes = Field(
        default_factory=lambda: os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        ge=1,
        description="Host memory that jobs may reserve with -m. Default: all of it.",
    )

    # Shares and limits
    gpus_each: int | None = Field(
        None, ge=1, description="How many GPUs one person may use at a time. Default: no limit."
    )
    gpus_each_low: int | None = Field(
        None,
        ge=1,
        description="The limit for jobs of low priority, instead of the one above. It counts all GPUs that the person"
        " uses. Default: no limit.",
    )
    age: Seconds = Field(
        86400.0, ge=0, description="A waiting job gains one priority level per this much time. 0s: never."
    )
    time: Seconds | None = Field(None, gt=0, description="Time limit for jobs that do not set one. Default: no limit.")
    time_max: Seconds | None = Field(None, gt=0, description="Longest time limit a job may ask for. Default: no limit.")
    time_warning: Seconds | None = Field(
        None,
        ge=0,
        description="How long before its time limit to warn the owner of a job. 0s: never. Default: when a tenth of the"
        " time is left, at most 1h.",
    )
    stop_grace: Seconds = Field(10.0, ge=0, description="Time between SIGTERM and SIGKILL when a job is stopped.")

    # Jobs that fail
    try_for: Seconds = Field(
        30.0, ge=1, le=3600, description="How long a job that is submitted with --try runs in its trial."
    )
    retry_on: Annotated[tuple[str, ...], NoDecode, refusing(options.parse_reasons)] = Field(
        (),
        description="Retry every job up to three times if it ends for one of these reasons (those of --retry-on), like"
        " HOST,SUPERVISOR. Default: none.",
    )
    breaker: int = Field(
        3, ge=0, description="Pause the queue after this many quick failures of the same kind in a row. 0: never."
    )
    breaker_within: Seconds = Field(10.0, ge=0, description="A failure is quick if the job ran no longer than this.")
    breaker_again: Seconds = Field(
        300.0,
        ge=0,
        description="After such a pause, start one job as a test: a job of another kind at once, any other after this"
        " time. Wait twice as long before each further test, up to 1h. 0s: no tests; resume the queue yourself.",
    )

    # Jobs that are idle or hang
    idle: Annotated[str, refusing(options.parse_idle)] = Field(
        "5%:5s:60:12",
        description="Stop a job if the load of all its GPUs stays below 5 % for 60 samples in a row, one every 5 s."
        " Its first 12 samples do not count. Or: off.",
    )
    idle_warning: Seconds | None = Field(
        None,
        description="How long before an idle job is stopped to warn its owner. Default: half of the idle window.",
    )
    idle_advancing: Seconds | None = Field(
        None,
        ge=0,
        description="How long the job's own counter, like step 700 in its output, may excuse idle GPUs. Then they are"
        " judged as if there were no counter. Default: as long as it advances.",
    )
    hung: Annotated[str, refusing(options.parse_hung)] = Field(
        "yield",
        description="What to do with a job that looks hung (GPUs at 100 % but low power, no output for 10 min): yield"
        " (tell the owner; stop it if another job waits for its GPUs), alert (only tell), kill or off.",
    )

    # Batch sizes (docs/batch.md)
    probe_batch: int = Field(8, ge=1, le=4096, description="Batch size of the first probe; see docs/batch.md.")
    probe_margin: Percent = Field(
        92.0,
        ge=10,
        le=100,
        description="Percentage of the available GPU memory that a probed job may fill; the rest stays free.",
    )
    probe_cap: int = Field(4096, ge=1, description="Largest batch size a probe may choose.")
    probe_round_to: int = Field(8, ge=1, description="Round batch sizes down to a multiple of this ...")
    probe_round_from: int = Field(64, ge=1, description="... from this size up.")
    probe_limit: Seconds = Field(120.0, ge=5, le=3600, description="Longest time one probe may take.")
    probe_quiet: Seconds = Field(
        10.0,
        ge=0.5,
        le=3600,
        description="The first probe ends when its memory has not grown for this long, or when the program ends.",
    )

    # Output and disk
    log_limit: Mebibytes = Field(256, ge=1, description="Keep all output of a job up to this size.")
    log_tail: Mebibytes = Field(16, ge=1, description="If there is more, keep at least this much of its end.")
    snapshot_limit: Mebibytes = Field(200, ge=1, description="Largest copy of the code that --snapshot may make.")
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
        description="Remove the oldest run directories when all of them and their snapshots take more than this."
        " Default: never.",
    )
    disk_warning: Mebibytes = Field(
        1024, ge=0, description="Tell the admins when less than this is free on the disk of the state folder. 0: never."
    )

    @property
    def run_root(self) -> str:
        """Return the folder of the run directories as those who run jobs see it."""
        return self.shared if self.engine == "slurm" and self.shared else self.home


# settings of the bot; the runner only checks their spelling
CHAT_SETTINGS = frozenset(
    {
        *("token", "token_file", "api_url", "proxy", "chat", "page_port", "admins", "users", "viewers", "groups"),
        *("submits_per_minute", "queued_per_person", "log_text", "quiet_hours", "heartbeat_url", "heartbeat_every"),
    }
)

T = TypeVar("T", bound=FromEnvironment)


def load() -> Settings:
    """Return the runner's settings. Raise OperatorError that says which one is wrong and how to write it."""
    return load_as(Settings)


def load_as(kind: type[T]) -> T:
    """Return the settings of this class, as set in the environment and the .env file."""
    texts = {_field(variable): text for variable, text in _file_values().items() if text != ""}
    texts["home"] = home_module.state_folder()
    try:
        return kind(**texts)
    except ValidationError as error:
        raise OperatorError("\n".join(_sentence(problem) for problem in error.errors())) from error


def _file_values() -> dict[str, str]:
    names = set(Settings.model_fields) | CHAT_SETTINGS
    texts = {variable: text for variable, text in home_module.values().items() if variable not in os.environ}
    for variable in texts:
        if _field(variable) not in names:
            hint = did_you_mean(variable, [home_module.PREFIX + name.upper() for name in names])
            raise OperatorError(f"There is no setting {variable}{hint or '.'}")
    return texts


def _field(variable: str) -> str:
    return variable.removeprefix(home_module.PREFIX).lower()


def _sentence(problem: Any) -> str:
    name = home_module.PREFIX + "_".join(str(part) for part in problem["loc"]).upper()
    value = "…" if "token" in problem["loc"] else problem.get("input")
    return f"{name}={value!s}: {problem['msg'].removeprefix('Value error, ')}"
