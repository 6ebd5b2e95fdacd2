// The step on a canvas: a row per device slot and per channel. Only visible spans are looked at;
// those narrower than a pixel become one bar per pixel, as high as that pixel's busy share.

const GUTTER = 170, ROW = 19, GAP = 6, MERGE = 1.5;

class Timeline {
  constructor(root, step, view) {
    Object.assign(this, { root, step, view });
    this.axis = root.querySelector(".axis");
    this.canvas = root.querySelector(".lanes");
    this.details = root.querySelector(".details");
    this.range = root.querySelector(".range");
    this.matches = null; // spans that the search found, by lane
    this.selected = -1; // a span
    this.row = Math.max(0, step.lanes.findIndex((lane) => lane.begin < lane.end));
    let y = GAP;
    for (const [i, lane] of step.lanes.entries()) {
      if (i && (lane.device !== step.lanes[i - 1].device)) y += GAP;
      lane.y = y;
      y += ROW;
    }
    this.height = y + GAP;
    view.listeners.push(() => this.draw());
    this.listen();
  }

  x(time) { return GUTTER + ((time - this.view.from) / (this.view.to - this.view.from)) * (this.width - GUTTER); }

  time(x) { return this.view.from + ((x - GUTTER) / (this.width - GUTTER)) * (this.view.to - this.view.from); }

