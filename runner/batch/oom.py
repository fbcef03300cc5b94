"""Tells whether a job ended because memory ran out, from the end of its output and its exit. Pure.

The words alone prove nothing. Programs print them and continue, tests print them on purpose, and another failure may
come hours later. So they count only if the job failed, the words are near the end of its output, and nothing after
them shows progress or another error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.model import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

SIGKILL = 9
LAST_LINES = 400  # XLA and TensorFlow print long lists of their allocations
LONGEST_LINE = 4000
WENT_ON_LINES = 3


@dataclass(frozen=True, slots=True)
class MemoryShortage:
    """Memory ran out: which memory, and the line that says so."""

    where: Memory
    line: str
    wanted_mib: float | None = None  # the size of the allocation that failed, if the line says so


_GPU = re.compile(
    r"""
      \b(?:CUDA|HIP|XPU|MPS)(?:\ backend)?\ (?:error:\ )?out\ of\ memory
    | \b(?:torch\.)?(?:cuda\.)?OutOfMemoryError\b(?!:\ [^C]{0,200}\bhost\b)
    | \bCUDA_ERROR_OUT_OF_MEMORY\b | \bcudaErrorMemoryAllocation\b | \bcudaErrorOutOfMemory\b
    | \bhipErrorOutOfMemory\b | \bHIP_ERROR_OutOfMemory\b
    | \bCU[BD](?:LAS|NN)_STATUS_ALLOC_FAILED\b | \bCUFFT_ALLOC_FAILED\b
    | \b(?:HIPBLAS|MIOPEN|CUSOLVER|CUSPARSE)_?(?:STATUS)?_?A(?:LLOC|lloc)_?F(?:AILED|ailed)\b
    | \bCUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED\b
    | \bOOM\ when\ allocating\ tensor\b
    | Triton\ Error\ \[(?:CUDA|HIP)\]:\ out\ of\ memory
    | (?:Cuda|CUDA|HIP)\ failure\ (?:\d+\ )?[':]?\ ?'?out\ of\ memory
    | \bout\ of\ memory\ on\ device\b | \bOut\ of\ memory\ error\ on\ GPU\b
    | cupy\S{0,60}\.OutOfMemoryError | \bbad_alloc:\ cudaErrorMemoryAllocation
    | \bINTERNAL:\ Failed\ to\ allocate\ \d+\ bytes\ for\ new\ constant
    | ^Out\ of\ memory\ (?:while\ trying\ to\ allocate|allocating)\ \d
    | \bCuda\ Runtime\ \(out\ of\ memory\) | \bError\ Code\ 2:\ OutOfMemory\b | \ballocate:\ 2\ \(out\ of\ memory\)
    | \bNo\ available\ memory\ for\ the\ cache\ blocks\b | \blarger\ than\ the\ available\ KV\ cache\ memory\b
    | \bon\ startup\ is\ less\ than\ desired\ GPU\ memory\ utilization\b
    | \bNot\ enough\ memory\.\ Please\ try\ to\ increase\ --mem-fraction-static
    | \b(?:Prefill|Decode)\ out\ of\ memory\b
    """,
    re.VERBOSE,
)
_HOST = re.compile(
    r"""
      ^(?:\[rank\d{1,6}\]:\ )?(?:numpy\S*\.)?_?(?:Array)?MemoryError\b
    | \bDefaultCPUAllocator:\ (?:can't\ allocate|not\ enough)\ memory
    | \bstd::bad_alloc\b(?!:\ cuda) | \[Errno\ 12\]\ Cannot\ allocate\ memory
    | \bDataLoader\ worker\ \(pid(?:\(s\))?\ [\d,\ ]+\)\ is\ killed\ by\ signal:\ Killed
    | (?i:\bout\ of\ memory:\ kill(?:ed)?\ process\b) | \boom[-_]kill(?:er)?\b | \bMemory\ cgroup\ out\ of\ memory\b
    | \bkilled\ due\ to\ the\ node\ running\ low\ on\ memory\b
    | \bggml_aligned_malloc:\ insufficient\ memory\b | \bFail\ to\ alloc\ memory\ of\ \d+\ size\b
    | \bCUDA\ error:\ out\ of\ host\ memory | \bCUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED\b
    """,
    re.VERBOSE,
)
# Words that must follow each other in a line. One pattern with `.*` in it would try all combinations.
_GPU_IN_TURN = tuple(
    tuple(re.compile(part) for part in parts)
    for parts in (
        (r"(?i:resource[_ ]exhausted): ", r"(?i:out of memory|failed to allocate|OOM when allocating)"),
        (r"\bResourceExhaustedError\b", r"OOM when allocating"),
        (r"(?i:cu(?:da)?_?malloc\w*|hipMalloc)\b", r"(?i:failed|retry|error)", r"out of memory"),
        (r"\bBFCArena::AllocateRawInternal\b", r"Failed to allocate"),
    )
)
_HOST_IN_TURN = (re.compile(r"\bOOM when allocating tensor\b"), re.compile(r"device:CPU|allocator (?:mkl)?cpu"))
_NEVER = re.compile(
    # an overflowed size, or a kernel too large for its multiprocessor: a smaller batch does not help
    r"more than 1EB memory|device-side assert|out of resource: (?:shared memory|registers)|OutOfResources"
)
# cuDNN and cuBLAS report these when they find no room for their handles, but also for other reasons
_PERHAPS = re.compile(
    r"\bCUDNN_STATUS_(?:INTERNAL_ERROR|NOT_SUPPORTED|NOT_INITIALIZED)\b|\bCUBLAS_STATUS_NOT_INITIALIZED\b"
)

# every matching line contains one of these; looking for them first is a hundred times faster
_HINTS = ("memory", "alloc", "oom", "killed", "cudnn", "cublas")

_ERROR = re.compile(
    r"^(?:\[?rank\s?\d+(?!\d)\]?:?\s*)?(?:[A-Za-z_][\w.]*\.)?\w*(?:Error|Exception|Interrupt|Exit)\b(?::|$)"
)
# errors in other processes that follow from the one that ran out of memory
_FOLLOWS = re.compile(
    r"ChildFailedError|Process(?:Exited|Raised)Exception|DistBackendError|DistNetworkError|DistStoreError|NCCL|ncclError"
    r"|CalledProcessError|SystemExit|BrokenPipeError|ConnectionResetError|EOFError|BrokenProcessPool|RayTaskError"
    r"|ActorDiedError|wandb|Communic|UncapturedError|No executable batch size|Socket|Gloo|gloo|TimeoutError"
    r"|Engine core initialization failed|EngineDeadError|Failed to create llama_context|Failed to load model from file"
    r"|for LlamaCpp|PolygraphyException|PapermillExecutionError|CellExecutionError"
    r"|DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly"
)
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CHAINED = re.compile(r"During handling of the above exception|direct cause of the following exception")
_PROGRESS = re.compile(
    r"\b(?:step|iter|iteration|epoch|batch)\b\W{0,3}\d|\d\s?(?:it/s|s/it|samples/s|tokens/s|tok/s)"
    r"|\bloss\b\W{0,3}\d",
    re.IGNORECASE,
)
_NOT_PROGRESS = ("File ", "raise ", "return ", "wandb:")  # wandb repeats the last metrics when a run ends
_WANTED = re.compile(
    r"[Tt]ried to allocate (\d+(?:\.\d+)?) (bytes|[KMGT]i?B)"
    r"|(?:allocat\w{1,8}|buffer of size) (\d+(?:\.\d+)?)\s?(bytes|[KMGT]i?B)?"
)
_UNIT_MIB = {"b": 1 / 1048576, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1048576.0}


def recognise(
    tail: str,
    *,
    exit_code: int | None,
    signal: int | None = None,
    host_kill: bool | None = None,
    gpu_full: bool | None = None,
) -> MemoryShortage | None:
    """Return which memory the job ran out of, or None if it did not or that is not known.

    `tail` is the end of its output. `host_kill`: the kernel or the cgroup counted an out-of-memory kill while it ran.
    `gpu_full`: its GPU was nearly full, so that ambiguous errors count as well.
    """
    if exit_code == 0:
        return None
    in_output = _in_output(tail, gpu_full=bool(gpu_full))
    if in_output is not None and in_output.where is Memory.GPU:
        return in_output
    killed = signal == SIGKILL or exit_code == 128 + SIGKILL
    if killed and host_kill:
        return in_output or MemoryShortage(Memory.HOST, "killed by the kernel, which had no memory left")
    return in_output


def _in_output(tail: str, *, gpu_full: bool) -> MemoryShortage | None:
    lines = [line[:LONGEST_LINE].rstrip() for line in re.split(r"\r\n|\n|\r", _COLOURS.sub("", tail))][-LAST_LINES:]
    last = None
    for number, line in enumerate(lines):
        where = _says(line, gpu_full=gpu_full)
        if where is not None:
            last = (number, where)
    if last is None or _went_on(lines[last[0] + 1 :]):
        return None
    number, where = last
    return MemoryShortage(where, lines[number].strip()[:300], _wanted_mib(lines[number]))


def _says(line: str, *, gpu_full: bool) -> Memory | None:
    low = line.lower()
    if not any(hint in low for hint in _HINTS) or _NEVER.search(line):
        return None
    if _HOST.search(line) or _in_turn(line, _HOST_IN_TURN):
        return Memory.HOST
    if _GPU.search(line) or any(_in_turn(line, parts) for parts in _GPU_IN_TURN):
        return Memory.GPU
    return Memory.GPU if gpu_full and _PERHAPS.search(line) else None


def _in_turn(line: str, parts: Sequence[re.Pattern[str]]) -> bool:
    """Return whether a line contains all of these, one after another."""
    at = 0
    for part in parts:
        match = part.search(line, at)
        if match is None:
            return False
        at = match.end()
    return True


def _went_on(after: list[str]) -> bool:
    """Return whether the job continued to work after these lines, or ended with another error."""
    chained = False
    progress = 0
    for line in after:
        chained |= bool(_CHAINED.search(line))
        if _ERROR.match(line.strip()) and not chained and not _FOLLOWS.search(line):
            return True
        progress += bool(_PROGRESS.search(line)) and not line.lstrip().startswith(_NOT_PROGRESS)
    return progress >= WENT_ON_LINES


def _wanted_mib(line: str) -> float | None:
    match = _WANTED.search(line)
    if match is None:
        return None
    number, unit = (match[1], match[2]) if match[1] else (match[3], match[4])
    return float(number) * _UNIT_MIB[(unit or "bytes")[0].lower()]
