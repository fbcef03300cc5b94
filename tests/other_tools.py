"""The programs that the other tools' examples run, as small as they can be and still show what was done to them."""

# Three at once: each waits until all have begun, which they do only on GPUs of their own.
TRAIN_MODEL = """
import os, sys, time
_, lr_flag, lr, output_flag, output = sys.argv
assert (lr_flag, output_flag) == ("--lr", "--output")
open(f"{output}.begun", "w").close()
deadline = time.monotonic() + 30
while sum(name.endswith(".begun") for name in os.listdir()) < 3 and time.monotonic() < deadline:
    time.sleep(0.01)
with open(output, "w") as file:
    file.write(f"{lr} {os.environ['CUDA_VISIBLE_DEVICES']} {time.monotonic() < deadline}")
"""
TRAIN_DNN = """
import os, sys
_, lr_flag, lr, batch_flag, batch = sys.argv
assert (lr_flag, batch_flag) == ("--lr", "--batch_size")
os.makedirs("done", exist_ok=True)
with open(f"done/{lr}_{batch}", "x") as file:
    file.write(os.environ["CUDA_VISIBLE_DEVICES"])
"""
RUN = """
import os, sys
print("targets", *sys.argv[1:], "on", os.environ["CUDA_VISIBLE_DEVICES"])
"""
RANDDIV = """
import logging
logging.basicConfig(filename="log.txt", format="%(name)s %(levelname)s %(message)s", level=logging.INFO)
logging.info("zerodivisionerror preempted")
print([1.0, None])
"""
TRAIN = """
import time
for step in range(100, 800, 100):
    print(f"report_training_metrics(steps_completed={step})", flush=True)
print("batch limit hit, simulating hang", flush=True)
time.sleep(300)
"""
DISTRIBUTED = "import os, sys\nos.execvp(sys.argv[1], sys.argv[1:])\n"
GPU_COMMANDS = """\
python train_model.py --lr 0.001 --output run_1
python train_model.py --lr 0.0005 --output run_2
python train_model.py --lr 0.0001 --output run_3
"""

FILES = {
    "train_model.py": TRAIN_MODEL,
    "train_dnn.py": TRAIN_DNN,
    "run.py": RUN,
    "randdiv.py": RANDDIV,
    "train.py": TRAIN,
    "gpu_commands.txt": GPU_COMMANDS,
    "gpu.queue": "touch too_old\n",
    "job.sh": "for i in 1 2\ndo\n  echo line $i\ndone\n",
    "determined/launch/torch_distributed.py": DISTRIBUTED,
}