  draw() {
    const { context, width } = prepare(this.canvas, this.height);
    this.width = width;
    this.drawAxis();
    const style = { ink: color("--ink"), muted: color("--ink-2"), grid: color("--grid"), surface: color("--surface") };
    for (const lane of this.step.lanes) this.drawLabel(context, lane, style);
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, width - GUTTER, this.height);
    context.clip();
    for (const lane of this.step.lanes) this.drawLane(context, lane, style);
    if (this.selected >= 0) this.drawSelection(context, style);
    context.restore();
    const share = (this.view.to - this.view.from) / this.view.end;
    this.range.textContent = `${formatTime(this.view.from)} to ${formatTime(this.view.to)} of `
      + `${formatTime(this.step.makespan_ns)} (${trim(share * 100)}%)`;
    Object.assign(this.canvas.dataset, { fromNs: this.view.from, toNs: this.view.to });
  }

  drawAxis() {
    const { context, width, height } = prepare(this.axis, 22);
    const { step, found } = ticks(this.view.from, this.view.to, Math.max(2, (width - GUTTER) / 110));
    context.fillStyle = color("--ink-2");
    context.strokeStyle = color("--axis");
    context.textAlign = "center";
    for (const [i, label] of tickLabels({ step, found }).entries()) {
      const x = Math.round(this.x(found[i])) + 0.5;
      context.fillText(label, Math.min(Math.max(x, GUTTER + 14), width - 26), 8);
      context.beginPath();
      context.moveTo(x, height - 6);
      context.lineTo(x, height);
      context.stroke();
    }
    context.textAlign = "left";
    context.fillText("device, busy share", 0, 8);
  }

  drawLabel(context, lane, style) {
    context.fillStyle = lane.index === this.row && document.activeElement === this.canvas ? style.ink : style.muted;
    const share = `${(lane.busyShare * 100).toFixed(1)}%`;
    const y = lane.y + ROW / 2;
    context.textAlign = "left";
    context.fillText(fit(context, lane.label, GUTTER - 58), 0, y);
    context.textAlign = "right";
    context.fillText(share, GUTTER - 8, y);
    context.textAlign = "left";
    context.fillStyle = style.grid;
    context.fillRect(GUTTER, lane.y + ROW - 2, this.width - GUTTER, 1);
  }

  drawLane(context, lane, style) {
    const name = "device" in lane ? this.step.devices[lane.device].color : "--channel";
    context.fillStyle = color(name);
    context.globalAlpha = this.matches ? 0.25 : 1;
    const labels = [];
    this.paint(context, lane, labels);
    context.globalAlpha = 1;
    if (this.matches) this.paintMatches(context, lane);
    this.paintText(context, lane, labels, style);
  }

  // Fills the lane's visible spans; collects those that are wide enough for a name.
  paint(context, lane, labels) {
    const { start, duration } = this.step.spans;
    const { finish, busy } = this.step;
    const { from, to } = this.view;
    const scale = (this.width - GUTTER) / (to - from), full = ROW - 3;
    context.beginPath();
    let i = lowerBound(finish, from, lane.begin, lane.end);
    while (i < lane.end && start[i] < to) {
      const x = GUTTER + (start[i] - from) * scale, wide = duration[i] * scale;
      if (wide >= MERGE) {
        context.rect(x, lane.y, Math.max(wide - 0.5, 1), full);
        if (wide > 34) labels.push(i);
        i++;
        continue;
      }
      const pixel = Math.floor(x);
      const next = lowerBound(start, from + (pixel + 1 - GUTTER) / scale, i + 1, lane.end);
      const share = Math.min(1, (busy[next] - busy[i]) * scale);
      const high = Math.max(2, full * share);
      context.rect(pixel, lane.y + full - high, 1, high);
      i = next;
    }
    context.fill();
  }

  paintMatches(context, lane) {
    const found = this.matches[lane.index], { start, duration } = this.step.spans;
    const scale = (this.width - GUTTER) / (this.view.to - this.view.from);
    let last = -1;
    context.beginPath();
    for (const i of found) {
      if (this.step.finish[i] < this.view.from || start[i] > this.view.to) continue;
      const x = GUTTER + (start[i] - this.view.from) * scale, wide = Math.max(duration[i] * scale, 2);
      if (x + wide < last + 1) continue;
      context.rect(x, lane.y, wide, ROW - 3);
      last = x + wide;
    }
    context.fill();
  }

  paintText(context, lane, labels, style) {
    context.fillStyle = textOn(context.fillStyle);
    for (const i of labels) {
      const left = Math.max(this.x(this.step.spans.start[i]), GUTTER);
      const right = Math.min(this.x(this.step.finish[i]), this.width);
      if (right - left < 34) continue;
      const item = this.step.spans.item[i];
      const text = "device" in lane ? this.step.ops.leaf[item]
        : `${formatBytes(this.step.transfers.bytes[item])} ${this.step.tensorName(item)}`;
      context.fillText(fit(context, text, right - left - 8), left + 4, lane.y + (ROW - 3) / 2 + 0.5);
    }
  }

  drawSelection(context, style) {
    const lane = this.laneOfSpan(this.selected);
    const left = this.x(this.step.spans.start[this.selected]), right = this.x(this.step.finish[this.selected]);
    context.strokeStyle = style.ink;
    context.lineWidth = 2;
    context.strokeRect(left - 1, lane.y - 1, Math.max(right - left, 2) + 2, ROW - 1);
  }

  // ---- what is where ----

  laneOfSpan(span) { return this.step.lanes.find((lane) => span < lane.end); }

  laneAt(y) { return this.step.lanes.find((lane) => y >= lane.y - 1 && y < lane.y + ROW - 1); }

  // The span under the pointer; of several in one pixel the longest.
  spanAt(x, y) {
    const lane = this.laneAt(y);
    if (!lane || x < GUTTER) return { span: -1, count: 0 };
    const { start, duration } = this.step.spans;
    const first = lowerBound(this.step.finish, this.time(x - 1), lane.begin, lane.end);
    const last = lowerBound(start, this.time(x + 1), first, lane.end);
    let best = -1;
    for (let i = first; i < last; i++) if (best < 0 || duration[i] > duration[best]) best = i;
    return { span: best, count: last - first };
  }

  // The name of a span, then lines about it.
  describe(span) {
    const { step } = this, item = step.spans.item[span], lane = this.laneOfSpan(span);
    const when = `from ${formatTime(step.spans.start[span])}, takes ${formatTime(step.spans.duration[span])}`;
    if ("device" in lane) {
      const outputs = formatBytes(step.ops.output_bytes[item]);
      const persistent = step.ops.persistent_bytes[item];
      const holds = persistent ? `, ${formatBytes(persistent)} persistent` : "";
      return [step.opName(item), `${step.opType(item)} on ${step.deviceOf(item).label}`, when, `outputs ${outputs}${holds}`];
    }
    const { src_device: src, dst_device: dst, bytes } = step.transfers;
    const ends = `${step.devices[src[item]].label} to ${step.devices[dst[item]].label} over ${lane.channel}`;
    return [step.tensorName(item), ends, when, formatBytes(bytes[item])];
  }

  // ---- input ----

  listen() {
    const { canvas, view } = this;
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    canvas.addEventListener("pointerup", (event) => this.onUp(event));
    canvas.addEventListener("pointerleave", () => tooltip.hide());
    canvas.addEventListener("dblclick", (event) => view.zoom(event.shiftKey ? 2 : 0.5, this.time(event.offsetX)));
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    for (const name of ["focus", "blur"]) canvas.addEventListener(name, () => view.redraw());
    const actions = { in: () => view.zoom(0.5), out: () => view.zoom(2), fit: () => view.set(0, view.end) };
    for (const button of this.root.querySelectorAll("[data-action]")) {
      button.addEventListener("click", actions[button.dataset.action]);
    }
    this.root.querySelector("input").addEventListener("input", (event) => this.search(event.target.value));
  }

  onWheel(event) {
    const pixels = event.deltaMode === 0 ? 1 : 20;
    if (event.ctrlKey || event.metaKey) {
      this.view.zoom(Math.exp(event.deltaY * pixels * 0.0025), this.time(event.offsetX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.view.pan(((event.deltaX || event.deltaY) * pixels) / this.width);
    } else {
      return; // the page scrolls
    }
    event.preventDefault();
  }

  onDown(event) {
    this.drag = { x: event.offsetX, from: this.view.from, moved: false };
    this.canvas.setPointerCapture(event.pointerId);
  }

  onMove(event) {
    if (this.drag) {
      const shift = event.offsetX - this.drag.x;
      if (Math.abs(shift) > 3) this.drag.moved = true;
      if (!this.drag.moved) return;
      tooltip.hide();
      const width = this.view.to - this.view.from;
      const from = this.drag.from - (shift / (this.width - GUTTER)) * width;
      const kept = Math.min(Math.max(from, 0), this.view.end - width);
      this.view.set(kept, kept + width);
      return;
    }
    const { span, count } = this.spanAt(event.offsetX, event.offsetY);
    if (span < 0) return tooltip.hide();
    const more = count > 1 ? [`longest of ${count} at this pixel`] : [];
    tooltip.show(event, [...this.describe(span), ...more]);
  }

  onUp(event) {
    if (this.drag && !this.drag.moved) this.select(this.spanAt(event.offsetX, event.offsetY).span);
    this.drag = null;
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { view } = this;
    const actions = {
      "+": () => view.zoom(0.5), "=": () => view.zoom(0.5), "-": () => view.zoom(2),
      0: () => view.set(0, view.end), Home: () => view.set(0, view.end),
      ArrowLeft: () => view.pan(-0.2), ArrowRight: () => view.pan(0.2),
      ArrowUp: () => this.moveRow(-1), ArrowDown: () => this.moveRow(1),
      "[": () => this.moveSpan(-1), "]": () => this.moveSpan(1),
      Enter: () => this.zoomToSelected(), Escape: () => this.select(-1),
    };
    if (!(event.key in actions)) return;
    actions[event.key]();
    event.preventDefault();
  }

  moveRow(by) {
    this.row = Math.min(Math.max(this.row + by, 0), this.step.lanes.length - 1);
    const lane = this.step.lanes[this.row];
    const middle = (this.view.from + this.view.to) / 2;
    const span = lowerBound(this.step.finish, middle, lane.begin, lane.end);
    this.select(lane.begin === lane.end ? -1 : Math.min(span, lane.end - 1));
    this.details.prepend(`${lane.label}: `);
  }

  moveSpan(by) {
    const lane = this.step.lanes[this.row];
    if (lane.begin === lane.end) return;
    const next = this.selected < 0 ? lane.begin : this.selected + by;
    this.select(Math.min(Math.max(next, lane.begin), lane.end - 1));
    const { start } = this.step.spans, { finish } = this.step, { view } = this;
    if (start[this.selected] > view.to || finish[this.selected] < view.from) {
      const width = view.to - view.from;
      const from = Math.min(Math.max(start[this.selected] - width / 2, 0), view.end - width);
      view.set(from, from + width);
    }
  }

  zoomToSelected() {
    if (this.selected < 0) return;
    const start = this.step.spans.start[this.selected], width = Math.max(this.step.spans.duration[this.selected], 10);
    this.view.set(start - 2 * width, start + 3 * width);
  }

  select(span) {
    this.selected = span;
    if (span >= 0) this.row = this.laneOfSpan(span).index;
    this.details.textContent = span < 0 ? "No op selected." : this.describe(span).join(" · ");
    this.view.redraw();
  }

  search(text) {
    const wanted = text.trim().toLowerCase(), { step } = this;
    const output = this.root.querySelector(".found");
    this.matches = null;
    output.textContent = "";
    if (wanted) {
      const hit = new Uint8Array(step.ops.leaf.length);
      const types = step.types.map((type) => type.toLowerCase().includes(wanted));
      let count = 0;
      for (let op = 0; op < hit.length; op++) {
        hit[op] = types[step.ops.type[op]] || step.opName(op).toLowerCase().includes(wanted);
        count += hit[op];
      }
      this.matches = step.lanes.map((lane) => {
        const found = [];
        for (let i = lane.begin; i < lane.end; i++) {
          const item = step.spans.item[i];
          if (hit["device" in lane ? item : step.transfers.src_op[item]]) found.push(i);
        }
        return found;
      });
      output.textContent = `${count} ops`;
    }
    this.view.redraw();
  }
}

// Black or white, whichever reads better on a colour given as #rrggbb.
function textOn(background) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(background.slice(at, at + 2), 16) / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
}
