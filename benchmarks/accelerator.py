"""What do the GPUs of this machine do, and is it what we say? One command for whoever has some.

It runs on every machine whose TensorFlow finds a GPU, and writes one file to send in.

    python -m benchmarks.accelerator
    python -m benchmarks.accelerator --divide 2 --output build/divided.json
    python -m benchmarks.accelerator --parts tasks --tasks nmt_2 inception_v3 --jobs 4
    hplacer run --emulate 1xh100 -m benchmarks.accelerator --small      (a rehearsal)

Parts:

  machine   the devices as TensorFlow, the driver and the system describe them, and what
            `hplacer calibrate` measures there
  launches  what an op, a launch and a copy take, and at which rates kernels run
  tasks     training steps under placements, executed beside simulated: with costs from data
            sheets, and with the kernels and launches of a traced step under TensorFlow's placement

Every part and task is measured in a process of its own, one at a time. Graphs and plans of --jobs
tasks are made at once, but none while steps are timed. What has been measured is kept if the rest
is interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.emulation import (
    SMALL,
    TASKS,
    gpus_of,
    print_row,
    random_moves,
    rows_told,
    write_task,
)
from hplacer_optimizer._engine import Problem
from hplacer_optimizer.bench.result_json import result_json
from hplacer_optimizer.machines import Machine, detect, full_device_name, machine_to_yaml, nvidia
from hplacer_optimizer.machines.describe import describe_host
from hplacer_optimizer.machines.list_devices import MARK
from hplacer_optimizer.support import child_process

PARTS = ("machine", "launches", "tasks")
WARM_UP, STEPS, TRACED = 5, 20, 2
_MOVED, _SEED = (0.02, 0.1), 7  # shares of units that random placements send elsewhere


# ---- the machine ----


def print_machine() -> None:
    """One row: versions, the description, and what calibration finds."""
    import tensorflow as tf

    from hplacer_optimizer.measuring.calibration.calibrate import calibrate_machine

    described = describe_host(timeout_s=120)
    row: dict[str, Any] = {
        "tensorflow": tf.__version__,
        "build": dict(tf.sysconfig.get_build_info()),
        "python": platform.python_version(),
        "nvidia-smi": driver_says(),
        "described": machine_to_yaml(described),
    }
    print_row(row)
    measured = calibrate_machine()
    print_row({"calibrated": machine_to_yaml(measured.machine), "notes": measured.notes})


def driver_says() -> str:
    fields = "name,driver_version,memory.total,clocks.sm,clocks.max.sm,pcie.link.gen.max"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return ""


# ---- launches, kernels and copies ----


def print_launches(divide: int, *, small: bool) -> None:
    """A row for each probe: medians and quartiles of a step, in microseconds."""
    import tensorflow as tf

    from hplacer_optimizer.measuring.calibration.probes import Probes
    from hplacer_optimizer.measuring.target import LOCAL, Target

    divide_gpu(divide)
    gpu, cpu = "/device:GPU:0", "/device:CPU:0"
    probes = Probes(Target(session=LOCAL, device_names=[cpu]))
    other = "/device:GPU:1" if divide > 1 else cpu
    raw = tf.raw_ops

    def const(device: str, shape: Sequence[int], dtype: str = "float32") -> Any:
        with tf.device(device):
            return tf.cast(tf.random.stateless_normal(shape, (1, 2)), dtype)

    def chain(device: str, length: int, op: Callable[[Any], Any], start: Any) -> Any:
        with tf.device(device):
            for _ in range(length):
                start = op(start)
        return start

    def neg(x: Any) -> Any:
        return raw.Neg(x=x)

    def products(count: int, size: int, dtype: str = "float32") -> Any:
        """Of one matrix with another, whose values stay as large as they are."""
        other = const(gpu, (size, size), dtype) / tf.cast(size**0.5, dtype)
        return chain(
            gpu, count, lambda x: raw.MatMul(a=x, b=other), const(gpu, (size, size), dtype)
        )

    def fan(device: str, count: int, shape: Sequence[int]) -> list[Any]:
        start = const(device, shape)
        return [chain(device, 1, neg, start) for _ in range(count)]

    def ends_of(build: Callable[[], Any]) -> list[Any]:
        built = build()
        return [x.op for x in (built if isinstance(built, list) else [built])]

    def probe(name: str, *builds: Callable[[], Any]) -> None:
        """Steps of the graphs, in turns."""
        quartiles = [
            [round(1e6 * second, 2) for second in np.quantile(timing.seconds, (0.25, 0.5, 0.75))]
            for timing in probes.compare(*(partial(ends_of, build) for build in builds))
        ]
        print_row({"probe": name, "us": quartiles})

    for device, title in ((gpu, "GPU"), (cpu, "CPU")):
        for kind, op in (
            ("Neg", neg),
            ("Identity", lambda x: raw.Identity(input=x)),
            ("Reshape", lambda x: raw.Reshape(tensor=x, shape=[1, 16])),
            ("MatMul", lambda x: raw.MatMul(a=x, b=x)),
        ):
            shape = (16, 16) if kind == "MatMul" else (1, 16)
            builds = [
                lambda n=n, op=op, shape=shape, device=device: chain(
                    device, n, op, const(device, shape)
                )
                for n in (100, 1100)
            ]
            probe(f"{title}: chains of 100 and 1,100 {kind}", *builds)
        probe(
            f"{title}: 100 and 1,100 independent Neg",
            *(lambda n=n, device=device: fan(device, n, (1, 16)) for n in (100, 1100)),
        )
    for size in (2**12, 2**16, 2**20, *([] if small else [2**22, 2**24, 2**26, 2**28])):
        probe(
            f"GPU: chains of 1 and 33 Neg of {size} float32",
            *(lambda n=n, size=size: chain(gpu, n, neg, const(gpu, (size,))) for n in (1, 33)),
        )
    for dtype in ("float32", "float16", "bfloat16"):
        for size in (256, 512, *([] if small else [1024, 2048, 4096, 8192])):
            probe(
                f"GPU: chains of 1 and 17 MatMul of {size} x {size} {dtype}",
                *(lambda n=n, size=size, dtype=dtype: products(n, size, dtype) for n in (1, 17)),
            )
    tf.config.experimental.enable_tensor_float_32_execution(False)
    for size in () if small else (1024, 4096):
        probe(
            f"GPU: chains of 1 and 17 MatMul of {size} x {size} float32 without TF32",
            *(lambda n=n, size=size: products(n, size) for n in (1, 17)),
        )
    tf.config.experimental.enable_tensor_float_32_execution(True)

    def round_trips(ends: Sequence[str], hops: int, size: int) -> Any:
        x = const(ends[0], (size,))
        for hop in range(hops):
            x = chain(ends[(hop + 1) % len(ends)], 1, neg, x)
        return x

    for ends in dict.fromkeys([(gpu, cpu), (gpu, other)]):
        for size in (1, 2**10, 2**14, 2**16, 2**18, 2**20, *([] if small else [2**22, 2**24])):
            probe(
                f"8 hops of {size} float32: {ends[0]} {ends[1]}, {ends[0]} alone, {ends[1]} alone",
                *(
                    lambda path=path, size=size: round_trips(path, 8, size)
                    for path in (ends, ends[:1], ends[1:])
                ),
            )
    for size in (2**10, *([] if small else [2**20, 2**24])):
        for src, dst in dict.fromkeys([(gpu, cpu), (cpu, gpu), (gpu, other)]):
            probe(
                f"1 and 9 tensors of {size} float32 from {src} to {dst} at once",
                *(
                    lambda n=n, size=size, src=src, dst=dst: [
                        chain(dst, 1, neg, const(src, (size,))) for _ in range(n)
                    ]
                    for n in (1, 9)
                ),
            )


# ---- tasks ----


def print_task(name: str, sizes: dict[str, Any], divide: int, traces: Path | None) -> None:
    """A row for each placement."""
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "graph.meta"))
        with shared_cores():
            write_task(TASKS[name], sizes, path)
            with gpu_to_itself():
                machine = divided_machine(divide)
            from hplacer_optimizer.capture.loading import load_graph

            begin = time.perf_counter()
            loaded = load_graph(path, machine=machine, keep_graph=True)
            load_s = time.perf_counter() - begin
            print_row({"task": name, "load_s": round(load_s, 2), "ops": loaded.problem.num_ops})
            made = dict(placements(loaded.problem))
        with quiet_cores():
            measure_task(name, path, loaded, made, divide, traces)


def divided_machine(divide: int) -> Machine:
    """This host, its GPU as so many."""
    if divide == 1:
        return describe_host(timeout_s=120)
    command = "import json, sys; from benchmarks.accelerator import divide_gpu\n"
    command += "from tensorflow.python.eager.context import context\n"
    command += "from hplacer_optimizer.machines.list_devices import MARK, list_own\n"
    command += "divide_gpu(int(sys.argv[1])); print(MARK + json.dumps(list_own(context().config)))"
    done = subprocess.run(
        [sys.executable, "-c", command, str(divide)],
        check=True,
        capture_output=True,
        text=True,
        env=child_process.environment(HPLACER_DISABLE="1", TF_CPP_MIN_LOG_LEVEL="3"),
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    devices = [SimpleNamespace(**device) for device in json.loads(line.removeprefix(MARK))]
    return detect(devices, ask_driver=True)


def divide_gpu(divide: int) -> None:
    """The GPU of this process, before its first op."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise SystemExit("TensorFlow finds no GPU here; rehearse with hplacer run --emulate 1xh100")
    if divide > 1:
        if len(gpus) > 1:
            raise SystemExit("--divide is for one GPU; hide the others: CUDA_VISIBLE_DEVICES=0")
        known = nvidia.gpus()
        share = int(known[0].memory_mib * 0.9 / divide) if known else 4096
        part = tf.config.LogicalDeviceConfiguration(memory_limit=share)
        tf.config.set_logical_device_configuration(gpus[0], [part] * divide)
    tf.config.list_logical_devices()


