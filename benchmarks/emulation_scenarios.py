"""What the stress test of emulated GPUs runs: one scenario in this process, told by its seed.

    python benchmarks/emulation_scenarios.py functions --seed 7 --steps 20

Prints what happened as one line of JSON after REPORT. `emulation_stress.py` runs many of them and
says what each ending means.

Graphs are drawn: kernels on small matrices, on random devices, under conditions and in loops. The
same numbers draw the same graph on the CPU alone, whose results are the right ones.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import contextlib
import faulthandler
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hplacer_optimizer import emulation
from hplacer_optimizer.machines import machine_from_yaml

US = 1_000
_CHARGED = ("MatMul", "AddV2", "Mul", "Tanh", "Relu", "Square", "Sum", "Transpose", "ConcatV2")
_MACHINE = """
format: hplacer-machine/1
name: drawn
kinds:
  host: {{type: CPU, flops: {{float32: 1 TFLOP/s}}, memory: 8 GiB, memory_bandwidth: 1 TB/s,
         launch_overhead: 0 us, executor_overhead: 0 us, slots: {slots}}}
  gpu: {{type: GPU, flops: {{float32: 1 TFLOP/s}}, memory: {memory}, memory_bandwidth: 1 TB/s,
        launch_overhead: 5 us, executor_overhead: 1 us, launches_ahead: {ahead}}}
devices:
  - {{name: /device:CPU:0, kind: host}}
{devices}
links:
  - {topology}: {{devices: [{names}], latency: 10 us, bandwidth: 1 GB/s}}
"""


class Drawn:
    """A scenario's process: its chance, its devices, and what it has found."""

    def __init__(self, seed: int, steps: int) -> None:
        self.chance = random.Random(seed)
        self.seed, self.steps = seed, steps
        self.done = self.errors = 0
        self.wrong: list[str] = []
        self.devices: list[str] = []

    def emulate(self, memory: str = "1 GiB") -> None:
        """Two to four GPUs, whose kernels take random times."""
        count = self.chance.randint(2, 4)
        gpus = [f"/device:GPU:{number}" for number in range(count)]
        self.devices = ["/device:CPU:0", *gpus]
        text = _MACHINE.format(
            slots=self.chance.choice((1, 2, 8)),
            ahead=self.chance.choice(("true", "false")),
            memory=memory,
            devices="\n".join(f"  - {{name: {gpu}, kind: gpu}}" for gpu in gpus),
            topology=self.chance.choice(("memory", "nvswitch")),
            names=", ".join(self.devices),
        )
        emulation.enable(machine_from_yaml(text))
        import tensorflow as tf

        tf.config.list_physical_devices()
        for op_type in self.chance.sample(_CHARGED, self.chance.randint(0, len(_CHARGED))):
            emulation.charge_type(
                op_type,
                launch_ns=self.chance.choice((0, 0, 7 * US, 50 * US)),
                run_ns=self.chance.choice((0, 1, 20 * US, 300 * US, 2000 * US)),
            )
            if self.chance.random() < 0.5:
                emulation.charge_type(
                    op_type, run_ns=self.chance.choice((0, 10 * US)), on_host=True
                )

    def compare(self, found: Any, right: Any) -> None:
        """Counts a step."""
        self.done += 1
        if not np.allclose(found, right, rtol=1e-4, atol=1e-5):
            self.wrong.append(f"step {self.done}: {found!r} and not {right!r}")

    def failed_as_it_should(self) -> None:
        """Counts a step that ended with TensorFlow's error."""
        self.done += 1
        self.errors += 1


