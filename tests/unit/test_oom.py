import pytest

from runner.batch.oom import recognise
from runner.model import Memory
from tests.failure_logs import NAMES, output_of

TORCH = (
    "Traceback (most recent call last):\n"
    '  File "/home/u/train.py", line 61, in <module>\n'
    "    loss.backward()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.31 GiB. GPU 0 has a total capacity of 23.69 GiB of"
    " which 780.24 MiB is free. Of the allocated memory 20.70 GiB is allocated by PyTorch"
)
GPU = {
    "torch": TORCH,
    "torch 1.x": "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total capacity)",
    "torch.cuda": "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB.",
    "torch, without a size": "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be"
    " asynchronously reported",
    "torchrun": f"{TORCH}\n"
    "[rank1]: Traceback (most recent call last):\n"
    "[rank1]: torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:2006, remote process exited\n"
    "E0812 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 4242)\n"
    "Traceback (most recent call last):\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    "============================================================\n"
    "train.py FAILED\n"
    "------------------------------------------------------------",
    "a rank": "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.",
    "rank before it": f"[rank0]: {TORCH.splitlines()[-1]}",
    "wandb after it": f"{TORCH}\nwandb: 🚀 View run at https://wandb.ai/u/p/runs/1\nwandb: Find logs at: ./wandb/run-1",
    "chained": f"{TORCH}\n\nDuring handling of the above exception, another exception occurred:\n\n"
    "Traceback (most recent call last):\nValueError: cannot save after failure",
    "accelerate": f"{TORCH}\nRuntimeError: No executable batch size found, reached zero.",
    "ROCm": "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 7 has a"
    " total capacity of 288 GiB",
    "ROCm, error": "RuntimeError: HIP error: out of memory",
    "ROCm, runtime": 'error: "hipErrorOutOfMemory" at main.cpp:31',
    "ROCm, TensorFlow": "rocm_driver.cc:606] failed to allocate 890.06M (933298432 bytes) from"
    " device: HIP_ERROR_OutOfMemory",
    "XPU": "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 4.00 GiB.",
    "JAX": "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to"
    " allocate 7406166528 bytes.",
    "JAX, long": "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory"
    " allocating 20029400304 bytes.\n"
    "BufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter allocation:  372.76MiB\n"
    + "\tBuffer 1:\n\t\tSize: 6.00MiB\n\t\tXLA Label: concatenate\n\t\tShape: f32[4096,128,3]\n"
    * 20,
    "JAX, old": "RuntimeError: Resource exhausted: Out of memory while trying to allocate 5520758552 bytes.",
    "JAX, failed": "XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 2.00GiB"
    " (2147483648B) on device ordinal 0",
    "JAX, constant": "XlaRuntimeError: INTERNAL: Failed to allocate 98697216 bytes for new constant",
    "TensorFlow": "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with"
    " shape[16,112,112,147] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n"
    "Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom",
    "TensorFlow, driver": "E cuda_driver.cc:806] failed to allocate 2.2G from device:"
    " CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "cuBLAS": "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN": "Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN 9": "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "Triton": "RuntimeError: Triton Error [CUDA]: out of memory",
    "NCCL": "enqueue.cc:1085 NCCL WARN Cuda failure 'out of memory'\nRuntimeError: NCCL Error 1: unhandled cuda error",
    "CuPy": "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes"
    " (allocated so far: 0 bytes).",
    "Numba": "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
    "Thrust": "terminate called after throwing an instance of 'thrust::system::detail::bad_alloc'\n"
    "  what():  std::bad_alloc: cudaErrorMemoryAllocation: out of memory",
    "llama.cpp": "ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory",
    "MXNet": "mxnet.base.MXNetError: cudaMalloc retry failed: out of memory",
    "Paddle": "ResourceExhaustedError:\n\nOut of memory error on GPU 0. Cannot allocate 1.5GB memory on GPU 0",
    "ONNX": "onnxruntime: BFCArena::AllocateRawInternal(size_t) Failed to allocate memory for"
    " requested buffer of size 1024",
    "progress bar before it": f"epoch 1: 3%|▎ | 12/400 [00:10<05:20, 1.2it/s]\repoch 1: 4%| 13/400\n{TORCH}",
}
HOST = {
    "MemoryError": "Traceback (most recent call last):\n  x = bytearray(1 << 50)\nMemoryError",
    "NumPy": "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (1, 2)",
    "torch on the CPU": "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory:"
    " you tried to allocate 4 bytes",
    "torch on the CPU, new": "RuntimeError: DefaultCPUAllocator: not enough memory: you tried to"
    " allocate 80000000000 bytes.",
    "a worker": "RuntimeError: DataLoader worker (pid 164244) is killed by signal: Killed. ",
    "C++": "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
    "fork": "OSError: [Errno 12] Cannot allocate memory",
    "Slurm": "slurmstepd: error: Detected 1 oom_kill event in StepId=42.0. Some of the step tasks"
    " have been OOM Killed.",
    "the kernel": "[12345.6] Out of memory: Killed process 4242 (python) total-vm:1kB",
    "cgroup": "Memory cgroup out of memory: Killed process 4242 (python)",
    "TensorFlow on the CPU": "ResourceExhaustedError: OOM when allocating tensor with shape[9] and type float on"
    " /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
}
NOT = {
    "nothing": "",
    "an assertion on the GPU": "RuntimeError: CUDA error: device-side assert triggered\nCompile"
    " with TORCH_USE_CUDA_DSA",
    "illegal access": "RuntimeError: CUDA error: an illegal memory access was encountered",
    "a kernel too large": "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072,"
    " Hardware limit: 101376. Reducing block sizes or `num_stages` may help.",
    "a size gone wrong": "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.",
    "a message too large": "grpc.RpcError: RESOURCE_EXHAUSTED: Received message larger than max (5000000 vs. 4194304)",
    "a quota": "google.api_core.exceptions.ResourceExhausted: 429 RESOURCE_EXHAUSTED: Quota exceeded",
    "a file": "FileNotFoundError: [Errno 2] No such file or directory: 'out_of_memory.txt'",
    "shared memory": "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that"
    " dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
    "a worker that crashed": "RuntimeError: DataLoader worker (pid 7) is killed by signal: Segmentation fault.",
    "caught, and another end": "WARNING: ran out of memory in worker 0, skipping batch\nCUDA out of memory. Tried to"
    " allocate 2.00 GiB\nTraceback (most recent call last):\nKeyError: 'labels'",
    "a test that prints it, and goes on": "test_oom: CUDA out of memory (expected) ... ok\n"
    + "".join(f"epoch {n}: loss 0.{n}\n" for n in range(10))
    + "killed by the user",
    "retried by the allocator": "W bfc_allocator.cc] failed to allocate 2G: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
    + "".join(f"step {n} loss 1.{n} 12.1 it/s\n" for n in range(500))
    + "Segmentation fault",
    "ambiguous": "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
}