def placements(problem: Problem) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """TensorFlow's, random moves, and a plan."""
    from hplacer_optimizer.planners import Budget, get_planner

    default = problem.default_device
    assert default is not None
    yield "TensorFlow's", np.asarray(default, np.int32)
    gpus = gpus_of(problem)
    every = list(range(problem.num_devices))
    for share in _MOVED:
        for devices in (gpus, every) if len(gpus) > 1 else (every,):
            names = "GPUs" if devices is gpus else "all devices"
            moved = random_moves(problem, share, devices, _SEED, home=gpus[0])
            yield f"{share:.0%} random moves over {names}", moved
    result = get_planner("auto").plan(problem, budget=Budget(seconds=10.0), seed=0)
    yield "auto", np.asarray(result.placement, np.int32)


def measure_task(
    name: str,
    path: str,
    loaded: Any,
    made: dict[str, NDArray[np.int32]],
    divide: int,
    traces: Path | None,
) -> None:
    """Executed beside simulated."""
    import tensorflow as tf

    from hplacer_optimizer.capture.loading import load_graph
    from hplacer_optimizer.costs.table import CostTable
    from hplacer_optimizer.measuring.calibration.calibrate import with_launches
    from hplacer_optimizer.measuring.calibration.op_costs import measure_op_costs
    from hplacer_optimizer.measuring.step_runner import StepRunner
    from hplacer_optimizer.measuring.target import LOCAL, Target
    from hplacer_optimizer.problem.simulator import simulate

    divide_gpu(divide)
    problem = loaded.problem
    names = [full_device_name(device) for device in problem.device_names]
    runner = StepRunner(loaded.step, Target(session=LOCAL, device_names=names))
    numbers = gpus_of(problem)
    gpus = [names[number].rpartition("device:")[2] for number in numbers]
    table = CostTable()
    found = measure_op_costs(loaded, runner, table, steps=TRACED, devices=numbers[:1])
    print_row({"task": name, "launch_ns": found[0].launch_ns, "attributed": found[0].attributed})
    calibrated = load_graph(
        path, machine=with_launches(loaded.machine, found), cost_table=table
    ).problem
    for label, placement in [("without TF32", made["TensorFlow's"]), *made.items()]:
        simulated = simulate(problem, placement)
        row: dict[str, Any] = {
            "task": name,
            "placement": label,
            "simulated_ns": simulated.makespan_ns,
            "calibrated_ns": simulate(calibrated, placement).makespan_ns,
            "transfers": len(simulated.transfers),
            "simulated_peak_bytes": [int(size) for size in simulated.peak_bytes],
        }
        tf.config.experimental.enable_tensor_float_32_execution(label != "without TF32")
        try:
            with runner.placed(placement, time_limit_s=90) as step:
                begin = time.perf_counter()
                step.warm_up(WARM_UP)
                row["warm_up_s"] = round(time.perf_counter() - begin, 2)
                for gpu in gpus:
                    tf.config.experimental.reset_memory_stats(gpu)
                row["steps_ns"] = [round(1e9 * seconds) for seconds in step.time(STEPS)]
                row["peak_bytes"] = [
                    tf.config.experimental.get_memory_info(gpu)["peak"] for gpu in gpus
                ]
                if label == "TensorFlow's" or traces is not None:
                    traced = step.trace(TRACED)[-1]
                    row["kernels"] = kernels_of(traced)
                    if traces is not None:
                        file = traces / f"{name}.{re.sub('[^a-z0-9]+', '-', label.lower())}.pb"
                        file.write_bytes(traced.step_stats.SerializeToString())
        except tf.errors.OpError as error:
            row["error"] = f"{type(error).__name__}: {error.message.splitlines()[0][:300]}"
        print_row(row)


