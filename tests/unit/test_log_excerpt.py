# ruff: noqa: E501 - the logs are as wide as they are
import random
from dataclasses import dataclass

import pytest

from bot.text.html import units
from bot.text.log_excerpt import clean, wandb_link, what_matters
from tests.failure_logs import NAMES, output_of


@dataclass(frozen=True)
class Sample:
    name: str
    output: str
    has: tuple[str, ...]
    lacks: tuple[str, ...] = ()


BAR = "".join(
    f"\rEpoch 0: {step:3}%|{'█' * (step // 10):10}| {step}/100 [00:01<00:09, 10.2it/s, loss={1 / (step + 1):.3f}]"
    for step in range(64)
)
WANDB_FOOTER = """wandb: - 0.013 MB of 0.013 MB uploaded\rwandb: \\ 0.013 MB of 0.022 MB uploaded\rwandb:
wandb: Run history:
wandb:      epoch ▁▁▁▂▂▂
wandb: train/loss █▆▅▃▂▁
wandb:
wandb: Run summary:
wandb: train/loss 0.412
wandb:
wandb: 🚀 View run fancy-sun-12 at: https://wandb.ai/ada/vision/runs/x7k2mq1z
wandb: ️⚡ View job at https://wandb.ai/ada/vision/jobs/QXJ0aWZhY3Q=/version_details/v0
wandb: Synced 5 W&B file(s), 0 media file(s), 0 artifact file(s) and 0 other file(s)
wandb: Find logs at: ./wandb/run-20240501_120000-x7k2mq1z/logs
"""
OOM = """Traceback (most recent call last):
  File "/home/ada/vision/train.py", line 201, in <module>
    main()
  File "/home/ada/vision/train.py", line 180, in main
    loss = step(model, batch)
  File "/home/ada/vision/train.py", line 96, in step
    out = model(batch["image"].cuda())
  File "/home/ada/.venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1518, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
  File "/home/ada/.venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1527, in _call_impl
    return forward_call(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/.venv/lib/python3.11/site-packages/timm/models/vision_transformer.py", line 88, in forward
    x = F.scaled_dot_product_attention(q, k, v)
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacty of 23.65 GiB of \
which 1.02 GiB is free. Process 4242 has 22.61 GiB memory in use. See documentation for Memory Management
"""

