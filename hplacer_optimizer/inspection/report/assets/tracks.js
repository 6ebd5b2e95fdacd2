// One step on a canvas: a row per device slot and per channel. Only visible spans are looked at;
// those narrower than a pixel become one bar per pixel, as high as that pixel's busy share.

const ROW = 19, GAP = 6, AXIS = 22, MERGE = 1.5, NAMED = 34, LINKED = 3;

class Tracks {
  constructor(step, view, shown) {
    Object.assign(this, { step, view, shown });
    this.matches = null; // spans that the search found, by lane
    this.selected = -1; // a span
    this.row = Math.max(0, step.lanes.findIndex((lane) => lane.begin < lane.end));
    this.firstLane = step.devices.map((_, device) => step.lanes.find((lane) => lane.device === device));
    const { of_op: ofOp, item } = step.path;
    this.pathLane = item.map((index, i) => step.laneOfSpan((ofOp[i] ? step.spanOf : step.spanOfTransfer)[index]).index);
    let y = GAP;
    for (const [i, lane] of step.lanes.entries()) {
      if (i && lane.device !== step.lanes[i - 1].device) y += GAP;
      lane.y = y;
      y += ROW;
    }
    this.height = y + GAP;
    this.build();
    view.listeners.push(() => this.draw());
  }

  build() {
    const { step } = this, title = element("h3", { id: `step-${step.index}` }, step.name);
    const time = element("span", { class: "figure" }, ` ${formatTime(step.makespan_ns)} a step`);
    title.append(time);
    const items = step.devices.map((device, index) => {
      const swatch = element("i");
      swatch.style.background = `var(${device.color})`;
      return element("li", {}, swatch, `${device.label} ${percent(step.computes[index])}`);
    });
    this.axis = element("canvas", { class: "axis", height: AXIS, "aria-hidden": "true" });
    this.canvas = element("canvas", { class: "lanes", tabindex: 0, role: "application",
      "aria-label": `Timeline of ${step.name}: one row per device slot and per connection`,
      "aria-describedby": "timeline-keys" });
    this.figure = element("div", { class: "step", role: "group", "aria-labelledby": title.id }, title,
      element("ul", { class: "legend busy", "aria-label": "devices and the share of the step in which they run ops" }, ...items),
      this.axis, element("div", { class: "scroller" }, this.canvas));
  }

  x(time) {
    return this.gutter + ((time - this.view.from) / (this.view.to - this.view.from)) * (this.width - this.gutter);
  }

  time(x) {
    return this.view.from + ((x - this.gutter) / (this.width - this.gutter)) * (this.view.to - this.view.from);
  }

  draw() {
    const { context, width, gutter } = prepare(this.canvas, this.height);
    Object.assign(this, { width, gutter });
    this.style = Object.fromEntries(["ink", "ink-2", "grid", "surface", "focus", "channel"].map((name) => [name, color(`--${name}`)]));
    this.drawAxis();
    for (const lane of this.step.lanes) this.drawLabel(context, lane);
    context.save();
    context.beginPath();
    context.rect(gutter, 0, width - gutter, this.height);
    context.clip();
    const links = [];
    for (const lane of this.step.lanes) this.drawLane(context, lane, links);
    this.drawEnd(context);
    if (this.shown.transfers) this.drawTransfers(context, links, this.style["ink-2"], 0.5);
    if (this.shown.path) this.drawPath(context);
    if (this.selected >= 0) this.drawSelection(context);
    context.restore();
    Object.assign(this.canvas.dataset, { fromNs: this.view.from, toNs: this.view.to });
  }

  drawAxis() {
    const { context, width, height, gutter } = prepare(this.axis, AXIS);
    const { step, found } = ticks(this.view.from, this.view.to, Math.max(2, (width - gutter) / 110));
    context.fillStyle = color("--ink-2");
    context.strokeStyle = color("--axis");
    context.textAlign = "center";
    for (const [i, label] of tickLabels({ step, found }).entries()) {
      const x = Math.round(this.x(found[i])) + 0.5;
      context.fillText(label, Math.min(Math.max(x, gutter + 14), width - 26), 8);
      context.beginPath();
      context.moveTo(x, height - 6);
      context.lineTo(x, height);
      context.stroke();
    }
    if (gutter < WIDE_GUTTER) return;
    context.textAlign = "left";
    context.fillText("device", SWATCH, 8);
    context.textAlign = "right";
    context.fillText("busy", gutter - 8, 8);
  }

