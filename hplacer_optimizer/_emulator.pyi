"""The native modules `_emulator_2_21` and so on: emulated devices of this process."""

def now_ns() -> int:
    """The virtual time."""

def stopped() -> str:
    """Why the clock stopped; "" if it did not."""

def synchronise() -> None:
    """Waits until all devices have done what they were given; also ends if the clock stops."""

def counts() -> tuple[int, int]:
    """How often virtual time moved, and how often the clock looked at the threads for that."""

def set_cost(key: str, *, on_host: bool, by_type: bool, launch_ns: int, run_ns: int) -> None:
    """What an op of this name, or type, takes: to launch, and to run."""

def clear_costs() -> None:
    """Forgets what `set_cost` said."""

def allocate_only_from(bytes_: int, /) -> None:
    """Kernels that read and write so many bytes only allocate; negative: all compute."""

def trace(on: bool, /) -> None:
    """Begins or ends to record what runs; forgets what was recorded."""

def take_records() -> list[tuple[int, int, int, int, int, int, int, str, str]]:
    """What ran since: kind (0 kernel, 1 copy, 2 op on the host), source, destination (-1: host),
    when it was enqueued, started and ended in ns, bytes, name and type of the op. What has not
    started or ended has the largest integer there.
    """