SAMPLES = [
    Sample(
        "PyTorch runs out of memory, wandb says goodbye",
        f"Loading data\n{BAR}{OOM}{WANDB_FOOTER}",
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB", 'train.py", line 96, in step'),
        ("wandb", "it/s", "uploaded", "Loading data"),
    ),
    Sample(
        "the older out of memory",
        'epoch 1\nTraceback (most recent call last):\n  File "t.py", line 1, in <module>\n    f()\n'
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 11.17 GiB total capacity)\n",
        ("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB", 't.py", line 1'),
        ("epoch 1",),
    ),
    Sample(
        "torchrun, two ranks, each line named",
        """W0501 12:00:00.000000 140 torch/distributed/run.py:779]
W0501 12:00:00.000000 140 torch/distributed/run.py:779] *****************************************
W0501 12:00:00.000000 140 torch/distributed/run.py:779] Setting OMP_NUM_THREADS environment variable for each process
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "/home/ada/ddp.py", line 40, in <module>
[rank0]:   File "/home/ada/ddp.py", line 40, in <module>
[rank1]:     main()
[rank0]:     main()
[rank1]:   File "/home/ada/ddp.py", line 31, in main
[rank0]:   File "/home/ada/ddp.py", line 33, in main
[rank1]:     raise ValueError(f"bad shard {path}")
[rank0]:     dist.all_reduce(total)
[rank1]: ValueError: bad shard /data/00017.tar
[rank0]:   File "/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 79, in wrapper
[rank0]:     return func(*args, **kwargs)
[rank0]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/ProcessGroupNCCL.cpp:2006, remote process exit
W0501 12:00:05.000000 140 torch/distributed/elastic/multiprocessing/api.py:858] Sending process 151 closing signal SIGTERM
E0501 12:00:05.100000 140 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: 1) local_rank: 1 (pid: 152)
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 268, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
ddp.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2024-05-01_12:00:05
  host      : box
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 152)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
""",
        ("ValueError: bad shard /data/00017.tar", 'ddp.py", line 31, in main'),
        ("ChildFailedError", "torchrun", "OMP_NUM_THREADS", "all_reduce", "[rank1]"),
    ),
    Sample(
        "torchrun, a rank killed without a word",
        """step 100 loss 2.1
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2024-05-01_12:00:05
  rank      : 1 (local_rank: 1)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2024-05-01_12:00:05
  host      : box
  rank      : 0 (local_rank: 0)
  exitcode  : -9 (pid: 151)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 151
============================================================
""",
        ("Root Cause", "exitcode  : -9", "Signal 9 (SIGKILL) received by PID 151", "rank      : 0"),
        ("error_file", "/venv/bin/torchrun"),
    ),
    Sample(
        "torchrun with @record",
        """Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
Root Cause (first observed failure):
[0]:
  time      : 2024-05-01_12:00:05
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 151)
  error_file: /tmp/torchelastic/error.json
  traceback : Traceback (most recent call last):
    File "/venv/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 346
      return f(*args, **kwargs)
    File "/home/ada/train.py", line 12, in main
      raise KeyError("lr")
  KeyError: 'lr'

============================================================
""",
        ("KeyError: 'lr'", 'train.py", line 12, in main'),
        ("ChildFailedError", "/venv/bin/torchrun"),
    ),
    Sample(
        "HF Trainer under a bar",
        "  0%|          | 0/1000 [00:00<?, ?it/s]"
        + "".join(
            f"\r {n // 10}%|{'█' * (n // 100):10}| {n}/1000 [00:{n // 20:02}<01:00, 20.1it/s]" for n in range(500)
        )
        + """Traceback (most recent call last):
  File "/home/ada/run_glue.py", line 623, in <module>
    main()
  File "/venv/lib/python3.11/site-packages/transformers/trainer.py", line 1780, in train
    return inner_training_loop(
  File "/venv/lib/python3.11/site-packages/transformers/tokenization_utils_base.py", line 777, in convert_to_tensors
    raise ValueError(
ValueError: Unable to create tensor, you should probably activate truncation and/or padding with 'padding=True'
\r 50%|█████     | 499/1000 [00:25<00:25, 19.9it/s]
""",
        ("ValueError: Unable to create tensor", "run_glue.py"),
        ("it/s", "%|"),
    ),
    Sample(
        "Lightning",
        """GPU available: True (cuda), used: True
/venv/lib/python3.11/site-packages/pytorch_lightning/trainer/connectors/data_connector.py:441: PossibleUserWarning: The \
dataloader, train_dataloader, does not have many workers
  rank_zero_warn(
Epoch 3:  12%|█▏        | 12/100 [00:01<00:09,  9.1it/s, v_num=0, loss=1.23]Traceback (most recent call last):
  File "/home/ada/lit.py", line 77, in <module>
    trainer.fit(model, dm)
  File "/venv/lib/python3.11/site-packages/pytorch_lightning/trainer/call.py", line 44, in _call_and_handle_interrupt
    return trainer_fn(*args, **kwargs)
  File "/home/ada/lit.py", line 41, in training_step
    self.log("loss", loss.item())
IndexError: index 10 is out of bounds for dimension 0 with size 10
Epoch 3:  12%|█▏        | 12/100 [00:01<00:13,  6.5it/s, v_num=0, loss=1.23]
""",
        ("IndexError: index 10 is out of bounds", "training_step"),
        ("it/s", "rank_zero_warn", "GPU available"),
    ),
    Sample(
        "JAX out of memory",
        """2024-05-01 12:00:00.1 W external/xla/xla/tsl/framework/bfc_allocator.cc:482] Allocator (GPU_0_bfc) ran out of memory
jax.errors.SimplifiedTraceback: For simplicity, JAX has removed its internal frames
Traceback (most recent call last):
  File "/home/ada/jaxtrain.py", line 20, in <module>
    state = train_step(state, batch)
  File "/venv/lib/python3.11/site-packages/jax/_src/traceback_util.py", line 166, in reraise_with_filtered_traceback
    return fun(*args, **kwargs)
jax._src.traceback_util.UnfilteredStackTrace: jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory

The stack trace below excludes JAX-internal frames.
The preceding is the original exception that occurred, unmodified.

--------------------

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/ada/jaxtrain.py", line 20, in <module>
    state = train_step(state, batch)
jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.
--------------------
For simplicity, JAX has removed its internal frames from the traceback of the following exception.
""",
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes", "line 20"),
        ("UnfilteredStackTrace", "For simplicity"),
    ),
    Sample(
        "argparse",
        """loading conda
usage: train.py [-h] [--lr LR] [--bs BS] [--epochs EPOCHS]
                [--data DATA] [--out OUT]
train.py: error: unrecognized arguments: --learning-rate 3e-4
""",
        ("usage: train.py", "train.py: error: unrecognized arguments: --learning-rate 3e-4"),
        ("conda",),
    ),
    Sample(
        "click",
        "Usage: cli.py [OPTIONS] NAME\nTry 'cli.py --help' for help.\n\nError: No such option: --foo\n",
        ("Usage: cli.py", "Error: No such option: --foo"),
    ),
    Sample(
        "missing module",
        'Traceback (most recent call last):\n  File "/home/ada/train.py", line 3, in <module>\n    import einops\n'
        "ModuleNotFoundError: No module named 'einops'\n",
        ("ModuleNotFoundError: No module named 'einops'", "import einops"),
    ),
    Sample(
        "bash syntax",
        "bash: -c: line 1: syntax error near unexpected token `)'\nbash: -c: line 1: `for i in 1 2); do'\n",
        ("syntax error near unexpected token", "`for i in 1 2); do'"),
    ),
    Sample(
        "command not found",
        "Already on 'main'\n/bin/bash: line 1: pyhton: command not found\n",
        ("pyhton: command not found",),
    ),
    Sample(
        "no such file",
        "python: can't open file '/home/ada/trian.py': [Errno 2] No such file or directory\n",
        ("can't open file '/home/ada/trian.py'", "No such file or directory"),
    ),
    Sample(
        "faulthandler",
        "step 1\nFatal Python error: Segmentation fault\n\nCurrent thread 0x00007f3c1 (most recent call first):\n"
        '  File "/home/ada/ext.py", line 9 in crash\n  File "/home/ada/train.py", line 30 in main\n'
        '  File "/home/ada/train.py", line 44 in <module>\n\n'
        "Extension modules: numpy.core._multiarray_umath, torch._C, torch._C._fft (total: 52)\n"
        "/bin/bash: line 1: 4242 Segmentation fault      (core dumped) python train.py\n",
        ("Fatal Python error: Segmentation fault", 'ext.py", line 9 in crash', "(core dumped) python train.py"),
        ("Extension modules", "step 1"),
    ),
    Sample(
        "stopped",
        """epoch 3
Traceback (most recent call last):
  File "/home/ada/train.py", line 30, in <module>
    train()
  File "/home/ada/train.py", line 22, in handler
    raise KeyboardInterrupt
KeyboardInterrupt
""",
        ("KeyboardInterrupt", 'train.py", line 22, in handler'),
        ("epoch 3",),
    ),
    Sample(
        "an early traceback was survived, then killed by the kernel",
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    x\nOSError: retrying\n'
        + "".join(f"epoch {n} loss {1 / (n + 1):.4f}\n" for n in range(200))
        + "/bin/bash: line 1:  4242 Killed                  python train.py\n",
        ("Killed                  python train.py", "epoch 199"),
        ("OSError", "epoch 100 "),
    ),
    Sample(
        "a DataLoader worker",
        """Traceback (most recent call last):
  File "/home/ada/train.py", line 12, in <module>
    for batch in loader:
  File "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 630, in __next__
    data = self._next_data()
  File "/venv/lib/python3.11/site-packages/torch/_utils.py", line 694, in reraise
    raise exception
RuntimeError: Caught RuntimeError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 308, in _worker_loop
    data = fetcher.fetch(index)  # type: ignore[possibly-undefined]
  File "/home/ada/data.py", line 25, in __getitem__
    raise RuntimeError("sample 7 is corrupt")
RuntimeError: sample 7 is corrupt

Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1479, in __del__
    self._shutdown_workers()
AssertionError: can only test a child process
/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 8 \
leaked semaphore objects to clean up at shutdown
  warnings.warn('resource_tracker: There appear to be %d '
""",
        ("sample 7 is corrupt", "in __getitem__", "Caught RuntimeError in DataLoader worker process 0"),
        ("resource_tracker", "can only test a child process", "leaked"),
    ),
    Sample(
        "asyncio",
        """Task exception was never retrieved
future: <Task finished name='Task-2' coro=<fetch() done, defined at /home/ada/f.py:3> exception=TimeoutError()>
Traceback (most recent call last):
  File "/home/ada/f.py", line 5, in fetch
    await asyncio.wait_for(get(), 1)
TimeoutError: no answer from 10.0.0.7
""",
        ("TimeoutError: no answer from 10.0.0.7", 'f.py", line 5, in fetch'),
    ),
    Sample(
        "rich",
        """\x1b[31m╭─\x1b[0m\x1b[31m────────────── \x1b[0m\x1b[1;31mTraceback \x1b[0m\x1b[1;2;31m(most recent call last)\x1b[0m\x1b[31m ───────────────\x1b[0m\x1b[31m─╮\x1b[0m
│ /home/ada/app.py:14 in main                                                  │
│                                                                              │
│   11 def main():                                                             │
│   12     x = 1                                                               │
│ ❱ 14     return x / 0                                                        │
│   15                                                                         │
│ ╭─ locals ─╮                                                                 │
│ │ x = 1    │                                                                 │
│ ╰──────────╯                                                                 │
╰──────────────────────────────────────────────────────────────────────────────╯
\x1b[1;91mZeroDivisionError: \x1b[0mdivision by zero
""",
        ("ZeroDivisionError: division by zero", "/home/ada/app.py:14 in main", "return x / 0"),
        ("│", "╭", "\x1b", "locals", "x = 1"),
    ),
    Sample(
        "SyntaxError",
        "hello\n  File \"/home/ada/train.py\", line 3\n    def f(\n         ^\nSyntaxError: '(' was never closed\n",
        ("SyntaxError: '(' was never closed", 'train.py", line 3', "    def f(\n         ^"),
        ("hello",),
    ),
    Sample(
        "unicode",
        'Traceback (most recent call last):\n  File "/home/åda/trén.py", line 1, in <module>\n    x\n'
        "ValueError: bad größe 数据 🚀 in строка\n",
        ("ValueError: bad größe 数据 🚀 in строка",),
    ),
    Sample(
        "chained",
        """Traceback (most recent call last):
  File "/home/ada/conf.py", line 5, in load
    return cache[key]
KeyError: 'data_dir'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/ada/train.py", line 9, in <module>
    main()
  File "/home/ada/conf.py", line 7, in load
    raise RuntimeError("config incomplete")
RuntimeError: config incomplete
""",
        ("KeyError: 'data_dir'", "During handling", "RuntimeError: config incomplete"),
    ),
    Sample(
        "device-side assert",
        "".join(
            f"/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [{n},0,0], thread: [{n},0,0] "
            "Assertion `srcIndex < srcSelectDimSize` failed.\n"
            for n in range(96)
        )
        + """Traceback (most recent call last):
  File "/home/ada/train.py", line 60, in <module>
    loss.backward()
RuntimeError: CUDA error: device-side assert triggered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1.
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.

""",
        (
            "CUDA error: device-side assert triggered",
            "Assertion `srcIndex < srcSelectDimSize` failed",
            "loss.backward()",
        ),
        ("block: [3,0,0]",),
    ),
    Sample(
        "slurm killed it",
        "epoch 3\nslurmstepd: error: Detected 1 oom_kill event in StepId=1234.batch. Some of the step tasks have been OOM Killed.\n"
        "srun: error: node7: task 0: Out Of Memory\n",
        ("slurmstepd: error: Detected 1 oom_kill event", "epoch 3"),
    ),
    Sample(
        "C++ gave up",
        "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: an illegal memory access was encountered\n"
        "Exception raised from c10_cuda_check_implementation at ../c10/cuda/CUDAException.cpp:43\nAborted (core dumped)\n",
        ("terminate called", "what():  CUDA error: an illegal memory access", "Aborted (core dumped)"),
    ),
    Sample(
        "hydra",
        "Error executing job with overrides: ['lr=x']\nTraceback (most recent call last):\n"
        "  File \"/home/ada/train.py\", line 9, in main\n    float(cfg.lr)\nValueError: could not convert string to float: 'x'\n\n"
        "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n",
        ("ValueError: could not convert string to float: 'x'",),
        ("HYDRA_FULL_ERROR",),
    ),
    Sample(
        "accelerate",
        'Traceback (most recent call last):\n  File "/home/ada/ft.py", line 3, in <module>\n    load()\n'
        "OSError: meta-llama/Llama-2-7b is not a local folder\n"
        'Traceback (most recent call last):\n  File "/venv/bin/accelerate", line 8, in <module>\n    sys.exit(main())\n'
        "subprocess.CalledProcessError: Command '['python', 'ft.py']' returned non-zero exit status 1.\n",
        ("OSError: meta-llama/Llama-2-7b is not a local folder",),
        ("CalledProcessError", "/venv/bin/accelerate"),
    ),
    Sample(
        "a thread, and a shutdown that complains",
        "Exception in thread Thread-3 (feed):\nTraceback (most recent call last):\n"
        '  File "/home/ada/feed.py", line 8, in feed\n    q.put(1 / 0)\nZeroDivisionError: division by zero\n'
        "Exception in thread Thread-4 (_pin_memory_loop):\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/multiprocessing/connection.py", line 399, in _recv\n    raise EOFError\nEOFError\n',
        ("ZeroDivisionError: division by zero", "Thread-3 (feed)"),
        ("EOFError",),
    ),
    Sample(
        "an exception group",
        """  + Exception Group Traceback (most recent call last):
  |   File "/home/ada/tg.py", line 9, in <module>
  |     asyncio.run(main())
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/home/ada/tg.py", line 4, in worker
    |     raise ValueError("shard 3 is empty")
    | ValueError: shard 3 is empty
    +------------------------------------
""",
        ("ValueError: shard 3 is empty", 'tg.py", line 4, in worker'),
    ),
    Sample(
        "only words",
        "downloading\nunpacking\nchecksum of data.tar does not match, giving up\n",
        ("checksum of data.tar does not match, giving up",),
    ),
    Sample(
        "wandb itself",
        "wandb: Currently logged in as: ada\nwandb: ERROR api_key not configured (no-tty). call wandb.login(key=[your_api_key])\n",
        ("wandb: ERROR api_key not configured",),
        ("Currently logged in",),
    ),
]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_what_matters_is_in_and_the_noise_is_out(sample: Sample) -> None:
    told = what_matters(clean(sample.output.encode()), limit=1500)
    for text in sample.has:
        assert text in told, told
    for text in sample.lacks:
        assert text not in told, told
    assert units(told) <= 1500


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
@pytest.mark.parametrize("limit", [0, 1, 20, 80, 300])
def test_it_keeps_to_any_limit(sample: Sample, limit: int) -> None:
    assert units(what_matters(clean(sample.output.encode()), limit=limit)) <= limit