class Graphs:
    """Draws graphs. `everywhere`: on all devices, else on the CPU alone, with the same kernels."""

    def __init__(
        self,
        drawn: Drawn,
        seed: int,
        *,
        everywhere: bool,
        python: Callable[[Any], Any] | None = None,
        functions: bool = False,
    ) -> None:
        self.chance = random.Random(seed)
        self.devices, self.everywhere = drawn.devices, everywhere
        self.python, self.functions = python, functions

    def device(self) -> Any:
        import tensorflow as tf

        device = self.chance.choice(self.devices)
        return tf.device(device if self.everywhere else "/device:CPU:0")

    def draw(self, x: Any, kernels: int, depth: int = 2) -> Any:
        """A number from a matrix of 8 x 8."""
        import tensorflow as tf

        made = [x, x * 0.5]
        for _ in range(kernels):
            with self.device():
                made.append(self._one(made, depth))
        with self.device():
            return tf.reduce_sum(tf.concat(made[-3:], axis=0))

    def _one(self, made: list[Any], depth: int) -> Any:
        import tensorflow as tf

        chance = self.chance
        a, b = chance.choice(made), chance.choice(made)
        kinds = ["matmul", "add", "mul", "relu", "square", "transpose", "assign"]
        kinds += ["while", "cond"] if depth else []
        kinds += ["function"] if self.functions and depth else []
        kinds += ["python"] if self.python else []
        kind = chance.choice(kinds)
        if kind == "while":
            trips, seed = chance.randint(0, 4), chance.random()
            _, result = tf.while_loop(
                lambda i, _: i < trips,
                lambda i, y: (i + 1, self._inner(y, seed, depth)),
                (tf.constant(0), a),
            )
            return tf.ensure_shape(result, (8, 8))
        if kind == "cond":
            first, second = chance.random(), chance.random()
            is_large = tf.reduce_sum(a) > tf.reduce_sum(b)
            result = tf.cond(
                is_large,
                lambda: self._inner(a, first, depth),
                lambda: self._inner(b, second, depth),
            )
            return tf.ensure_shape(result, (8, 8))
        if kind == "function":
            seed = chance.random()
            attributes = {"_noinline": True} if chance.random() < 0.5 else None
            inner = tf.function(
                lambda y: self._inner(y, seed, depth),
                autograph=False,
                experimental_attributes=attributes,
            )
            return inner(a)
        if kind == "python":
            # Python's thread is the host's; the kernels around it are anywhere.
            result = tf.numpy_function(self.python, [a], tf.float32)
            return tf.ensure_shape(result, (8, 8))
        return {
            "matmul": lambda: tf.tanh(a @ b),
            "add": lambda: tf.tanh(a + b),
            "mul": lambda: a * b,
            "relu": lambda: tf.nn.relu(a - 0.1),
            "square": lambda: tf.tanh(tf.square(a)),
            "transpose": lambda: tf.transpose(a),
            "assign": lambda: tf.identity(a) + tf.reduce_mean(b),
        }[kind]()

    def _inner(self, y: Any, seed: float, depth: int) -> Any:
        """Two kernels of a body or a branch, which is traced more than once, in any order."""
        outer, self.chance = self.chance, random.Random(seed)
        try:
            made = [y]
            for _ in range(2):
                with self.device():
                    made.append(self._one(made, depth - 1))
            return made[-1]
        finally:
            self.chance = outer


class Session:
    """A drawn graph in a session of its own; `run` gives what it found and what is right."""

    def __init__(
        self, drawn: Drawn, seed: int, kernels: int = 25, python: Callable[[Any], Any] | None = None
    ) -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        chance = random.Random(seed)
        has_old_loops = chance.random() < 0.5
        if has_old_loops:
            v1.disable_control_flow_v2()
        else:
            v1.enable_control_flow_v2()
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._x = v1.placeholder(tf.float32, (8, 8))
            self._found, self._right = (
                Graphs(drawn, seed, everywhere=everywhere, python=python).draw(self._x, kernels)
                for everywhere in (True, False)
            )
        config = v1.ConfigProto(allow_soft_placement=True)
        # Grappler breaks some graphs of old loops, whose steps never end then, on CPUs, too.
        is_plain = chance.random() < 0.5 or has_old_loops
        config.graph_options.rewrite_options.disable_meta_optimizer = is_plain
        if chance.random() < 0.3:
            config.inter_op_parallelism_threads = chance.choice((1, 4))
        self._session = v1.Session(graph=self._graph, config=config)
        self._numbers = np.random.default_rng(seed)

    def feed(self) -> dict[Any, Any]:
        return {self._x: self._numbers.normal(size=(8, 8)).astype(np.float32)}

    def run(self) -> tuple[Any, Any]:
        """Emulated alone, or both in one step."""
        feed = self.feed()
        if self._numbers.random() < 0.3:
            found, right = self._session.run([self._found, self._right], feed)
            return found, right
        found = self._session.run(self._found, feed)
        return found, self._session.run(self._right, feed)