def kernels_of(metadata: Any) -> dict[str, Any]:
    """By line of the trace: events and microseconds, in all and by what kernels are called."""
    found: dict[str, Any] = {}
    for device in metadata.step_stats.dev_stats:
        by_name: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0])
        for node in device.node_stats:
            what = re.sub(r"[_/]\d+", "", (node.timeline_label or node.node_name)[:60])
            by_name[what][0] += 1
            by_name[what][1] += node.all_end_rel_micros
        most = sorted(by_name.items(), key=lambda item: -item[1][1])[:12]
        found[device.device] = {
            "events": len(device.node_stats),
            "us": round(sum(us for _, us in by_name.values())),
            "most": {what: [count, round(us)] for what, (count, us) in most},
        }
    return found


@contextlib.contextmanager
def locked(what: str, how: int) -> Iterator[None]:
    path = Path(tempfile.gettempdir(), f"hplacer-accelerator-{os.getuid()}-{what}.lock")
    with path.open("w") as file:
        fcntl.flock(file, how)
        yield


shared_cores = partial(locked, "cores", fcntl.LOCK_SH)  # with others that measure nothing
quiet_cores = partial(locked, "cores", fcntl.LOCK_EX)
gpu_to_itself = partial(locked, "gpu", fcntl.LOCK_EX)


