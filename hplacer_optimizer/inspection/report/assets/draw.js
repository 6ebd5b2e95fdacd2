// What all charts share: number formats, colours of the theme, sharp canvases, axes, the tooltip.

const WIDE_GUTTER = 170, NARROW_GUTTER = 92, NARROW = 600, PRINTED = 720, SWATCH = 16; // pixels

function formatTime(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (Math.abs(ns) >= size) return `${trim(ns / size)} ${unit}`;
  }
  return `${trim(ns)} ns`;
}

function formatBytes(bytes) {
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (Math.abs(value) < 1024 || unit === "TiB") return `${trim(value)} ${unit}`;
    value /= 1024;
  }
}

function trim(value) {
  return String(Number(value.toPrecision(Math.abs(value) >= 999.5 ? 4 : 3)));
}

function percent(share) { return `${(100 * share).toFixed(1)}%`; }

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Gives the canvas one device pixel per pixel; returns its context and size in CSS pixels. Left of
// the gutter's edge stand names.
function prepare(canvas, height) {
  const isPrinted = document.documentElement.matches(".printing");
  const width = isPrinted ? PRINTED : canvas.clientWidth || canvas.parentElement.clientWidth;
  const ratio = Math.max(window.devicePixelRatio || 1, isPrinted ? 2 : 1);
  const size = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) {
    [canvas.width, canvas.height] = size;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `11px ${color("--font")}`;
  context.textBaseline = "middle";
  return { context, width, height, gutter: width < NARROW ? NARROW_GUTTER : WIDE_GUTTER };
}

// Round numbers between `from` and `to`, about `count` of them.
function ticks(from, to, count) {
  const rough = Math.max((to - from) / count, 1e-9);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) found.push(tick);
  return { step, found };
}

// Labels in one unit, with as many decimals as the step needs.
function tickLabels({ step, found }) {
  const top = Math.max(...found.map(Math.abs), step);
  const [unit, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([, s]) => top >= s) ?? ["ns", 1];
  const decimals = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  return found.map((tick) => `${(tick / size).toFixed(decimals)} ${unit}`);
}

// The longest beginning of a text that fits, with an ellipsis in its middle if it is cut.
function fit(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let low = 0;
  for (let high = text.length; low < high;) {
    const kept = (low + high + 1) >> 1;
    if (context.measureText(shorten(text, kept)).width <= width) low = kept; else high = kept - 1;
  }
  return low < 3 ? "" : shorten(text, low);
}

function shorten(text, kept) {
  if (text.length <= kept) return text;
  const tail = kept >> 1;
  return `${text.slice(0, kept - tail)}…${text.slice(text.length - tail)}`;
}

const tooltip = {
  element: document.getElementById("tooltip"),
  show(event, [title, ...lines]) {
    const bold = document.createElement("b");
    bold.textContent = title;
    this.element.replaceChildren(bold, ...lines.flatMap((line) => [line, document.createElement("br")]));
    this.element.hidden = false;
    const { width, height } = this.element.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, window.innerWidth - width - 8);
    const below = event.clientY + 16;
    const y = below + height > window.innerHeight ? event.clientY - height - 10 : below;
    this.element.style.left = `${Math.max(x, 4)}px`;
    this.element.style.top = `${Math.max(y, 4)}px`;
  },
  hide() { this.element.hidden = true; },
};

// The part of the step that all timelines and memory show; it ends with the longest step.
class View {
  constructor(end) {
    this.end = Math.max(end, 1);
    [this.from, this.to] = [0, this.end];
    this.listeners = [];
    this.pending = false;
  }

  set(from, to) {
    const width = Math.min(Math.max(to - from, Math.min(20, this.end)), this.end);
    this.from = Math.min(Math.max((from + to - width) / 2, 0), this.end - width);
    this.to = this.from + width;
    this.redraw();
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    this.set(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(share) { this.moveTo(this.from + share * (this.to - this.from)); }

  // Begins elsewhere, as wide as it is.
  moveTo(wanted) {
    const width = this.to - this.from;
    const from = Math.min(Math.max(wanted, 0), this.end - width);
    this.set(from, from + width);
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    this.pending = false;
    for (const listener of this.listeners) listener();
  }
}