def test_of_a_long_traceback_the_head_the_last_frames_and_the_error_stay() -> None:
    frames = "".join(f'  File "/home/ada/m{n}.py", line {n}, in f{n}\n    f{n + 1}()\n' for n in range(200))
    told = what_matters(f"Traceback (most recent call last):\n{frames}ValueError: deep\n", limit=600)
    assert told.startswith("Traceback (most recent call last):\n  …\n")
    assert told.endswith('  File "/home/ada/m199.py", line 199, in f199\n    f200()\nValueError: deep')
    assert "m150.py" not in told


def test_of_frames_in_libraries_the_last_own_one_stays() -> None:
    library = "".join(
        f'  File "/v/lib/python3.11/site-packages/torch/l{n}.py", line {n}, in g{n}\n    return g(x)\n'
        for n in range(50)
    )
    own = '  File "/home/ada/train.py", line 96, in step\n    out = model(x)\n'
    told = what_matters(f"Traceback (most recent call last):\n{own}{library}RuntimeError: shapes\n", limit=500)
    assert "train.py" in told
    assert "l49.py" in told
    assert "l10.py" not in told


def test_a_message_of_a_megabyte_is_cut() -> None:
    head = 'Traceback (most recent call last):\n  File "/home/ada/a.py", line 1, in <module>\n    x\n'
    told = what_matters(head + "ValueError: " + "7 " * 100_000, limit=900)
    assert "ValueError: 7 7" in told
    assert "a.py" in told
    assert units(told) <= 900