  drawLabel(context, lane) {
    const isCurrent = lane.index === this.row && document.activeElement === this.canvas;
    const y = lane.y + ROW / 2, isWide = this.gutter >= WIDE_GUTTER;
    context.fillStyle = color(this.colorOf(lane));
    context.fillRect(0, y - 5, 10, 10);
    context.fillStyle = this.style[isCurrent ? "ink" : "ink-2"];
    context.textAlign = "left";
    context.fillText(fit(context, lane.label, this.gutter - SWATCH - (isWide ? 52 : 6)), SWATCH, y);
    context.textAlign = "right";
    if (isWide) context.fillText(percent(lane.busyShare), this.gutter - 8, y);
    context.textAlign = "left";
    context.fillStyle = this.style.grid;
    context.fillRect(this.gutter, lane.y + ROW - 2, this.width - this.gutter, 1);
  }

  colorOf(lane) { return lane.isDevice ? this.step.devices[lane.device].color : "--channel"; }

  drawLane(context, lane, links) {
    context.fillStyle = color(this.colorOf(lane));
    context.globalAlpha = this.matches ? 0.25 : 1;
    const labels = [];
    this.paint(context, lane, labels, links);
    context.globalAlpha = 1;
    if (this.matches) this.paintMatches(context, lane);
    this.paintText(context, lane, labels);
  }

  // Fills the lane's visible spans; collects those that are wide enough for a name, and transfers
  // that are wide enough for a line from device to device.
  paint(context, lane, labels, links) {
    const { start, duration, finish, busy } = this.step;
    const { from, to } = this.view;
    const scale = (this.width - this.gutter) / (to - from), full = ROW - 3;
    context.beginPath();
    let i = lowerBound(finish, from, lane.begin, lane.end);
    while (i < lane.end && start[i] < to) {
      const x = this.gutter + (start[i] - from) * scale, wide = duration[i] * scale;
      if (wide >= MERGE) {
        context.rect(x, lane.y, Math.max(wide - 0.5, 1), full);
        if (wide > NAMED) labels.push(i);
        if (wide > LINKED && !lane.isDevice) links.push(i);
        i++;
        continue;
      }
      const pixel = Math.floor(x);
      let next = lowerBound(start, from + (pixel + 1 - this.gutter) / scale, i + 1, lane.end);
      // The last one that begins in this pixel may be a long one.
      if (next - 1 > i && duration[next - 1] * scale >= MERGE) next--;
      const share = Math.min(1, (busy[next] - busy[i]) * scale);
      const high = Math.max(2, full * share);
      context.rect(pixel, lane.y + full - high, 1, high);
      i = next;
    }
    context.fill();
  }

  paintMatches(context, lane) {
    const found = this.matches[lane.index], { start, duration } = this.step;
    const scale = (this.width - this.gutter) / (this.view.to - this.view.from);
    let last = -1;
    context.beginPath();
    for (const i of found) {
      if (this.step.finish[i] < this.view.from || start[i] > this.view.to) continue;
      const x = this.gutter + (start[i] - this.view.from) * scale, wide = Math.max(duration[i] * scale, 2);
      if (x + wide < last + 1) continue;
      context.rect(x, lane.y, wide, ROW - 3);
      last = x + wide;
    }
    context.fill();
  }

  paintText(context, lane, labels) {
    const { step } = this;
    context.fillStyle = textOn(context.fillStyle);
    for (const i of labels) {
      const left = Math.max(this.x(step.start[i]), this.gutter);
      const right = Math.min(this.x(step.finish[i]), this.width);
      if (right - left < NAMED) continue;
      const item = step.item[i];
      const text = lane.isDevice ? step.graph.ops.leaf[item]
        : `${formatBytes(step.transferBytes(item))} ${step.tensorName(item)}`;
      context.fillText(fit(context, text, right - left - 8), left + 4, lane.y + (ROW - 3) / 2 + 0.5);
    }
  }

  // What comes after the end of this step, where the other one lasts longer.
  drawEnd(context) {
    const x = this.x(this.step.makespan_ns);
    if (x >= this.width - 1) return;
    context.globalAlpha = 0.5;
    context.fillStyle = this.style.grid;
    context.fillRect(x, 0, this.width - x, this.height);
    context.globalAlpha = 1;
    context.fillStyle = this.style["ink-2"];
    context.fillRect(x, 0, 1, this.height);
    const earlier = `ends ${formatTime(this.view.end - this.step.makespan_ns)} earlier`;
    const text = fit(context, earlier, this.width - x - 16);
    if (text === earlier) context.fillText(text, x + 8, GAP + ROW / 2);
  }

