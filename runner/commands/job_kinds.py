"""Find jobs that are likely to use the same GPU memory, or to take equally long.

For durations, a kind consists of the command, the folder and the number of GPUs. For memory, also of the version of the
code, the model of the GPUs, and the environment variables that affect memory. Some options are left out of the command:
the batch (it is what probing looks for), the run id, and names that do not change how much memory training takes, like
seeds, learning rates, run names and output folders. `--name` and `--version` stay in: they may name a model. If one of
the ignored options does change the memory, the real run runs out of memory, and the measurement is forgotten.

The version of the code is the size and modification time of the Python and configuration files below the working
folder, and of files that the command names. That is quick, needs no git, and is safe: a touched file means a new probe.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from runner.digests import blake2b, sha256

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from runner.model import JobSpec

HARMLESS = frozenset(
    {
        *("seed", "random_seed", "manual_seed", "data_seed"),
        *("lr", "learning_rate", "min_lr", "weight_decay", "wd", "beta1", "beta2"),
        *("run_name", "run_id", "exp_name", "experiment_name", "notes", "tags"),
        *("wandb_run_name", "wandb_project", "wandb_name", "wandb_group", "wandb_notes", "wandb_log"),
        *("out", "out_dir", "outdir", "output", "output_dir", "save_dir", "save_path", "log_dir", "logdir"),
    }
)
CODE = (".py", ".yaml", ".yml", ".toml")
# folders with data, results of earlier runs, or other people's code
_NOT_CODE = frozenset(
    {
        *("__pycache__", "node_modules", "site-packages", "venv", "env", "build", "dist", "data", "datasets"),
        *("wandb", "mlruns", "outputs", "output", "out", "runs", "results", "logs", "lightning_logs", "multirun"),
        *("checkpoints", "ckpt"),
    }
)
MOST_FILES, MOST_ENTRIES, DEEPEST = 2000, 20_000, 6
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_VARIABLES = re.compile(r"PYTORCH_|TORCH_|XLA_|TF_|JAX_|CUDA_MODULE_LOADING$|CUBLAS_|CUDNN_|NCCL_BUFFSIZE$")


def words_of(command: str, argv: Sequence[str] | None = None) -> list[str]:
    """Return the words of a command. Shell text that cannot be parsed is split at white space."""
    if argv is not None:
        return list(argv)
    from runner.commands.shell_parser import split  # imported late: its patterns take 2 ms

    try:
        return split(command)
    except ValueError:
        return command.split()


def kind_of(words: Sequence[str], *, batch_arg: str | None = None, run_id_arg: str | None = None) -> list[str]:
    """Return the words without the batch, the run id, and options that do not affect memory."""
    gone = HARMLESS | {_plain(arg) for arg in (batch_arg, run_id_arg) if arg}
    kind: list[str] = []
    skip_value = False
    for word in words:
        if skip_value and not _is_option(word):
            skip_value = False
            continue
        skip_value = False
        name, equals, _ = word.partition("=")
        if _plain(name) in gone and (equals or word.startswith("-")):
            skip_value = not equals
            continue
        kind.append(word)
    return kind


def code_version(folder: str, words: Sequence[str] = ()) -> str | None:
    """Return a fingerprint of the code below a folder, or None if there are too many files."""
    stamps: dict[str, list[int]] = {}
    for path in _code_files(folder):
        if path is None or len(stamps) >= MOST_FILES:
            return None
        stamps[os.path.relpath(path, folder)] = _stamp(path)
    for word in words:
        path = os.path.join(folder, word.rpartition("=")[2])
        if len(path) < 4096 and "\0" not in path and os.path.isfile(path):
            stamps[os.path.relpath(path, folder)] = _stamp(path)
    return _digest(sorted(stamps.items()))


def key(
    *,
    words: Sequence[str],
    folder: str,
    version: str | None,
    gpu: str | None,
    gpus: int = 1,
    env: Mapping[str, str] | None = None,
    batch_arg: str | None = None,
    run_id_arg: str | None = None,
) -> str | None:
    """Return the key under which a job's memory use is stored, or None if the code or the GPU model is unknown."""
    if version is None or gpu is None:
        return None
    kind = kind_of(words, batch_arg=batch_arg, run_id_arg=run_id_arg)
    variables = sorted((name, value) for name, value in (env or {}).items() if _VARIABLES.match(name))
    return _digest([kind, folder, version, gpu, gpus, variables])


def _plain(name: str) -> str:
    return name.lstrip("-+").replace("-", "_").lower()


def _is_option(word: str) -> bool:
    """Return whether a word is an option rather than a value; `-1` and `-1e-4` are values."""
    return word.startswith("-") and not _NUMBER.fullmatch(word)


def _code_files(folder: str) -> Iterator[str | None]:
    """Yield the code files in no particular order. Yield None and stop if there are too many entries."""
    entries = 0
    for here, folders, names in os.walk(folder):
        entries += len(folders) + len(names)
        if entries > MOST_ENTRIES:
            yield None
            return
        depth = here.removeprefix(folder).count("/")
        folders[:] = [name for name in folders if depth < DEEPEST and _may_hold_code(here, name)]
        yield from (os.path.join(here, name) for name in names if name.endswith(CODE))


def _may_hold_code(parent: str, name: str) -> bool:
    if name.startswith(".") or name.lower() in _NOT_CODE or name.endswith(".egg-info"):
        return False
    return not os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))


def _stamp(path: str) -> list[int]:
    try:
        status = os.stat(path)
    except OSError:
        return [-1, -1]
    return [status.st_size, status.st_mtime_ns]


def _digest(parts: object) -> str:
    return sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()[:32]


# -- equal duration ----------------------------------------------------------------------------------


class Kinds(NamedTuple):
    """Two keys of a job: `kind` is shared by nearly identical jobs, `shape` by similar ones."""

    kind: str  # the same command, except for seeds, learning rates, run names and output folders
    shape: str  # the same program with the same options, whatever their values


def kinds_of(spec: JobSpec) -> Kinds:
    """Return the keys under which the duration of a job is stored."""
    words = spec.argv if spec.argv is not None else spec.command.split()
    where = (spec.dir, str(spec.gpus))
    return Kinds(_short_digest((*kind_of(words), *where)), _short_digest((*_shape(words), *where)))


def _shape(words: Sequence[str]) -> Iterator[str]:
    """Yield the words without the values of options and of `name=value`, and without bare numbers."""
    after_option = False
    for word in words:
        is_option = _is_option(word)
        if is_option or "=" in word:
            yield word.partition("=")[0]
        elif not (after_option or _NUMBER.fullmatch(word)):
            yield word
        after_option = is_option and "=" not in word


def _short_digest(words: Sequence[str]) -> str:
    return blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