@pytest.mark.parametrize("output", [b"x" * 1_000_000, b"\r" * 300_000, b"a\b" * 150_000, b"\x1b[" * 100_000, b""])
def test_one_giant_line(output: bytes) -> None:
    assert units(what_matters(clean(output), limit=1000)) <= 1000
    assert len(clean(output)) <= 1_000_000


def test_binary_garbage() -> None:
    garbage = random.Random(1).randbytes(200_000)
    failed = b'\nTraceback (most recent call last):\n  File "a.py", line 1\nIOError: no\n'
    told = what_matters(clean(garbage + failed), limit=500)
    assert "IOError: no" in told
    assert units(what_matters(clean(garbage), limit=500)) <= 500


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"10%\r20%\r30%\n", "30%\n"),
        (b"bar\r   \rdone\n", "done\n"),
        (b"100%\r", "100%"),
        (b"|\b/\b-\b\\\n", "\\\n"),
        (b"\b\bx", "x"),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "red textlink"),
        (b"\x1b]never ended\nnext", "\nnext"),
        (b"a\x00b\x07c\x7f\x1b", "abc"),
        ("é🚀".encode()[:-1], "é\ufffd"),
        (b"\xff\xfe\xfd tab\t.", "\ufffd tab\t."),
        (b"\x1b[2K\x1b[1G50%\x1b(B\x1b[m", "50%"),
    ],
)
def test_clean(output: bytes, text: str) -> None:
    assert clean(output) == text