@pytest.mark.parametrize("text", GPU.values(), ids=GPU.keys())
def test_memory_of_the_gpu_that_ran_out(text):
    found = recognise(f"step 1 loss 2.3\n{text}\n", exit_code=1)
    assert found is not None
    assert found.where is Memory.GPU
    assert found.line in text


@pytest.mark.parametrize("text", HOST.values(), ids=HOST.keys())
def test_memory_of_the_host_that_ran_out(text):
    found = recognise(f"step 1 loss 2.3\n{text}\n", exit_code=1)
    assert found is not None
    assert found.where is Memory.HOST


@pytest.mark.parametrize("text", NOT.values(), ids=NOT.keys())
def test_what_is_something_else(text):
    assert recognise(text, exit_code=1) is None


@pytest.mark.parametrize("text", [*GPU.values(), *HOST.values()])
def test_a_job_that_succeeded_never_ran_out(text):
    assert recognise(text, exit_code=0) is None


def test_an_old_line_far_up_is_not_the_end():
    assert recognise(TORCH + "\nworking" * 500, exit_code=1) is None


def test_a_kill_is_the_hosts_only_where_the_kernel_says_so():
    assert recognise("step 1", exit_code=None, signal=9) is None
    assert recognise("step 1", exit_code=None, signal=9, host_kill=False) is None
    assert recognise("step 1", exit_code=None, signal=9, host_kill=True).where is Memory.HOST
    assert recognise("Killed", exit_code=137, host_kill=True).where is Memory.HOST
    assert recognise("step 1", exit_code=None, signal=11, host_kill=True) is None


def test_the_gpus_words_come_before_a_kill():
    assert recognise(TORCH, exit_code=None, signal=9, host_kill=True).where is Memory.GPU


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
        "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you",
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    ],
)
def test_ambiguous_words_count_where_the_gpu_was_full(text):
    assert recognise(text, exit_code=1) is None
    assert recognise(text, exit_code=1, gpu_full=False) is None
    assert recognise(text, exit_code=1, gpu_full=True).where is Memory.GPU


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        (TORCH, 3.31 * 1024),
        (GPU["torch 1.x"], 20),
        (GPU["JAX"], 7406166528 / 1048576),
        (GPU["torch, without a size"], None),
    ],
)
def test_the_allocation_that_failed_is_read(text, mib):
    found = recognise(text, exit_code=1)
    assert found.wanted_mib == (pytest.approx(mib) if mib else None)


def test_broken_text_and_endless_lines_are_no_trouble():
    assert recognise("\x00\ufffd" * 1000 + "x" * 200_000, exit_code=1) is None


SHORT_OF_HOST = {"llama-cpp-host-memory", "paddle-host-memory", "ray-host-memory", "torch-dataloader-killed"}
SHORT_OF_NOTHING = {"nbconvert-missing-module", "vllm-missing-module", "torchrun-stopped", "torch-dataloader-stopped"}


@pytest.mark.parametrize("name", NAMES)
def test_the_logs_of_real_programs(name):
    found = recognise(output_of(name).decode(), exit_code=1)
    if name in SHORT_OF_NOTHING:
        assert found is None
    else:
        assert found is not None
        assert found.where is (Memory.HOST if name in SHORT_OF_HOST else Memory.GPU)


def test_metrics_that_wandb_repeats_are_no_progress():
    summary = "".join(f"wandb: train/loss 0.{n}\nwandb: epoch {n}\n" for n in range(9))
    assert recognise(f"{TORCH}\n{summary}", exit_code=1).where is Memory.GPU
    assert recognise(f"{TORCH}\n{summary.replace('wandb: ', '')}", exit_code=1) is None
