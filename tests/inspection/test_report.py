"""The HTML report: its data, its figures, and the page in a real Chromium."""

from __future__ import annotations

import base64
import json
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
from hplacer_optimizer.inspection.report.baselines import BASELINES, simulate_baselines
from hplacer_optimizer.inspection.report.columns import Columns
from hplacer_optimizer.inspection.report.document import pack_step
from hplacer_optimizer.inspection.simulated_step import SimulatedStep
from hplacer_optimizer.planners import get_planner
from hplacer_optimizer.plans.plan import Plan
from hplacer_optimizer.plans.simulation import simulate_plan
from hplacer_optimizer.problem.files import load_problem_file
from tests.browser import LAPTOP, Browser, browser, missing
from tests.documents import problem_from_dict
from tests.large_problem import large_problem
from tests.planned import plan_of
from tests.random_problems import placed_problems

GOLDEN = Path(__file__).parents[1] / "golden" / "two_towers.hplacer.json"
CURVE = [
    {"steps": step, "best_ns": best, "placements": 8 * step, "mean_ns": mean, "infeasible": 0.0}
    for step, best, mean in ((1, None, None), (2, 9_000_000, 9.5e6), (5, 4_000_000, 7.25e6))
]
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
            begin = 4 + size + value["at"]
            assert begin % 8 == 0
            found = np.frombuffer(data, dtype, value["length"], begin)
            return np.cumsum(found) if value.get("delta") else found
        return {key: resolve(item) for key, item in value.items()}

    document: dict[str, Any] = resolve(json.loads(data[4 : 4 + size]))
    return document


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_the_data_are_those_of_the_trace(case: tuple[dict[str, Any], list[int]]) -> None:
    document, placement = case
    problem = problem_from_dict(document)
    trace = hp.simulate(problem, placement)
    assume(trace.has_trace)
    step = unpack(pack_step(problem, np.array(placement, np.int32), trace))
    spans, begin, ops, sends = step["spans"], 0, {}, {}
    for lane in step["lanes"]:
        free = 0
        for i in range(begin, lane["end"]):
            item, start = int(spans["item"][i]), int(spans["start"][i])
            assert start >= free
            free = start + int(spans["duration"][i])
            if "device" in lane:
                ops[item] = (lane["device"], start, free)
            else:
                sends[item] = (lane["channel"], start, free)
        begin = lane["end"]
    times = zip(placement, trace.start_ns.tolist(), trace.finish_ns.tolist(), strict=True)
    assert ops == dict(enumerate(times))
    assert sends == {
        i: (problem.channel_names[x["channel"]], x["start_ns"], x["carried_ns"])
        for i, x in enumerate(trace.transfers)
    }
    for device, held in enumerate(step["memory"]):
        assert max(held["bytes"], default=0) == trace.peak_bytes[device]


def test_scopes_edges_and_names() -> None:
    problem = load_problem_file(GOLDEN)
    placement = get_planner("etf").plan(problem).placement
    step = unpack(pack_step(problem, placement, hp.simulate(problem, placement)))

    def path(scope: int) -> str:
        entry = step["scopes"][scope]
        return "" if scope == 0 else path(entry["parent"]) + entry["name"] + "/"

    ops = step["ops"]
    names = [path(s) + leaf for s, leaf in zip(ops["scope"], ops["leaf"], strict=True)]
    assert names == problem.op_names
    assert [step["types"][i] for i in ops["type"]] == problem.op_types
    edges = step["edges"]
    found = zip(edges["src"].tolist(), edges["dst"].tolist(), edges["bytes"].tolist(), strict=True)
    sizes = dict.fromkeys(map(tuple, problem.control_edges.tolist()), 0)
    for src, output, dst in problem.edges.tolist():
        size = int(problem.output_bytes[problem.output_ptr[src] + output])
        sizes[src, dst] = sizes.get((src, dst), 0) + size
    assert {(src, dst): size for src, dst, size in found} == sizes


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
    with pytest.raises(ValueError, match="not exact in JavaScript"):
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