@pytest.mark.parametrize(
    ("output", "url"),
    [
        (WANDB_FOOTER, "https://wandb.ai/ada/vision/runs/x7k2mq1z"),
        (
            "wandb: ⭐️ View project at https://wandb.ai/a/b\nwandb: 🚀 View run at https://wandb.ai/a/b/runs/q1\n",
            "https://wandb.ai/a/b/runs/q1",
        ),
        ("wandb: Synced swept-sea-3: \x1b[34mhttps://wandb.ai/a/b/runs/zz9\x1b[0m\n", "https://wandb.ai/a/b/runs/zz9"),
        (
            "wandb: 🚀 View run x at: https://wandb.lab.example:8443/a/b/runs/zz9",
            "https://wandb.lab.example:8443/a/b/runs/zz9",
        ),
        (
            "wandb: View run at https://w.ai/a/b/runs/first\nwandb: View run at https://w.ai/a/b/runs/second\n",
            "https://w.ai/a/b/runs/second",
        ),
        ("wandb: View run at http://wandb.ai/a/b/runs/plain", None),
        ("wandb: View run at https://wandb.ai@evil.example/a/runs/1", None),
        ("wandb: View run at https://wandb.ai:99999/a/runs/1", None),
        ("see https://github.com/a/b/actions/runs/123", None),
        ("nothing", None),
    ],
)
def test_wandb_link(output: str, url: str | None) -> None:
    assert wandb_link(clean(output.encode())) == url