# ---- scenarios ----


def graphs(drawn: Drawn) -> None:
    """Graphs with loops and conditions."""
    drawn.emulate()
    session = Session(drawn, drawn.seed, kernels=drawn.chance.choice((10, 40, 80)))
    for _ in range(drawn.steps):
        if drawn.chance.random() < 0.2:
            with emulation.traced():
                drawn.compare(*session.run())
        else:
            drawn.compare(*session.run())


def functions(drawn: Drawn) -> None:
    """Functions that call functions, inlined and not."""
    drawn.emulate()
    import tensorflow as tf

    numbers = np.random.default_rng(drawn.seed)
    kernels = drawn.chance.choice((10, 30))
    found, right = (
        tf.function(
            lambda x, everywhere=everywhere: Graphs(
                drawn, drawn.seed, everywhere=everywhere, functions=True
            ).draw(x, kernels),
            autograph=False,
        )
        for everywhere in (True, False)
    )
    for _ in range(drawn.steps):
        x = tf.constant(numbers.normal(size=(8, 8)).astype(np.float32))
        drawn.compare(float(found(x)), float(right(x)))


def python(drawn: Drawn) -> None:
    """Python functions that sleep within a step."""
    drawn.emulate()
    chance = random.Random(drawn.seed)

    def sleeps(x: Any) -> Any:
        time.sleep(chance.uniform(0.001, 0.03))
        return x

    session = Session(drawn, drawn.seed, python=sleeps)
    for _ in range(drawn.steps):
        drawn.compare(*session.run())


def sessions(drawn: Drawn) -> None:
    """Two to four sessions in threads at once."""
    drawn.emulate()
    count = drawn.chance.randint(2, 4)
    made = [Session(drawn, drawn.seed + i, kernels=15) for i in range(count)]
    failed: list[BaseException] = []

    def run(session: Session) -> None:
        try:
            for _ in range(drawn.steps // count):
                drawn.compare(*session.run())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(session,)) for session in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in failed:
        raise error


def processes(drawn: Drawn) -> None:
    """Child processes, in the middle of a step and between steps."""
    drawn.emulate()
    chance = random.Random(drawn.seed)

    def start() -> None:
        pause = repr(chance.uniform(0, 0.05))
        kind = chance.randrange(3)
        if kind == 0:
            subprocess.run(["sleep", pause], check=True)
        elif kind == 1:
            subprocess.run(["sh", "-c", f"sleep {pause}; echo x"], check=True, capture_output=True)
        else:
            subprocess.Popen(["sleep", "0.3"])

    def starts(x: Any) -> Any:
        if chance.random() < 0.3:
            start()
        return x

    session = Session(drawn, drawn.seed, kernels=15, python=starts)
    for _ in range(drawn.steps):
        drawn.compare(*session.run())
        if chance.random() < 0.3:
            start()
        elif chance.random() < 0.15:
            process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0.02,))
            process.start()
            process.join()


