// The timelines of all steps, one above the other: they show the same part of one axis of time.
// Pointer, wheel, keys and the toolbar move all of them.

class Timeline {
  constructor(root, steps, view) {
    Object.assign(this, { root, view });
    this.details = root.querySelector(".details");
    this.range = root.querySelector(".range");
    this.shown = {};
    for (const box of root.querySelectorAll("[data-shows]")) this.listenToBox(box);
    this.tracks = steps.map((step) => new Tracks(step, view, this.shown));
    root.querySelector(".steps").replaceChildren(...this.tracks.map(({ figure }) => figure));
    view.listeners.push(() => this.drawRange());
    for (const tracks of this.tracks) this.listen(tracks);
    this.listenToToolbar();
  }

  drawRange() {
    const { from, to, end } = this.view;
    this.range.textContent = `${formatTime(from)} to ${formatTime(to)} of ${formatTime(end)} (${trim((100 * (to - from)) / end)}%)`;
  }

  // ---- input ----

  listenToBox(box) {
    this.shown[box.dataset.shows] = box.checked;
    box.addEventListener("change", () => {
      this.shown[box.dataset.shows] = box.checked;
      this.view.redraw();
    });
  }

  listenToToolbar() {
    const { root, view } = this;
    const actions = {
      in: () => view.zoom(0.5), out: () => view.zoom(2), fit: () => view.set(0, view.end),
      plan: () => view.set(0, this.tracks[0].step.makespan_ns),
    };
    root.querySelector("[data-action=plan]").hidden = this.tracks.length === 1;
    for (const button of root.querySelectorAll("[data-action]")) {
      button.addEventListener("click", actions[button.dataset.action]);
    }
    root.querySelector("input[type=search]").addEventListener("input", (event) => this.search(event.target.value));
  }

  listen(tracks) {
    const { view } = this, { canvas } = tracks;
    canvas.addEventListener("wheel", (event) => this.onWheel(event, tracks), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.onDown(event, tracks));
    canvas.addEventListener("pointermove", (event) => this.onMove(event, tracks));
    canvas.addEventListener("pointerup", (event) => this.onUp(event, tracks));
    canvas.addEventListener("pointercancel", () => { this.drag = null; });
    canvas.addEventListener("pointerleave", () => tooltip.hide());
    canvas.addEventListener("dblclick", (event) => view.zoom(event.shiftKey ? 2 : 0.5, tracks.time(event.offsetX)));
    canvas.addEventListener("keydown", (event) => this.onKey(event, tracks));
    for (const name of ["focus", "blur"]) canvas.addEventListener(name, () => view.redraw());
  }

  onWheel(event, tracks) {
    const pixels = event.deltaMode === 0 ? 1 : 20;
    if (event.ctrlKey || event.metaKey) {
      this.view.zoom(Math.exp(event.deltaY * pixels * 0.0025), tracks.time(event.offsetX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.view.pan(((event.deltaX || event.deltaY) * pixels) / tracks.width);
    } else {
      return; // the page scrolls
    }
    event.preventDefault();
  }

  onDown(event, { canvas }) {
    this.drag = { x: event.offsetX, from: this.view.from, moved: false };
    canvas.setPointerCapture(event.pointerId);
  }

  onMove(event, tracks) {
    if (this.drag) {
      const shift = event.offsetX - this.drag.x;
      if (Math.abs(shift) > 3) this.drag.moved = true;
      if (!this.drag.moved) return;
      tooltip.hide();
      const share = shift / (tracks.width - tracks.gutter);
      this.view.moveTo(this.drag.from - share * (this.view.to - this.view.from));
      return;
    }
    const { span, count } = tracks.spanAt(event.offsetX, event.offsetY);
    if (span < 0) return tooltip.hide();
    const more = count > 1 ? [`longest of ${count} at this pixel`] : [];
    tooltip.show(event, [...tracks.describe(span), ...more]);
  }

  onUp(event, tracks) {
    if (this.drag && !this.drag.moved) this.select(tracks, tracks.spanAt(event.offsetX, event.offsetY).span);
    this.drag = null;
  }

  onKey(event, tracks) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { view } = this;
    const actions = {
      "+": () => view.zoom(0.5), "=": () => view.zoom(0.5), "-": () => view.zoom(2),
      0: () => view.set(0, view.end), Home: () => view.set(0, view.end),
      ArrowLeft: () => view.pan(-0.2), ArrowRight: () => view.pan(0.2),
      ArrowUp: () => this.moveRow(tracks, -1), ArrowDown: () => this.moveRow(tracks, 1),
      "[": () => this.moveSpan(tracks, -1), "]": () => this.moveSpan(tracks, 1),
      Enter: () => this.zoomToSelected(tracks), Escape: () => this.select(tracks, -1),
    };
    if (!(event.key in actions)) return;
    actions[event.key]();
    event.preventDefault();
  }

  moveRow(tracks, by) {
    const { lanes, finish } = tracks.step;
    tracks.row = Math.min(Math.max(tracks.row + by, 0), lanes.length - 1);
    const lane = lanes[tracks.row];
    const span = lowerBound(finish, (this.view.from + this.view.to) / 2, lane.begin, lane.end);
    this.select(tracks, lane.begin === lane.end ? -1 : Math.min(span, lane.end - 1));
    this.details.prepend(`${lane.label}: `);
  }

  moveSpan(tracks, by) {
    const { view } = this, { lanes, start, finish } = tracks.step, lane = lanes[tracks.row];
    if (lane.begin === lane.end) return;
    const next = tracks.selected < 0 ? lane.begin : tracks.selected + by;
    this.select(tracks, Math.min(Math.max(next, lane.begin), lane.end - 1));
    const { selected } = tracks;
    if (start[selected] > view.to || finish[selected] < view.from) {
      view.moveTo(start[selected] - (view.to - view.from) / 2);
    }
  }

  zoomToSelected({ step, selected }) {
    if (selected < 0) return;
    const start = step.start[selected], width = Math.max(step.duration[selected], 10);
    this.view.set(start - 2 * width, start + 3 * width);
  }

  // Selects a span; an op is marked in the other timelines, too.
  select(tracks, span) {
    const isOp = span >= 0 && tracks.step.laneOfSpan(span).isDevice;
    for (const other of this.tracks) {
      other.selected = isOp ? other.step.spanOf[tracks.step.item[span]] : -1;
    }
    tracks.selected = span;
    if (span >= 0) tracks.row = tracks.step.laneOfSpan(span).index;
    this.details.textContent = span < 0 ? "No op selected." : tracks.describe(span).join(" · ");
    this.view.redraw();
  }

  search(text) {
    const wanted = text.trim().toLowerCase(), { graph } = this.tracks[0].step;
    let hit = null, count = 0;
    if (wanted) {
      const types = graph.types.map((type) => type.toLowerCase().includes(wanted));
      hit = Uint8Array.from(graph.ops.leaf, (_, op) =>
        types[graph.ops.type[op]] || graph.opName(op).toLowerCase().includes(wanted));
      count = hit.reduce((sum, one) => sum + one, 0);
    }
    for (const tracks of this.tracks) tracks.mark(hit);
    this.root.querySelector(".found").textContent = wanted ? `${count} ops` : "";
    this.view.redraw();
  }
}