# Of each log of a real program: what its excerpt must have, and what it must not.
REAL = {
    "wandb-torch-oom": (
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB", "train.py"),
        ("wandb",),
    ),
    "vllm-no-cache-blocks": (
        ("ValueError: No available memory for the cache blocks",),
        ("See root cause above", "pid="),
    ),
    "vllm-missing-module": (
        ("ModuleNotFoundError: No module named 'flash_attn'", "molmo.py"),
        ("See root cause above", "ERROR 05-27"),
    ),
    "nbconvert-missing-module": (
        ("ModuleNotFoundError: No module named 'umap'", "Cell In[2], line 2", "import umap"),
        ("CellExecutionError", "jupyter-nbconvert"),
    ),
    "papermill-oom": (
        (
            "OutOfMemoryError: CUDA out of memory. Tried to allocate 768.00 MiB",
            "Cell In[5], line 3",
            "loss = model(batch)",
        ),
        ("PapermillExecutionError", "s/cell"),
    ),
    "paddle-oom": (("Out of memory error on GPU 0. Cannot allocate 1.437500GB", "cylinder.py"), ("ppsci INFO",)),
    "paddle-host-memory": (
        ("ResourceExhaustedError: Fail to alloc memory of 46549499904 size", "ocr.py"),
        ("matmul_ad_func", "-----"),
    ),
    "keras-graph-oom": (("OOM when allocating tensor with shape[16,64,256,256]", "segment.py"), ("Epoch 1/30",)),
    "tensorrt-trtexec-oom": (("Cuda Runtime (out of memory)", "Engine could not be created from network"), ()),
    "tensorrt-deserialize-oom": (("Cuda Runtime (out of memory)", "Could not deserialize engine", "live.py"), ()),
    "llama-cpp-python-oom": (
        ("cudaMalloc failed: out of memory", "ValueError: Failed to create llama_context", "generate.py"),
        ("loaded meta data",),
    ),
    "llama-cpp-host-memory": (("ggml_aligned_malloc: insufficient memory", "error: unable to load model"), ()),
    "sglang-not-enough-memory": (
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "Killed"),
        ("Load weight",),
    ),
    "ray-host-memory": (("Task was killed due to the node running low on memory", "preprocess.py"), ()),
    "torch-dataloader-killed": (("is killed by signal: Killed", "train.py"), ()),
    "torchrun-stopped": (("SignalException: Process 4100 got signal: 15",), ()),
    "torch-dataloader-stopped": (("killed by signal: Terminated",), ()),
}