@contextlib.contextmanager
def _beside(act: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """A thread of Python's that acts until the block ends."""
    end = threading.Event()
    thread = threading.Thread(target=act, args=(end,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(10)


def spinning(drawn: Drawn) -> None:
    """A thread of Python's that works for a moment now and then."""
    drawn.emulate()
    chance = random.Random(drawn.seed)

    def spin(end: threading.Event) -> None:
        while not end.is_set():
            until = time.monotonic() + chance.uniform(0.001, 0.2)
            while time.monotonic() < until:
                pass
            time.sleep(chance.uniform(0, 0.1))

    session = Session(drawn, drawn.seed, kernels=15)
    with _beside(spin, "spins"):
        for _ in range(drawn.steps):
            drawn.compare(*session.run())


def spinning_for_ever(drawn: Drawn) -> None:
    """A thread of Python's that never rests: the clock stops, and steps end with an error."""
    drawn.emulate()
    import tensorflow as tf

    for op_type in _CHARGED:
        emulation.charge_type(op_type, launch_ns=5 * US, run_ns=10 * US)

    def spin(end: threading.Event) -> None:
        while not end.is_set():
            pass

    session = Session(drawn, drawn.seed, kernels=15)
    with _beside(spin, "spins"):
        for _ in range(drawn.steps):
            try:
                session.run()
            except tf.errors.OpError as error:
                assert "virtual time stood still" in str(error), error  # noqa: PT017
                drawn.failed_as_it_should()


def sleeping(drawn: Drawn) -> None:
    """Threads of Python's that sleep in loops, one of which also uses TensorFlow now and then."""
    drawn.emulate()
    import tensorflow as tf

    chance = random.Random(drawn.seed)
    touches = chance.random() < 0.5

    def sleep(end: threading.Event) -> None:
        while not end.is_set():
            if touches and chance.random() < 0.2:
                with tf.device("/device:GPU:0"):
                    tf.constant(1.0) + 1.0
            time.sleep(chance.choice((0.0005, 0.004, 0.03, 0.2)))

    session = Session(drawn, drawn.seed, kernels=15)
    with _beside(sleep, "sleeps"), _beside(lambda end: end.wait(1e6) and None, "waits"):
        for _ in range(drawn.steps):
            drawn.compare(*session.run())


def polling(drawn: Drawn) -> None:
    """The main thread, or another one, looks again and again whether a step is over."""
    drawn.emulate()
    session = Session(drawn, drawn.seed, kernels=15)
    pause = drawn.chance.choice((0.0, 0.0005, 0.01, 0.05))
    for _ in range(drawn.steps):
        results: list[tuple[Any, Any]] = []
        run = threading.Thread(target=lambda into=results: into.append(session.run()))
        run.start()
        while run.is_alive():
            time.sleep(pause)
        drawn.compare(*results[0])


def waiting(drawn: Drawn) -> None:
    """The main thread waits for a step with a time limit, or in an event loop."""
    drawn.emulate()
    session = Session(drawn, drawn.seed, kernels=15)
    chance = drawn.chance
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        if chance.random() < 0.5:

            async def run_all() -> None:
                loop = asyncio.get_running_loop()
                for _ in range(drawn.steps):
                    drawn.compare(*await loop.run_in_executor(pool, session.run))

            asyncio.run(run_all())
        else:
            for _ in range(drawn.steps):
                drawn.compare(*pool.submit(session.run).result(timeout=chance.choice((60, 1000))))


def raising(drawn: Drawn) -> None:
    """Kernels that fail in the middle of a step; the next one is right again."""
    drawn.emulate()
    import tensorflow as tf

    chance = random.Random(drawn.seed)

    def raises(x: Any) -> Any:
        raise ValueError("as drawn")

    def failing(kind: str, x: Any) -> Any:
        graphs = Graphs(drawn, drawn.seed, everywhere=True)
        y = graphs.draw(x, 10)
        with graphs.device():
            if kind == "assert":
                with tf.control_dependencies([tf.debugging.Assert(y < -1e9, [y])]):
                    z = tf.identity(y)
            elif kind == "division":
                z = tf.cast(tf.constant(7) // tf.cast(y * 0, tf.int32), tf.float32)
            else:
                z = tf.numpy_function(raises, [y], tf.float32)
        return graphs.draw(tf.reshape(z, ()) + tf.zeros((8, 8)), 10)

    bad = []
    for kind in ("assert", "division", "python"):
        if chance.random() < 0.5:
            bad.append(tf.function(lambda x, kind=kind: failing(kind, x), autograph=False))
        else:
            v1 = tf.compat.v1
            with tf.Graph().as_default() as graph:
                fetch = failing(kind, tf.ones((8, 8)))
            session = v1.Session(graph=graph, config=v1.ConfigProto(allow_soft_placement=True))
            bad.append(lambda x, session=session, fetch=fetch: session.run(fetch))
    good = Session(drawn, drawn.seed, kernels=15)
    for step in range(drawn.steps):
        if step % 2:
            drawn.compare(*good.run())
            continue
        try:
            found = chance.choice(bad)(tf.ones((8, 8)))
            drawn.wrong.append(f"no error but {found}")
        except tf.errors.OpError:
            drawn.failed_as_it_should()


def interrupted(drawn: Drawn) -> None:
    """Ctrl-C in the middle of a step; what follows is right again."""
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # which the background is started without
    drawn.emulate()
    session = Session(drawn, drawn.seed, kernels=40)
    for _ in range(max(1, drawn.steps // 4)):
        drawn.compare(*session.run())
        moment = drawn.chance.uniform(0, 0.5)
        timer = threading.Timer(moment, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            # TensorFlow loses an interrupt that meets some of its calls.
            while timer.is_alive():
                session.run()
            session.run()
            drawn.compare(*session.run())
        except KeyboardInterrupt:
            drawn.failed_as_it_should()
        timer.join()
        for _ in range(2):
            drawn.compare(*session.run())


def memory(drawn: Drawn) -> None:
    """GPUs whose memory runs out in the middle of a step; what follows is right again."""
    drawn.emulate("32 MiB")
    import tensorflow as tf

    good = Session(drawn, drawn.seed, kernels=15)
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        with tf.device("/device:GPU:1"):
            x = tf.tanh(v1.random_uniform((1024, 1024)))  # 4 MiB
        with tf.device("/device:GPU:0"):
            large = tf.reduce_sum(tf.tanh(tf.tile(tf.tanh(x), (12, 1))))
    session = v1.Session(graph=graph)
    for step in range(drawn.steps):
        if step % 10 != 5:  # TensorFlow waits 10 s for memory that others may free
            drawn.compare(*good.run())
            continue
        try:
            session.run(large)
            drawn.wrong.append("12 times 4 MiB fit 32 MiB")
        except tf.errors.ResourceExhaustedError:
            drawn.failed_as_it_should()


def pipeline(drawn: Drawn) -> None:
    """Files that tf.data reads, maps and prefetches, into steps on GPUs."""
    drawn.emulate()
    import tensorflow as tf

    chance = drawn.chance
    directory = Path(tempfile.mkdtemp())
    numbers = np.random.default_rng(drawn.seed).normal(size=(drawn.steps * 2, 8, 8))
    files = []
    for part, rows in enumerate(np.array_split(numbers.astype(np.float32), 4)):
        files.append(str(directory / f"part-{part}"))
        with tf.io.TFRecordWriter(files[-1]) as writer:
            for row in rows:
                writer.write(row.tobytes())
    data = tf.data.Dataset.from_tensor_slices(files).interleave(
        tf.data.TFRecordDataset,
        cycle_length=2,
        num_parallel_calls=chance.choice((None, 2, tf.data.AUTOTUNE)),
        deterministic=True,
    )
    data = data.map(
        lambda record: tf.reshape(tf.io.decode_raw(record, tf.float32), (8, 8)),
        num_parallel_calls=chance.choice((None, 4, tf.data.AUTOTUNE)),
    )
    if chance.random() < 0.5:
        data = data.shuffle(8, seed=1)
    data = data.batch(2).prefetch(chance.choice((1, 4, tf.data.AUTOTUNE)))
    if chance.random() < 0.3:
        data = data.apply(tf.data.experimental.prefetch_to_device("/device:GPU:1"))
    found, right = (
        tf.function(
            lambda x, everywhere=everywhere: Graphs(drawn, drawn.seed, everywhere=everywhere).draw(
                x[0] + x[1], 15
            ),
            autograph=False,
        )
        for everywhere in (True, False)
    )
    for batch in data:
        drawn.compare(float(found(batch)), float(right(batch)))


def mirrored(drawn: Drawn) -> None:
    """Training on all GPUs at once, by a strategy."""
    drawn.emulate()
    import tensorflow as tf

    gpus = [device for device in drawn.devices if "GPU" in device]
    start = np.random.default_rng(drawn.seed).normal(size=(8, 8)).astype(np.float32)
    one = tf.distribute.ReductionToOneDevice()
    across = drawn.chance.choice((one, tf.distribute.HierarchicalCopyAllReduce()))
    losses = []
    for strategy in (
        tf.distribute.MirroredStrategy(gpus, cross_device_ops=across),
        tf.distribute.OneDeviceStrategy("/device:CPU:0"),
    ):
        with strategy.scope():
            weight = tf.Variable(start)

        def replica(x: Any, weight: Any = weight) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.tanh(x @ weight)))
            slope = tape.gradient(loss, weight)
            context = tf.distribute.get_replica_context()
            weight.assign_sub(0.1 * context.all_reduce(tf.distribute.ReduceOp.MEAN, slope))
            return loss

        @tf.function(autograph=False)
        def step(x: Any, strategy: Any = strategy, replica: Any = replica) -> Any:
            found = strategy.run(replica, args=(x,))
            return strategy.reduce(tf.distribute.ReduceOp.MEAN, found, axis=None)

        x = tf.ones((8, 8))
        losses.append([float(step(x)) for _ in range(drawn.steps)])
    for found, right in zip(*losses, strict=True):
        drawn.compare(found, right)


def queues(drawn: Drawn) -> None:
    """Queue runners: threads that fill a queue, a coordinator that waits for them."""
    drawn.emulate()
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        with tf.device("/device:CPU:0"):
            queue = v1.FIFOQueue(drawn.chance.choice((1, 8)), tf.float32, shapes=(8, 8))
            put = queue.enqueue(v1.random_uniform((8, 8), seed=1))
            runner = v1.train.QueueRunner(queue, [put] * drawn.chance.randint(1, 3))
            x = queue.dequeue()
        found, right = (
            Graphs(drawn, drawn.seed, everywhere=everywhere).draw(x, 15)
            for everywhere in (True, False)
        )
        with v1.Session(config=v1.ConfigProto(allow_soft_placement=True)) as session:
            coordinator = v1.train.Coordinator()
            threads = runner.create_threads(session, coordinator, start=True)
            for _ in range(drawn.steps):
                drawn.compare(*session.run([found, right]))
            coordinator.request_stop()
            session.run(queue.close(cancel_pending_enqueues=True))
            coordinator.join(threads)


SCENARIOS: dict[str, Callable[[Drawn], None]] = {
    scenario.__name__: scenario
    for scenario in (
        *(graphs, functions, python, sessions, processes, spinning, spinning_for_ever, sleeping),
        *(polling, waiting, raising, interrupted, memory, pipeline, mirrored, queues),
    )
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one scenario."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args(arguments)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # tells what a process does that hangs
    drawn = Drawn(options.seed, options.steps)
    failed = ""
    try:
        SCENARIOS[options.scenario](drawn)
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
    from hplacer_optimizer.capture import native

    emulator = native.load_emulator()
    report = {
        "steps": drawn.done,
        "errors": drawn.errors,
        "wrong": drawn.wrong,
        "failed": failed,
        "stopped": emulator.stopped(),
        "virtual_ns": emulator.now_ns(),
    }
    print("REPORT " + json.dumps(report), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
