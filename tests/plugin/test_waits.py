"""Waits end: in a forked child, and after Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.plugin.test_fail_open import write_planners
from tests.processes import run

IN_CHILD = """
def in_child(function):
    "What the function returns in a forked child, which has half a minute for it."
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        os.write(theirs, json.dumps(function()).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        text = answer.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with status {status}"
    return json.loads(text)

def train():
    return {"losses": losses(trainer()), "outcomes": outcomes()}
"""


def test_a_child_forked_before_any_op_has_run_trains_and_plans(tmp_path: Path) -> None:
    outcome = run(
        "import signal\n"
        + IN_CHILD
        + """
on()
children = [in_child(train), in_child(lambda: in_child(train))]
parent = train()
report(children=children, parent=parent)
""",
        tmp_path,
    )
    first, second = outcome.report["children"]
    assert first["losses"] == second["losses"] == outcome.report["parent"]["losses"]
    assert first["outcomes"] == ["planned"]
    assert second["outcomes"] == outcome.report["parent"]["outcomes"] == ["loaded"]
    assert outcome.log == []


def test_a_child_forked_while_its_parent_plans_is_free(tmp_path: Path) -> None:
    outcome = run(
        "import signal\n"
        + IN_CHILD
        + """
on(planner="bad:heeds", timeout_s=5.0)
thread = threading.Thread(target=losses, args=(trainer(),))
thread.start()
while not any(t.name == "hplacer-planner" for t in threading.enumerate()):
    time.sleep(0.01)
time.sleep(0.3)  # somewhere in the search
seen = in_child(lambda: [plugin.history(), hp.step_checks(), hp.plan("example").step_time_ns])
thread.join()
report(seen=seen, outcomes=outcomes())
""",
        write_planners(tmp_path),
    )
    assert outcome.report["seen"] == [[], [], 438_000]
    assert outcome.report["outcomes"] == ["failed"]


@pytest.mark.parametrize("planner", ["bad:heeds", "bad:sleeps", "local_search"])
def test_ctrl_c_ends_the_wait_for_a_plan(tmp_path: Path, planner: str) -> None:
    outcome = run(
        f"""
import signal
on(planner={planner!r}, on_miss="learn", budget_s=60.0, timeout_s=60.0, min_ops=1)
function = trainer()
def interrupt():
    while not any(t.name == "hplacer-planner" for t in threading.enumerate()):
        time.sleep(0.01)
    while {planner!r} == "bad:heeds" and not os.path.exists("heeding"):
        time.sleep(0.01)
    time.sleep(0.7)
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
sent = []
threading.Thread(target=interrupt).start()
try:
    while not sent:
        losses(function)
except KeyboardInterrupt:
    waited = time.monotonic() - sent[0]
deadline = time.monotonic() + 20
while any(t.name == "hplacer-planner" for t in threading.enumerate()):
    assert time.monotonic() < deadline
    time.sleep(0.01)
report(waited=waited, plans=len(hp.PlanStore(CACHE).list()),
       reasons=[entry.reason for entry in plugin.history()],
       handler=signal.getsignal(signal.SIGINT) is signal.default_int_handler,
       after=losses(function))
""",
        write_planners(tmp_path),
    )
    assert outcome.report["waited"] < 10  # half a second on idle cores
    assert outcome.report["plans"] == (0 if planner == "bad:sleeps" else 1)
    assert outcome.report["reasons"][0] == "a signal interrupted the planning"
    assert outcome.report["handler"]