@pytest.mark.parametrize("name", NAMES)
def test_what_matters_in_the_logs_of_real_programs(name: str) -> None:
    has, lacks = REAL[name]
    told = what_matters(clean(output_of(name)), limit=1500)
    for text in has:
        assert text in told, told
    for text in lacks:
        assert text not in told, told
    assert units(told) <= 1500


@pytest.mark.parametrize("name", ["torchrun-stopped", "torch-dataloader-stopped"])
def test_what_a_stop_makes_a_program_print_is_left_out(name: str) -> None:
    told = what_matters(clean(output_of(name)), limit=1500, stopped=True)
    assert "Traceback" not in told
    assert "signal" not in told
    assert "loss" in told


def test_an_error_before_the_stop_is_shown() -> None:
    crash = b'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nValueError: bad shard\n'
    told = what_matters(clean(crash + output_of("torchrun-stopped")), limit=1500, stopped=True)
    assert "ValueError: bad shard" in told
    assert "SignalException" not in told


def test_a_message_below_a_blank_line_ends_at_the_next_one() -> None:
    head = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\n'
    told = what_matters(f"{head}ValueError: in short:\n\nthe shard is bad\n\nsaving\n", limit=500)
    assert told.endswith("ValueError: in short:\nthe shard is bad")
    assert "bad" not in what_matters(f"{head}ValueError: in short\n\nthe shard is bad\n", limit=500)
