// Bytes held by each device, a row each, over the part of the step that the timeline shows.

const MEMORY_ROW = 52;

class MemoryChart {
  constructor(root, step, view) {
    Object.assign(this, { root, step, view, graph: step.graph });
    this.canvas = root.querySelector(".memory");
    this.top = Math.max(...step.devices.map((device) => device.peak_bytes), 1);
    view.listeners.push(() => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.onMove(event));
    this.canvas.addEventListener("pointerleave", () => tooltip.hide());
  }

  draw() {
    const { context, width, gutter } = prepare(this.canvas, this.graph.devices.length * MEMORY_ROW + 4);
    Object.assign(this, { width, gutter });
    const style = { muted: color("--ink-2"), grid: color("--grid"), bad: color("--bad") };
    for (const [d, device] of this.graph.devices.entries()) this.drawRow(context, d, device, style);
  }

  drawRow(context, d, device, style) {
    const bottom = (d + 1) * MEMORY_ROW, high = MEMORY_ROW - 12;
    const share = device.memory_bytes ? device.peak_bytes / device.memory_bytes : 0;
    context.textAlign = "left";
    context.fillStyle = style.muted;
    context.fillText(fit(context, device.label, this.gutter - 20), 0, bottom - high + 6);
    context.fillStyle = share > 1 ? style.bad : style.muted;
    context.fillText(`peak ${formatBytes(device.peak_bytes)}`, 0, bottom - high + 20);
    const of = this.gutter < WIDE_GUTTER ? "full" : `of ${formatBytes(device.memory_bytes)}`;
    context.fillText(`${percent(share)} ${of}`, 0, bottom - high + 34);
    context.fillStyle = style.grid;
    context.fillRect(this.gutter, bottom, this.width - this.gutter, 1);
    context.fillStyle = color(device.color);
    this.fillArea(context, this.graph.memory[d], bottom, high);
    if (device.memory_bytes <= this.top) {
      context.fillStyle = style.bad;
      context.fillRect(this.gutter, bottom - (high * device.memory_bytes) / this.top, this.width - this.gutter, 1);
    }
  }

  // One bar per pixel, as high as the most that is held during it: no peak is lost.
  fillArea(context, { time, bytes }, bottom, high) {
    const { from, to } = this.view, all = Math.ceil(this.width - this.gutter), width = (to - from) / all;
    const pixels = Math.min(all, Math.ceil((this.step.makespan_ns - from) / width));
    if (pixels <= 0) return;
    let i = lowerBound(time, from, 0, time.length);
    let held = i > 0 ? bytes[i - 1] : 0;
    context.beginPath();
    context.moveTo(this.gutter, bottom);
    for (let pixel = 0; pixel < pixels; pixel++) {
      let most = held;
      const end = pixel + 1 === all ? to + 1 : from + (pixel + 1) * width;
      for (; i < time.length && time[i] < end; i++) {
        held = bytes[i];
        if (held > most) most = held;
      }
      const y = bottom - (high * most) / this.top;
      context.lineTo(this.gutter + pixel, y);
      context.lineTo(this.gutter + pixel + 1, y);
    }
    context.lineTo(this.gutter + pixels, bottom);
    context.fill();
  }

  onMove(event) {
    const d = Math.floor(event.offsetY / MEMORY_ROW), device = this.graph.devices[d];
    if (!device || event.offsetX < this.gutter) return tooltip.hide();
    const share = (event.offsetX - this.gutter) / (this.width - this.gutter);
    const now = this.view.from + share * (this.view.to - this.view.from);
    const { time, bytes } = this.graph.memory[d];
    const i = lowerBound(time, now + 1e-6, 0, time.length) - 1;
    tooltip.show(event, [device.label, `up to ${formatBytes(i < 0 ? 0 : bytes[i])} at ${formatTime(now)}`,
      `peak ${formatBytes(device.peak_bytes)} of ${formatBytes(device.memory_bytes)}`]);
  }
}
