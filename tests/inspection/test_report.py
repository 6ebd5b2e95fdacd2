"""The HTML report: its data, its figures, and the page in a real Chromium."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

import hplacer_optimizer as hp
from hplacer_optimizer.cli import main
from hplacer_optimizer.inspection.loads import channel_loads, device_loads, short_names
from hplacer_optimizer.inspection.report import write_report
from hplacer_optimizer.inspection.report.chart_data import NO_CHANNEL, pack_steps
from hplacer_optimizer.inspection.report.columns import Columns
from hplacer_optimizer.inspection.report.references import REFERENCES, simulate_references
from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.plans.baseline import Baseline
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.simulation import simulate_plan
from hplacer_optimizer.plans.verdict import Verdict
from hplacer_optimizer.problem.problem_file import load_problem_file
from hplacer_optimizer.problem.simulator import simulate_default
from testbed.browser import LAPTOP, Browser, browser, missing
from testbed.documents import problem_from_dict
from testbed.large_problem import large_problem
from testbed.random_problems import placed_problems
from tests.planned import plan_of

GOLDEN = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"
CURVE = [
    {"steps": step, "best_ns": best, "placements": 8 * step, "mean_ns": mean, "infeasible": 0.0}
    for step, best, mean in ((1, None, None), (2, 9_000_000, 9.5e6), (5, 4_000_000, 7.25e6))
]
FIND = "#timeline input[type=search]"
NARROW = 400  # pixels, as wide as a phone
needs_chromium = pytest.mark.skipif(bool(missing()), reason=missing())


# ---- data ----


def unpack(text: str) -> dict[str, Any]:
    """As data.js does it."""
    data = zlib.decompress(base64.b64decode(text, validate=True))
    (size,) = struct.unpack("<I", data[:4])

    def resolve(value: Any) -> Any:
        if isinstance(value, list):
            return [resolve(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "at" in value:
            dtype = np.dtype(value["type"].lower()).newbyteorder("<")
            begin, count = 4 + size + value["at"], value["length"] * dtype.itemsize
            stored = np.frombuffer(data, np.uint8, count, begin)
            found = np.ascontiguousarray(stored.reshape(dtype.itemsize, -1).T).view(dtype).ravel()
            return np.cumsum(found) if value.get("delta") else found
        return {key: resolve(item) for key, item in value.items()}

    document: dict[str, Any] = resolve(json.loads(data[4 : 4 + size]))
    return document


def durations_of(document: dict[str, Any], step: dict[str, Any], first: Any) -> dict[Any, int]:
    """As data.js does it; by whether it is an op, and which."""
    graph, sends, found, begin = document, step["transfers"], {}, 0
    ptr = np.cumsum([0, *graph["ops"]["outputs"]])
    for lane in step["lanes"]:
        for i in range(begin, lane["end"]):
            item, is_op = int(step["spans"]["item"][i]), "device" in lane
            expected = first[True, item] if is_op and first else 0
            if not is_op:
                src, output = sends["src_op"][item], sends["output"][item]
                pair = step["placement"][src] * len(graph["devices"]) + sends["dst_device"][item]
                size = 0 if output < 0 else graph["tensor_bytes"][ptr[src] + output]
                rate = 1e9 / graph["links"]["bytes_per_s"][pair]
                latency_ns = graph["links"]["latency_ns"][pair]
                expected = math.floor(float(latency_ns) + float(size) * rate + 0.5)
            found[is_op, item] = int(step["spans"]["extra"][i]) + expected
        begin = lane["end"]
    return found


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_the_data_are_those_of_the_traces(case: tuple[dict[str, Any], list[int]]) -> None:
    document, placement = case
    problem = problem_from_dict(document)
    steps = [SimulatedStep.of(problem, given) for given in (placement, placement[::-1])]
    assume(all(step.trace.has_trace for step in steps))
    data = unpack(pack_steps(dict(zip("ab", steps, strict=True))))
    first = None
    for step, own in zip(steps, data["steps"], strict=True):
        durations = durations_of(data, own, first)
        first = first or durations
        check_spans(step, own, durations)
    for device, held in enumerate(data["memory"]):
        assert max(held["bytes"], default=0) == steps[0].trace.peak_bytes[device]


def check_spans(step: SimulatedStep, own: dict[str, Any], durations: dict[Any, int]) -> None:
    problem, trace, begin = step.problem, step.trace, 0
    ops, sends, path = {}, {}, own["path"]
    for lane in own["lanes"]:
        now = 0
        for i in range(begin, lane["end"]):
            item, gap = int(own["spans"]["item"][i]), int(own["spans"]["gap"][i])
            assert gap >= 0
            start = now + gap
            now = start + durations["device" in lane, item]
            if "device" in lane:
                ops[item] = (lane["device"], start, now)
            else:
                sends[item] = (lane["channel"], start, now)
        begin = lane["end"]
    times = zip(
        step.placement.tolist(), trace.start_ns.tolist(), trace.finish_ns.tolist(), strict=True
    )
    assert ops == dict(enumerate(times))
    assert sends == {
        i: (lane_of(problem, x), x["start_ns"], x["carried_ns"])
        for i, x in enumerate(trace.transfers)
    }
    assert path["begin"].tolist() == [stage.begin_ns for stage in step.path]
    assert path["item"].tolist() == [stage.item for stage in step.path]


def lane_of(problem: hp.Problem, transfer: Any) -> str:
    takes_time = transfer["carried_ns"] > transfer["start_ns"]
    return problem.channel_names[transfer["channel"]] if takes_time else NO_CHANNEL


def test_memory_of_many_ops_keeps_its_peaks() -> None:
    problem = large_problem(3_000, num_devices=2)
    step = SimulatedStep.of(problem, get_planner("etf").plan(problem).placement)
    (_, held), timeline = unpack(pack_steps({"a": step}))["memory"], step.trace.memory_timeline()
    own = timeline[timeline["device"] == 1]
    assert len(held["time"]) == 2500 < len(own)
    assert held["bytes"].max() == step.trace.peak_bytes[1]
    windows = np.searchsorted(held["time"], own["time_ns"], side="right") - 1
    assert (held["bytes"][windows] >= own["bytes"]).all()
    assert held["bytes"][-1] <= own["bytes"][-50:].max()


def test_scopes_edges_and_names() -> None:
    problem = load_problem_file(GOLDEN)
    placement = get_planner("etf").plan(problem).placement
    step = unpack(pack_steps({"a": SimulatedStep.of(problem, placement)}))

    def path(scope: int) -> str:
        entry = step["scopes"][scope]
        return "" if scope == 0 else path(entry["parent"]) + entry["name"] + "/"

    ops = step["ops"]
    names = [path(s) + leaf for s, leaf in zip(ops["scope"], ops["leaf"], strict=True)]
    assert names == problem.op_names
    assert [step["types"][i] for i in ops["type"]] == problem.op_types
    edges = step["edges"]
    found = zip(*(edges[name].tolist() for name in ("src", "output", "dst")), strict=True)
    control = [(src, -1, dst) for src, dst in problem.control_edges.tolist()]
    assert [*found] == [*map(tuple, problem.edges.tolist()), *control]
    assert ops["outputs"].tolist() == np.diff(problem.output_ptr).tolist()
    assert step["tensor_bytes"].tolist() == problem.output_bytes.tolist()


def test_an_array_takes_the_smallest_type_that_holds_it() -> None:
    columns = Columns()
    wanted = {
        "Uint8": [0, 255], "Uint16": [256], "Uint32": [2**32 - 1], "Int8": [-1],
        "Int16": [-200], "Int32": [-(2**31)], "Float64": [2**53 - 1],
    }  # fmt: skip
    document = {name: columns.add(np.array(values)) for name, values in wanted.items()}
    assert {name: entry["type"] for name, entry in document.items()} == {n: n for n in wanted}
    rising = columns.add(np.array([10**12, 10**12 + 1, 10**12 + 3]), delta=True)
    found = unpack(
        columns.pack({**document, "rising": rising, "none": columns.add(np.array([], int))})
    )
    assert found.pop("rising").tolist() == [10**12, 10**12 + 1, 10**12 + 3]
    assert found.pop("none").tolist() == []
    assert {name: values.tolist() for name, values in found.items()} == wanted
    with pytest.raises(ValueError, match="not exact in a browser"):
        columns.add(np.array([2**53]))


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["/job:a/device:CPU:0", "/job:a/device:GPU:1"], ["CPU:0", "GPU:1"]),
        (
            [f"/job:a/replica:0/task:{task}/device:CPU:0" for task in (0, 1)],
            ["a/0 CPU:0", "a/1 CPU:0"],
        ),
        (["/job:a/replica:0/task:0/device:GPU:3"], ["GPU:3"]),
        (
            [f"/job:a/replica:{replica}/task:0/device:CPU:0" for replica in (0, 1)],
            ["replica:0/task:0/CPU:0", "replica:1/task:0/CPU:0"],
        ),
        (["/job:a/task:0/CPU:0", "/job:a/task:1/CPU:0"], ["task:0/CPU:0", "task:1/CPU:0"]),
        (["d0"], ["d0"]),
        (["a/x", "x"], ["a/x", "x"]),
    ],
)  # fmt: skip
def test_short_names(names: list[str], short: list[str]) -> None:
    assert short_names(names) == short


def test_references_say_why_they_cannot() -> None:
    found = {row.planner: row for row in simulate_references(load_problem_file(GOLDEN))}
    assert tuple(found) == REFERENCES
    problem = load_problem_file(GOLDEN)
    expected = hp.simulate(problem, get_planner("etf").plan(problem).placement)
    assert found["etf"].step_time_ns == expected.makespan_ns
    assert found["human_expert"].step_time_ns is None
    assert "is none of" in found["human_expert"].reason


def report_of(problem: hp.Problem, placement: Any, directory: Path) -> str:
    path = directory / "x.html"
    plan_of(problem, placement).report(path)
    return path.read_text(encoding="utf-8")


def headline_of(page: str) -> str:
    found = re.search(r'<p class="headline">(.*?)</p>', page)
    assert found
    return unescape(found[1])


def test_the_headline_names_the_gain(tmp_path: Path) -> None:
    problem = load_problem_file(GOLDEN)
    placement = get_planner("etf").plan(problem).placement
    page = report_of(problem, placement, tmp_path)
    assert headline_of(page) == "This plan is predicted to take 1.11 ms a step."
    assert "is not known, so its timeline is not shown." in page

    placed = problem.replace(default_device=np.zeros(problem.num_ops, np.int32))
    page = report_of(placed, placement, tmp_path)
    assert headline_of(page) == (
        "This plan is predicted to be 8.5 times as fast as TensorFlow's own placement: 1.11 ms a "
        "step instead of 9.42 ms."
    )
    assert "timeline is not shown" not in page
    row = r"TensorFlow's own placement</th><td [^>]*data-value=\"942\d+\">9.42 ms</td>"
    assert re.search(row, unescape(page))
    same = headline_of(report_of(placed, [0] * problem.num_ops, tmp_path))
    assert "is predicted to be as fast as TensorFlow's own placement" in same


def test_the_headline_of_what_does_not_run(tmp_path: Path) -> None:
    problem = load_problem_file(GOLDEN)
    placement = get_planner("etf").plan(problem).placement
    memory = problem.device_memory_bytes.copy()
    memory[0] = 1_000_000
    small = problem.replace(
        default_device=np.zeros(problem.num_ops, np.int32), device_memory_bytes=memory
    )
    page = report_of(small, placement, tmp_path)
    assert headline_of(page) == (
        "This plan runs, TensorFlow's own placement does not fit into memory: a step is predicted "
        "to take 1.11 ms."
    )
    assert 'id="speedup"' not in page
    assert "does not fit into memory, so its timeline is not shown." in unescape(page)
    page = report_of(small, [0] * problem.num_ops, tmp_path)
    assert headline_of(page) == "This plan does not fit into memory."


def test_the_headline_tells_what_was_measured(tmp_path: Path) -> None:
    problem = load_problem_file(GOLDEN)
    placement = get_planner("etf").plan(problem).placement
    verdict = Verdict(
        speedup=1.52, low=1.4, high=1.6, plan_ns=10_100_000, baseline_ns=15_400_000, turns=6,
        by="hplacer try train.py", measured="2026-05-02T12:00:00Z", host="worker-7", models=["x"],
    )  # fmt: skip
    plan = plan_of(problem, placement, verdict=verdict)
    plan.report(tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert headline_of(page).endswith(
        "a step; measured, it was 1.5 times as fast as that placement, 10.1 ms instead of 15.4 ms."
    )
    source = "by hplacer try train.py on worker-7 (x), 2026-05-02T12:00:00Z"
    assert f"Measured {source}; the 95% interval is 1.40 to 1.6." in page


def test_a_page_says_that_training_without_a_trial_keeps_tensorflows_placement(
    tmp_path: Path,
) -> None:
    problem = load_problem_file(GOLDEN)
    baseline = Baseline(step_time_ns=1_200_000, feasible=True, peak_bytes=[0, 0, 0])
    plan = plan_of(problem, get_planner("etf").plan(problem).placement, baseline=baseline)
    plan.report(tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    kept = "Without a trial, training keeps TensorFlow's placement: 1.11 ms instead"
    assert kept in unescape(page)


# Linear RGB as people with a kind of colour blindness see it (Machado, Oliveira and Fernandes, "A
# Physiologically-based Model for Simulation of Color Vision Deficiency", 2009, severity 1).
VISION = {
    "trichromacy": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}  # fmt: skip


def oklab(linear_rgb: Any) -> Any:
    """Rows of OKLab (Ottosson, 2020), where equal distances look equally far."""
    to_lms = [
        [0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]  # fmt: skip
    to_lab = [
        [0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]  # fmt: skip
    return np.cbrt(np.clip(linear_rgb, 0, 1) @ np.transpose(to_lms)) @ np.transpose(to_lab)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_the_colours_of_devices_differ_for_everybody(theme: int, vision: str) -> None:
    style = (
        resources.files("hplacer_optimizer.inspection.report") / "assets" / "page.css"
    ).read_text()
    colours = [
        re.findall(rf"--{name}: #([0-9a-f]{{6}});", style)[theme]
        for name in ("cpu", *(f"c{i}" for i in range(8)))
    ]
    srgb = np.array([list(bytes.fromhex(colour)) for colour in colours]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = oklab(linear @ np.transpose(VISION[vision]))
    distance = np.linalg.norm(seen[:, None] - seen[None], axis=2)
    assert distance[np.triu_indices(len(seen), 1)].min() > 0.095


# ---- the page in Chromium ----


@dataclass(frozen=True, kw_only=True)
class Page:
    """A report in the browser, and what it is about."""

    browser: Browser
    path: Path
    plan: Plan
    step: SimulatedStep

    @property
    def end_ns(self) -> int:
        """Where the timelines end: with the longer step, that of TensorFlow's own placement."""
        default = simulate_default(self.step.problem)
        assert default
        return int(default[0].makespan_ns or 0)

    def value(self, selector: str) -> float:
        return float(self.browser.find(selector).get_attribute("data-value"))

    def view(self, timeline: int = 0) -> tuple[float, float]:
        found = self.browser.run(
            "const { dataset } = document.querySelectorAll('.lanes')[arguments[0]];"
            "return [dataset.fromNs, dataset.toNs]",
            timeline,
        )
        return float(found[0]), float(found[1])

    def picture(self, timeline: int) -> str:
        """What a timeline shows, as text that differs if one pixel does."""
        shown = "return document.querySelectorAll('.lanes')[arguments[0]].toDataURL()"
        return str(self.browser.run(shown, timeline))

    def wheel(self, delta: float, x: float, y: float, *, timeline: int = 0, **keys: bool) -> None:
        """Turns the wheel at a place of a timeline."""
        self.browser.run(
            """
            const [deltaY, x, y, keys, timeline] = arguments;
            const lanes = document.querySelectorAll(".lanes")[timeline];
            const box = lanes.getBoundingClientRect();
            lanes.dispatchEvent(new WheelEvent("wheel", {
              deltaY, clientX: box.left + x, clientY: box.top + y, cancelable: true, bubbles: true,
              ...keys }));
            """,
            delta, x, y, keys, timeline,
        )  # fmt: skip
        self.browser.wait_for_frame()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def written(plan: Plan, directory: Path) -> Path:
    """The report that the command writes of a plan file."""
    (directory / "x.hplan").write_bytes(plan.to_bytes())
    path = directory / "report.html"
    assert main(["report", str(directory / "x.hplan"), "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def towers(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Page:
    problem = load_problem_file(GOLDEN)
    problem = problem.replace(default_device=np.zeros(problem.num_ops, np.int32))
    plan = plan_of(problem, get_planner("etf").plan(problem).placement, learning_curve=CURVE)
    path = written(plan, tmp_path_factory.mktemp("report"))
    return Page(browser=chromium, path=path, plan=plan, step=simulate_plan(plan))


@pytest.fixture
def page(towers: Page) -> Page:
    towers.browser.open(towers.path)
    return towers


@needs_chromium
def test_it_opens_without_an_error_or_a_request(page: Page) -> None:
    requests = page.browser.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert requests == []
    assert page.browser.log() == []
    assert page.browser.run("return document.documentElement.scrollWidth") <= LAPTOP[0]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page.path.read_text())


@needs_chromium
def test_its_numbers_are_those_of_the_plan(page: Page) -> None:
    plan, problem, trace = page.plan, page.step.problem, page.step.trace
    assert page.value("#step-time") == plan.step_time_ns == trace.makespan_ns
    assert page.value("#lower-bound") == plan.lower_bound_ns
    assert plan.lower_bound_term in page.browser.find("#summary").text
    assert page.value("#default-time") == page.end_ns
    assert page.value("#speedup") == round(page.end_ns / trace.makespan_ns, 6)
    rows = [
        [float(value) for value in row]
        for row in page.browser.run(
            "return [...document.querySelectorAll('#loads tbody tr')]"
            ".map(row => [...row.querySelectorAll('td')].map(cell => cell.dataset.value))"
        )
    ]
    devices = device_loads(problem, page.step.placement, trace)
    default_peaks = hp.simulate(problem, problem.default_device).peak_bytes.tolist()
    expected = [
        [load.ops, pytest.approx(load.busy, abs=1e-6), load.peak_bytes, peak, load.memory_bytes]
        for load, peak in zip(devices, default_peaks, strict=True)
    ] + [
        [load.transfers, load.bytes, pytest.approx(load.busy, abs=1e-6)]
        for load in channel_loads(problem, trace)
    ]
    assert rows == expected
    own = page.browser.run(
        "return [...document.querySelectorAll('#references tr')].slice(1)"
        ".map(row => [row.children[0].textContent, +row.children[1].dataset.value])"
    )
    assert own[0] == ["this plan (etf)", plan.step_time_ns]
    assert own[1] == ["TensorFlow's own placement", page.end_ns]
    assert dict(own)["etf"] == plan.step_time_ns
    assert [name for name, _ in own[2:]] == list(REFERENCES)
    points = page.browser.find("#learning .best").get_attribute("points").split()
    assert len(points) == 2  # of the three, the first had none that fits
    text = page.browser.find("#provenance").text
    assert all(part in text for part in (plan.fingerprint, "worker-0", "loop_trip_count=10"))


@needs_chromium
def test_the_timeline_zooms_and_pans(page: Page) -> None:
    total = page.end_ns
    assert page.view() == (0, total)
    width = page.browser.run("return document.querySelector('.lanes').clientWidth")
    x = 170 + (width - 170) / 4
    page.wheel(-400, x, 20, ctrlKey=True)
    begin, end = page.view()
    assert end - begin < total / 2
    at = begin + (end - begin) / 4  # what is under the pointer stays there
    assert at == pytest.approx(total / 4, rel=0.01)
    page.wheel(100, 400, 20)  # without a key the page scrolls
    assert page.view() == (begin, end)
    page.wheel(100, 400, 20, shiftKey=True)
    assert page.view()[0] > begin
    assert page.view()[1] - page.view()[0] == pytest.approx(end - begin)
    for _ in range(60):
        page.wheel(-400, x, 20, ctrlKey=True)
    begin, end = page.view()
    assert end - begin == pytest.approx(20, abs=0.01)  # nanoseconds
    page.browser.find("[data-action=fit]").click()
    page.browser.wait_for_frame()
    assert page.view() == (0, total)
    page.browser.find("[data-action=in]").click()
    page.browser.wait_for_frame()
    assert page.view()[1] - page.view()[0] == pytest.approx(total / 2)
    page.browser.press(".lanes", "-", "-", "-")
    assert page.view() == (0, total)
    assert f"of {page.browser.find('#default-time').text}" in page.browser.find(".range").text
    page.browser.find("[data-action=plan]").click()
    page.browser.wait_for_frame()
    assert page.view() == (0, page.step.trace.makespan_ns)
    assert page.browser.log() == []


def in_page(start_ns: int, finish_ns: int) -> str:
    """When a span is, as draw.js writes it."""

    def text(duration_ns: int) -> str:
        for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
            if duration_ns >= size:
                return f"{duration_ns / size:.3g} {unit}"
        return f"{duration_ns} ns"

    return f"from {text(start_ns)}, takes {text(finish_ns - start_ns)}"


@needs_chromium
def test_every_op_can_be_reached_by_keyboard(page: Page) -> None:
    problem, trace = page.step.problem, page.step.trace
    seen = page.browser.run(
        """
        const lanes = document.querySelector(".lanes");
        const details = document.querySelector(".details");
        const press = (key) => lanes.dispatchEvent(new KeyboardEvent("keydown", { key }));
        const seen = [];
        for (let row = 0; row < 20; row++) {
          for (let i = 0; i < arguments[0]; i++) press("[");
          for (let i = 0; i < arguments[0]; i++) { seen.push(details.textContent); press("]"); }
          press("ArrowDown");
        }
        for (let row = 0; row < 20; row++) press("ArrowUp");
        return seen;
        """,
        problem.num_ops + len(trace.transfers),
    )
    names = short_names(problem.device_names)
    lines = {line.removeprefix(f"{name}: ") for line in seen for name in [*names, ""]}
    for op, name in enumerate(problem.op_names):
        text = f"{name} · {problem.op_types[op]} on {names[page.step.placement[op]]} · "
        text += in_page(trace.start_ns[op], trace.finish_ns[op])
        assert any(line.startswith(text) for line in lines), text
    for sent in trace.transfers:
        text = f"{names[sent['src_device']]} to {names[sent['dst_device']]} over "
        text += problem.channel_names[sent["channel"]]
        text += f" · {in_page(sent['start_ns'], sent['carried_ns'])}"
        assert any(text in line for line in lines), text
    page.browser.press(".lanes", "]", "\ue007")  # Enter
    begin, end = page.view()
    assert end - begin < trace.makespan_ns


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_ops_are_drawn_where_and_in_the_colour_of_their_device(page: Page, dark: bool) -> None:
    page.browser.open(page.path, dark=dark)
    trace, placement = page.step.trace, page.step.placement
    longest = int(np.argmax(trace.finish_ns - trace.start_ns))
    middle = (trace.start_ns[longest] + trace.finish_ns[longest]) / 2 / page.end_ns
    found = page.browser.run(
        """
        const [middle, device] = arguments, lanes = document.querySelector(".lanes");
        const style = getComputedStyle(document.documentElement);
        const swatch = document.querySelectorAll("#graph .legend i")[device];
        const x = Math.round(170 + middle * (lanes.clientWidth - 170));
        const column = lanes.getContext("2d").getImageData(x, 0, 1, lanes.height).data;
        const colours = new Set();
        for (let y = 0; y < lanes.height; y++) {
          const [r, g, b, a] = column.slice(4 * y, 4 * y + 4);
          if (a === 255) colours.add(`rgb(${r}, ${g}, ${b})`);
        }
        return [[...colours], getComputedStyle(swatch).backgroundColor,
                getComputedStyle(document.body).backgroundColor, style.getPropertyValue("--c0")];
        """,
        float(middle), int(placement[longest]),
    )  # fmt: skip
    colours, own, background, first_hue = found
    assert own in colours
    assert (background == "rgb(13, 13, 13)") == dark
    assert first_hue.strip() == ("#4154d0" if dark else "#178afe")
    assert page.browser.log() == []


@needs_chromium
def test_search_counts_and_marks(page: Page) -> None:
    problem = page.step.problem
    wanted = [
        name for name, kind in zip(problem.op_names, problem.op_types, strict=True)
        if "matmul" in name.lower() or "matmul" in kind.lower()
    ]  # fmt: skip
    page.browser.press(FIND, "matmul")
    assert page.browser.find(".found").text == f"{len(wanted)} ops"
    page.browser.find(FIND).clear()
    page.browser.press(FIND, " ")
    assert page.browser.find(".found").text == ""


@needs_chromium
def test_both_timelines_show_the_same_part(page: Page) -> None:
    titles = page.browser.texts(".step h3")
    assert titles == ["This plan 1.11 ms a step", "TensorFlow's own placement 9.42 ms a step"]
    page.wheel(-400, 500, 20, ctrlKey=True, timeline=1)
    begin, end = page.view(0)
    assert (begin, end) == page.view(1)
    assert end - begin < page.end_ns / 2
    page.browser.press(".step:last-child .lanes", "\ue012")  # left
    assert page.view(0) == page.view(1) != (begin, end)
    assert page.browser.log() == []


@needs_chromium
def test_the_critical_path_and_transfers_can_be_hidden(page: Page) -> None:
    page.browser.find("[data-action=plan]").click()
    page.browser.wait_for_frame()
    before = page.picture(0)
    for shown in ("path", "transfers"):
        box = page.browser.find(f"[data-shows={shown}]")
        box.click()
        page.browser.wait_for_frame()
        assert page.picture(0) != before
        box.click()
        page.browser.wait_for_frame()
        assert page.picture(0) == before


@needs_chromium
def test_an_op_is_marked_in_both_timelines(page: Page) -> None:
    pictures = [page.picture(i) for i in (0, 1)]
    page.browser.press(".lanes", "]", "\ue00c")  # and Escape
    page.browser.run("document.activeElement.blur()")
    page.browser.wait_for_frame()
    assert [page.picture(i) for i in (0, 1)] == pictures
    page.browser.press(".lanes", "]")
    assert all(page.picture(i) != pictures[i] for i in (0, 1))


@needs_chromium
def test_the_waits_of_devices_add_up(page: Page) -> None:
    rows = page.browser.run(
        "return [...document.querySelectorAll('#waits tbody tr')].map(row => ["
        "[...row.querySelectorAll('.number')].map(cell => +cell.dataset.value),"
        "[...row.querySelectorAll('.parts i')].map(i => i.getBoundingClientRect().width),"
        "row.querySelector('.parts').getBoundingClientRect().width])"
    )
    waits, step_ns = page.step.waits, page.step.trace.makespan_ns
    for device, (figures, widths, whole) in zip(waits, rows, strict=True):
        assert figures[0] == pytest.approx(device.computes_ns / step_ns, abs=1e-6)
        assert sum(figures) == pytest.approx(1, abs=1e-5)
        assert widths == pytest.approx([share * whole for share in figures if share], abs=0.6)
    legend = page.browser.run(
        "return [...document.querySelectorAll('.step .busy')].map(list => list.textContent)"
    )
    assert f"GPU:0 {waits[1].computes_ns / step_ns:.1%}" in legend[0]
    assert "CPU:0 100.0%" in legend[1]


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_a_narrow_page_needs_no_scrolling_sideways(page: Page, dark: bool) -> None:
    page.browser.resize(NARROW)
    try:
        page.browser.open(page.path, dark=dark)
        assert page.browser.run("return document.documentElement.scrollWidth") == NARROW
        assert page.browser.find(".step .busy").is_displayed()
        tall = page.browser.run(
            "return [...document.querySelectorAll('th[scope=row]')].filter(cell => {"
            "const text = document.createRange(); text.selectNodeContents(cell);"
            "return text.getBoundingClientRect().height > 80;}).map(cell => cell.textContent)"
        )
        assert tall == []  # names are not broken into letters
    finally:
        page.browser.resize(*LAPTOP)
    page.browser.open(page.path)
    assert not page.browser.find(".step .busy").is_displayed()


@needs_chromium
def test_scopes_open_and_close(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    def rows() -> dict[str, tuple[int, int]]:
        found = page.browser.run(
            "return [...document.querySelectorAll('.scopes tbody tr')].map(row => "
            "[row.children[0].textContent, ...[1, 2].map(i => +row.children[i].dataset.value)])"
        )
        return {name: (ops, busy_ns) for name, ops, busy_ns in found}

    problem, trace = page.step.problem, page.step.trace
    closed = rows()
    assert sum(ops for ops, _ in closed.values()) == problem.num_ops
    total_ns = int((trace.finish_ns - trace.start_ns).sum())
    assert sum(busy_ns for _, busy_ns in closed.values()) == total_ns
    boxes = len(page.browser.texts(".graph-view g"))
    assert boxes == len(closed)
    scope = next(name for name, (ops, _) in closed.items() if ops > 1)
    button = ".scopes button[aria-expanded=false]"
    page.browser.press(button, Keys.ENTER)
    opened = rows()
    inside = opened.keys() - closed.keys()
    assert sum(opened[name][0] for name in inside) == closed[scope][0]
    assert len(page.browser.texts(".graph-view g")) == boxes - 1 + len(inside)
    assert page.browser.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
    page.browser.press(".scopes button[aria-expanded=true]", Keys.ENTER)
    assert rows() == closed
    page.browser.press(".graph-view .opens", Keys.ENTER)
    assert len(rows()) > len(closed)
    assert page.browser.log() == []


@needs_chromium
def test_print_is_light_and_complete(page: Page) -> None:
    page.browser.open(page.path, dark=True)
    pdf = base64.b64decode(page.browser.driver.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000
    colours = page.browser.run(
        """
        const style = getComputedStyle(document.documentElement);
        const read = () => style.getPropertyValue("--c0").trim();
        const before = read();
        window.dispatchEvent(new Event("beforeprint"));
        const printed = read();
        window.dispatchEvent(new Event("afterprint"));
        return [before, printed, read()];
        """
    )
    assert colours == ["#4154d0", "#178afe", "#4154d0"]
    assert page.browser.log() == []


@needs_chromium
def test_paper_shows_the_timelines_and_no_buttons(page: Page) -> None:
    page.browser.run("window.dispatchEvent(new Event('beforeprint'))")
    page.browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        shown = page.browser.run(
            """
            const sizes = [...document.querySelectorAll(".lanes, .memory")].map((canvas) => {
              const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              const colours = new Set(new Uint32Array(data.data.buffer));
              return [canvas.clientWidth, canvas.width, colours.size];
            });
            return [sizes, getComputedStyle(document.querySelector(".toolbar button")).display];
            """
        )
    finally:
        page.browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    sizes, buttons = shown
    assert buttons == "none"
    assert len(sizes) == 3
    for wide, pixels, colours in sizes:
        assert wide > 300
        assert pixels == 1440  # twice as many as a sheet of paper has CSS pixels
        assert colours > 5


@needs_chromium
def test_names_are_never_markup(chromium: Browser, tmp_path: Path) -> None:
    document = json.loads(GOLDEN.read_text())
    evil = "<img src=x onerror=window.hit=1></script><script>window.hit=1</script>"
    document["ops"][0]["name"] = f"a{evil}/b"
    document["devices"][1]["name"] += evil
    problem = problem_from_dict(document)
    plan = plan_of(
        problem,
        get_planner("round_robin").plan(problem).placement,
        label=evil,
        assumptions=[evil],
        host=evil,
    )
    chromium.open(written(plan, tmp_path))
    assert chromium.run("return window.hit || 0") == 0
    assert chromium.log() == []
    assert chromium.find("h1").text == evil
    chromium.press(FIND, "onerror")
    assert chromium.find(".found").text == "1 ops"


@needs_chromium
def test_plans_that_do_not_fit_or_have_no_step(chromium: Browser, tmp_path: Path) -> None:
    document = json.loads(GOLDEN.read_text())
    for device in document["devices"]:
        device["memory_bytes"] = 1
    problem = problem_from_dict(document)
    chromium.open(written(plan_of(problem, [0] * problem.num_ops), tmp_path))
    assert "Does not fit: device '/device:CPU:0' needs" in chromium.find("#summary").text
    assert "does not search step by step" in chromium.find("#learning").text

    document["links"] = []
    problem = problem_from_dict(document)
    placement = np.arange(problem.num_ops) % 3
    chromium.open(written(plan_of(problem, placement), tmp_path))
    assert "no link leads there" in chromium.find("#summary").text
    assert not chromium.find("#timeline").is_displayed()
    assert chromium.log() == []


@needs_chromium
def test_another_step_time_than_the_plan_states_is_told(chromium: Browser, tmp_path: Path) -> None:
    problem = load_problem_file(GOLDEN)
    plan = plan_of(problem, [0] * problem.num_ops, step_time_ns=1)
    write_report(simulate_plan(plan), plan, tmp_path / "report.html")
    chromium.open(tmp_path / "report.html")
    assert "The plan states 1 ns, this simulation gives" in chromium.find("#summary").text


NUM_FRAMES = 60
# Zooms and pans over most of the step, one wheel event per frame.
FRAMES = """
const lanes = document.querySelector(".lanes"), box = lanes.getBoundingClientRect();
const queue = [], { requestAnimationFrame } = window;
window.requestAnimationFrame = (callback) => queue.push(callback);
for (let i = 0; i < arguments[0]; i++) {
  lanes.dispatchEvent(new WheelEvent("wheel", { deltaY: [-100, 60, 100, -60][i % 4],
    ctrlKey: i % 2 === 0, shiftKey: i % 2 === 1, clientX: box.left + 500, clientY: box.top + 20,
    cancelable: true }));
  if (queue.length !== 1) throw new Error(`${queue.length} frames are asked for`);
  queue.pop()();
  lanes.getContext("2d").getImageData(0, 0, 1, 1); // waits until it is drawn
}
window.requestAnimationFrame = requestAnimationFrame;
"""


@needs_chromium
def test_fifty_thousand_ops(chromium: Browser, tmp_path: Path) -> None:
    problem = large_problem(50_000)
    problem = problem.replace(default_device=np.ones(problem.num_ops, np.int32))
    path = written(plan_of(problem, get_planner("etf").plan(problem).placement), tmp_path)
    assert path.stat().st_size < 1_500_000
    chromium.open(path)
    for _ in ("without the critical path", "with it"):
        chromium.wait_for_frame()
        start_s = chromium.processor_s()
        chromium.run(FRAMES, NUM_FRAMES)
        frame_s = (chromium.processor_s() - start_s) / NUM_FRAMES
        assert frame_s < 0.02  # 0.005; 0.06 if every op is drawn
        chromium.find("[data-shows=path]").click()
    assert chromium.log() == []