# ---- in the process of the benchmark ----


def main(argv: Sequence[str] | None = None) -> int:
    """Measures the parts, and tells each figure as it comes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    names = [name for name in TASKS if not name.startswith("two_tower")]
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=names, metavar="NAME")
    parser.add_argument("--small", action="store_true", help="small sizes, where there are any")
    parser.add_argument("--divide", type=int, default=1, help="the only GPU into so many")
    parser.add_argument("--jobs", type=int, default=2, help="tasks that are prepared at once")
    parser.add_argument("--traces", type=Path, metavar="DIR", help="keeps traces of steps there")
    output = Path("build/accelerator.json")
    parser.add_argument("--output", type=Path, default=output, help=f"default: {output}")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a part, or a task
    options = parser.parse_args(argv)
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    if options.one:
        return measure_one(options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"divided": options.divide}
    own = ["--divide", str(options.divide), *["--small"] * options.small]
    if options.traces:
        options.traces.mkdir(parents=True, exist_ok=True)
        own += ["--traces", str(options.traces)]
    todo = [part for part in options.parts if part != "tasks"]
    todo += options.tasks if "tasks" in options.parts else []

    lock = threading.Lock()

    def measure(name: str) -> None:
        for row in rows_told(["benchmarks.accelerator", "--one", name, *own]):
            print(f"{name}: {line_of(row)}", file=sys.stderr, flush=True)
            with lock:
                found.setdefault(name, []).append(row)
                options.output.write_text(result_json(found) + "\n")

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(measure, todo))
    return 0


def measure_one(options: argparse.Namespace) -> int:
    if options.one == "machine":
        with quiet_cores():
            print_machine()
    elif options.one == "launches":
        with quiet_cores():
            print_launches(options.divide, small=options.small)
    else:
        sizes = SMALL.get(options.one, {}) if options.small else {}
        print_task(options.one, sizes, options.divide, options.traces)
    return 0


def line_of(row: dict[str, Any]) -> str:
    if "steps_ns" in row:
        executed = float(np.median(row["steps_ns"]))
        return (
            f"{row['placement']}: {executed / 1e6:.2f} ms, {executed / row['simulated_ns']:.2f} of "
            f"simulated, {executed / row['calibrated_ns']:.2f} with measured kernels"
        )
    return json.dumps(row)[:200]


if __name__ == "__main__":
    sys.exit(main())