  // A line from where a tensor was made to where it arrives, for each of these spans.
  drawTransfers(context, spans, stroke, alpha) {
    const { step } = this, middle = (ROW - 3) / 2;
    context.globalAlpha = alpha;
    context.strokeStyle = context.fillStyle = stroke;
    context.lineWidth = 1;
    for (const span of spans) {
      const transfer = step.item[span], made = step.spanOf[step.transfers.src_op[transfer]];
      const from = step.laneOfSpan(made), to = this.firstLane[step.transfers.dst_device[transfer]];
      const [x, y] = [this.x(step.finish[span]), to.y + middle];
      context.beginPath();
      context.moveTo(this.x(step.finish[made]), from.y + middle);
      context.lineTo(x, y);
      context.stroke();
      context.beginPath();
      context.arc(x, y, 2, 0, 2 * Math.PI);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  // One line through all rows, thin where it changes rows; stages of one pixel become one stroke.
  drawPath(context) {
    const { begin } = this.step.path, { lanes } = this.step, count = begin.length;
    const y = (i) => lanes[this.pathLane[i]].y + (ROW - 3) / 2;
    const x = (i) => this.x(i < count ? begin[i] : this.step.makespan_ns);
    const rows = new Path2D(), changes = new Path2D();
    let before = null;
    for (let i = Math.max(0, lowerBound(begin, this.view.from, 0, count) - 1); i < count && begin[i] < this.view.to;) {
      const left = x(i), at = [before ?? y(i), y(i)];
      let next = i + 1;
      for (; next < count && x(next) < left + 1; next++) at.push(y(next));
      changes.moveTo(left, Math.min(...at));
      changes.lineTo(left, Math.max(...at));
      before = at.at(-1);
      rows.moveTo(left, before);
      rows.lineTo(Math.max(x(next), left + 1), before);
      i = next;
    }
    for (const [path, width, stroke] of [[changes, 1, this.style.ink], [rows, 5, this.style.surface], [rows, 2.5, this.style.ink]]) {
      context.lineWidth = width;
      context.strokeStyle = stroke;
      context.stroke(path);
    }
  }

  drawSelection(context) {
    const { step, selected } = this, lane = step.laneOfSpan(selected);
    this.drawTransfers(context, lane.isDevice ? this.sentBy(step.item[selected]) : [selected], this.style.focus, 1);
    const left = this.x(step.start[selected]), right = this.x(step.finish[selected]);
    context.strokeStyle = this.style.ink;
    context.lineWidth = 2;
    context.strokeRect(left - 1, lane.y - 1, Math.max(right - left, 2) + 2, ROW - 1);
  }

  // ---- what is where ----

  // The spans of the transfers of an op's outputs.
  sentBy(op) {
    const { src_op: src } = this.step.transfers, found = [];
    for (let i = lowerBound(src, op, 0, src.length); src[i] === op; i++) found.push(this.step.spanOfTransfer[i]);
    return found;
  }

  laneAt(y) { return this.step.lanes.find((lane) => y >= lane.y - 1 && y < lane.y + ROW - 1); }

  // The span under the pointer; of several in one pixel the longest.
  spanAt(x, y) {
    const lane = this.laneAt(y);
    if (!lane || x < this.gutter) return { span: -1, count: 0 };
    const { start, duration, finish } = this.step;
    const first = lowerBound(finish, this.time(x - 1), lane.begin, lane.end);
    const last = lowerBound(start, this.time(x + 1), first, lane.end);
    let best = -1;
    for (let i = first; i < last; i++) if (best < 0 || duration[i] > duration[best]) best = i;
    return { span: best, count: last - first };
  }

  // The name of a span, then lines about it.
  describe(span) {
    const { step } = this, { graph } = step, item = step.item[span], lane = step.laneOfSpan(span);
    const when = `from ${formatTime(step.start[span])}, takes ${formatTime(step.duration[span])}`;
    if (lane.isDevice) {
      const persistent = graph.ops.persistent_bytes[item];
      const holds = persistent ? `, ${formatBytes(persistent)} persistent` : "";
      return [graph.opName(item), `${graph.opType(item)} on ${step.deviceOf(item).label}`, when,
        `outputs ${formatBytes(graph.outputBytes(item))}${holds}`];
    }
    const [src, dst] = [step.srcDevice(item), step.transfers.dst_device[item]].map((device) => step.devices[device].label);
    return [step.tensorName(item), `${src} to ${dst} over ${lane.channel}`, when, formatBytes(step.transferBytes(item))];
  }

  // Marks the spans of these ops and of what they send.
  mark(hit) {
    const { step } = this;
    this.matches = hit && step.lanes.map((lane) => {
      const found = [];
      for (let i = lane.begin; i < lane.end; i++) {
        if (hit[lane.isDevice ? step.item[i] : step.transfers.src_op[step.item[i]]]) found.push(i);
      }
      return found;
    });
  }
}

// Black or white, whichever reads better on a colour given as #rrggbb.
function textOn(background) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(background.slice(at, at + 2), 16) / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
}