def test_baselines_say_why_they_cannot() -> None:
    found = {row.planner: row for row in simulate_baselines(load_problem_file(GOLDEN))}
    assert tuple(found) == BASELINES
    problem = load_problem_file(GOLDEN)
    expected = hp.simulate(problem, get_planner("etf").plan(problem).placement)
    assert found["etf"].step_time_ns == expected.makespan_ns
    assert found["human_expert"].step_time_ns is None
    assert "is none of" in found["human_expert"].reason


def report_of(problem: hp.Problem, placement: Any, directory: Path) -> str:
    path = directory / "x.html"
    plan_of(problem, placement).report(path)
    return path.read_text(encoding="utf-8")


def test_the_headline_names_the_ratio_to_tensorflows_placement(tmp_path: Path) -> None:
    problem = load_problem_file(GOLDEN)
    placement = get_planner("etf").plan(problem).placement
    assert "TensorFlow's placement" not in unescape(report_of(problem, placement, tmp_path))
    placed = problem.replace(default_device=np.zeros(problem.num_ops, np.int32))
    page = unescape(report_of(placed, placement, tmp_path))
    tile = r"<dt>TensorFlow's placement \(9.42 ms\)</dt><dd id='speedup' [^>]*>8.5x</dd>"
    assert re.search(tile, page)
    assert re.search(
        r"TensorFlow's placement</th><td [^>]*data-value=\"942\d+\">9.42 ms</td>", page
    )
    memory = problem.device_memory_bytes.copy()
    memory[0] = 1_000_000
    page = unescape(report_of(placed.replace(device_memory_bytes=memory), placement, tmp_path))
    assert "TensorFlow's placement does not fit into memory." in page
    assert "id='speedup'" not in page


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

    def value(self, selector: str) -> float:
        return float(self.browser.find(selector).get_attribute("data-value"))

    def view(self) -> tuple[float, float]:
        found = self.browser.run(
            "const { dataset } = document.querySelector('.lanes');"
            "return [dataset.fromNs, dataset.toNs]"
        )
        return float(found[0]), float(found[1])

    def wheel(self, delta: float, x: float, y: float, **keys: bool) -> None:
        """Turns the wheel at a place of the timeline."""
        self.browser.run(
            """
            const lanes = document.querySelector(".lanes"), box = lanes.getBoundingClientRect();
            const [deltaY, x, y, keys] = arguments;
            lanes.dispatchEvent(new WheelEvent("wheel", {
              deltaY, clientX: box.left + x, clientY: box.top + y, cancelable: true, bubbles: true,
              ...keys }));
            """,
            delta, x, y, keys,
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
    assert page.browser.find("#term").text == plan.lower_bound_term
    rows = [
        [float(value) for value in row]
        for row in page.browser.run(
            "return [...document.querySelectorAll('#loads tbody tr')]"
            ".map(row => [...row.querySelectorAll('td')].map(cell => cell.dataset.value))"
        )
    ]
    devices = device_loads(problem, page.step.placement, trace)
    expected = [
        [load.ops, pytest.approx(load.busy, abs=1e-6), load.peak_bytes, load.memory_bytes]
        for load in devices
    ] + [
        [load.transfers, load.bytes, pytest.approx(load.busy, abs=1e-6)]
        for load in channel_loads(problem, trace)
    ]
    assert rows == expected
    own = page.browser.run(
        "return [...document.querySelectorAll('#baselines tr')].slice(1)"
        ".map(row => [row.children[0].textContent, +row.children[1].dataset.value])"
    )
    assert own[0] == ["this plan (etf)", plan.step_time_ns]
    assert dict(own)["etf"] == plan.step_time_ns
    assert [name for name, _ in own[1:]] == list(BASELINES)
    points = page.browser.find("#learning .best").get_attribute("points").split()
    assert len(points) == 2  # of the three, the first had none that fits
    text = page.browser.find("#provenance").text
    assert all(part in text for part in (plan.fingerprint, "worker-0", "loop_trip_count=10"))


@needs_chromium
def test_the_timeline_zooms_and_pans(page: Page) -> None:
    total = page.step.trace.makespan_ns
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
    assert f"of {page.browser.find('#step-time').text}" in page.browser.find(".range").text
    assert page.browser.log() == []


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
    for op, name in enumerate(problem.op_names):
        device = short_names(problem.device_names)[page.step.placement[op]]
        text = f"{name} · {problem.op_types[op]} on {device} · from "
        assert any(text in line for line in seen), text
    page.browser.press(".lanes", "]", "\ue007")  # Enter
    begin, end = page.view()
    assert end - begin < trace.makespan_ns


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_ops_are_drawn_where_and_in_the_colour_of_their_device(page: Page, dark: bool) -> None:
    page.browser.open(page.path, dark=dark)
    trace, placement = page.step.trace, page.step.placement
    longest = int(np.argmax(trace.finish_ns - trace.start_ns))
    middle = (trace.start_ns[longest] + trace.finish_ns[longest]) / 2 / trace.makespan_ns
    found = page.browser.run(
        """
        const [middle, device] = arguments, lanes = document.querySelector(".lanes");
        const style = getComputedStyle(document.documentElement);
        const swatch = document.querySelectorAll(".legend i")[device];
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
    page.browser.press("#timeline input", "matmul")
    assert page.browser.find(".found").text == f"{len(wanted)} ops"
    page.browser.find("#timeline input").clear()
    page.browser.press("#timeline input", " ")
    assert page.browser.find(".found").text == ""


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
    chromium.press("#timeline input", "onerror")
    assert chromium.find(".found").text == "1 ops"


@needs_chromium
def test_plans_that_do_not_fit_or_have_no_step(chromium: Browser, tmp_path: Path) -> None:
    document = json.loads(GOLDEN.read_text())
    for device in document["devices"]:
        device["memory_bytes"] = 1
    problem = problem_from_dict(document)
    chromium.open(written(plan_of(problem, [0] * problem.num_ops), tmp_path))
    assert "Does not fit: device '/device:CPU:0' needs" in chromium.find("#certificate").text
    assert "it does not search step by step" in chromium.find("#learning").text

    document["links"] = []
    problem = problem_from_dict(document)
    placement = np.arange(problem.num_ops) % 3
    chromium.open(written(plan_of(problem, placement), tmp_path))
    assert "no link leads there" in chromium.find("#certificate").text
    assert not chromium.find("#timeline").is_displayed()
    assert chromium.log() == []


@needs_chromium
def test_another_step_time_than_the_plan_states_is_told(chromium: Browser, tmp_path: Path) -> None:
    problem = load_problem_file(GOLDEN)
    plan = plan_of(problem, [0] * problem.num_ops, step_time_ns=1)
    write_report(simulate_plan(plan), plan, tmp_path / "report.html")
    chromium.open(tmp_path / "report.html")
    assert "The plan states 1 ns, this simulation gives" in chromium.find("#certificate").text


@needs_chromium
def test_fifty_thousand_ops(chromium: Browser, tmp_path: Path) -> None:
    problem = large_problem(50_000)
    path = written(plan_of(problem, get_planner("round_robin").plan(problem).placement), tmp_path)
    assert path.stat().st_size < 6_000_000
    chromium.open(path)
    # The work of one frame; how many a second a busy machine shows is for the benchmark.
    times_ms = chromium.run(
        """
        const lanes = document.querySelector(".lanes"), box = lanes.getBoundingClientRect();
        const queue = [], times = [];
        window.requestAnimationFrame = (callback) => queue.push(callback);
        for (let i = 0; i < 40; i++) {
          lanes.dispatchEvent(new WheelEvent("wheel", { deltaY: -60, ctrlKey: true,
            clientX: box.left + 500, clientY: box.top + 20, cancelable: true }));
          const begin = performance.now();
          while (queue.length) queue.shift()();
          times.push(performance.now() - begin);
        }
        return times;
        """
    )
    assert len(times_ms) == 40
    assert np.median(times_ms) < 50
    assert chromium.log() == []
