// The scopes that are open as a graph of boxes (SVG) and as a table, which also opens and closes.

const BOX = { width: 168, height: 44, dx: 236, dy: 58, margin: 16 };
const MAX_ARROWS = 400; // the largest ones

class ScopeGraph {
  constructor(root, step) {
    Object.assign(this, { root, step, tree: new ScopeTree(step) });
    this.svg = root.querySelector("svg");
    this.body = root.querySelector("tbody");
    this.drawLegend();
    this.draw();
  }

  draw() {
    const { found, boxOf } = this.tree.boxes();
    this.drawTable(found);
    const boxes = found.filter((box) => box.kind !== "open");
    boxes.forEach((box, index) => { box.index = index; });
    this.drawGraph(boxes, this.arrows(found, boxOf));
  }

  toggle(index) {
    this.tree.toggle(index);
    this.draw();
    this.root.querySelector(`button[data-scope="${index}"]`)?.focus();
  }

  drawLegend() {
    const items = this.step.devices.map((device) => {
      const item = document.createElement("li"), swatch = document.createElement("i");
      swatch.style.background = `var(${device.color})`;
      item.append(swatch, device.label);
      return item;
    });
    this.root.querySelector(".legend").replaceChildren(...items);
  }

  // ---- table ----

  drawTable(found) {
    this.body.replaceChildren(...found.map((box) => {
      const row = document.createElement("tr"), head = document.createElement("th");
      head.scope = "row";
      head.style.paddingLeft = `${box.depth * 18}px`;
      head.append(this.handle(box));
      row.append(head, cell(box.scope.count.toLocaleString("en"), box.scope.count),
        cell(formatTime(box.scope.busy), box.scope.busy), this.bar(box.scope),
        cell(formatBytes(box.scope.persistent), box.scope.persistent));
      return row;
    }));
  }

  handle(box) {
    const opens = box.kind === "scope" || box.kind === "open";
    const element = document.createElement(opens ? "button" : "span");
    element.textContent = box.label;
    if (!opens) {
      element.className = "leaf";
      return element;
    }
    element.type = "button";
    element.dataset.scope = box.scope.index;
    element.setAttribute("aria-expanded", box.kind === "open");
    element.addEventListener("click", () => this.toggle(box.scope.index));
    return element;
  }

  bar(scope) {
    const data = document.createElement("td"), bar = document.createElement("div");
    bar.className = "shares";
    bar.title = describeShares(this.step, scope);
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", bar.title);
    for (const { device, share } of shares(this.step, scope)) {
      const part = document.createElement("i");
      part.style.cssText = `flex: ${share} 0 0; background: var(${device.color})`;
      bar.append(part);
    }
    data.append(bar);
    return data;
  }

  // ---- graph ----

  // The tensors and signals between boxes, the largest first.
  arrows(found, boxOf) {
    const { graph, placement } = this.step, { src, output, dst } = graph.edges, sums = new Map();
    for (let e = 0; e < src.length; e++) {
      const from = boxOf[src[e]], to = boxOf[dst[e]];
      if (from === to) continue;
      const key = from * found.length + to;
      let arrow = sums.get(key);
      if (!arrow) sums.set(key, arrow = { from: found[from], to: found[to], bytes: 0, count: 0, crosses: false });
      arrow.bytes += graph.sentBytes(src[e], output[e]);
      arrow.count++;
      arrow.crosses ||= placement[src[e]] !== placement[dst[e]];
    }
    return [...sums.values()].sort((a, b) => b.bytes - a.bytes || b.count - a.count);
  }

  // Columns: the longest chain of arrows that do not lead back in time. Rows: near one's neighbours.
  layOut(boxes, arrows) {
    const time = (box) => box.scope.center / box.scope.count;
    const forward = arrows.filter(({ from, to }) => time(from) < time(to) || (time(from) === time(to) && from.index < to.index));
    const order = [...boxes].sort((a, b) => time(a) - time(b) || a.index - b.index);
    for (const box of boxes) Object.assign(box, { column: 0, into: [], out: [] });
    for (const arrow of forward) {
      arrow.from.out.push(arrow.to);
      arrow.to.into.push(arrow.from);
    }
    for (const box of order) for (const next of box.out) next.column = Math.max(next.column, box.column + 1);
    const columns = [];
    for (const box of order) (columns[box.column] ??= []).push(box);
    for (const column of columns) column.forEach((box, row) => { box.row = row; });
    const mean = (others, box) => others.length ? others.reduce((a, b) => a + b.row, 0) / others.length : box.row;
    for (let sweep = 0; sweep < 4; sweep++) {
      const side = sweep % 2 ? "out" : "into";
      for (const column of sweep % 2 ? [...columns].reverse() : columns) {
        const wanted = new Map(column.map((box) => [box, mean(box[side], box)]));
        column.sort((a, b) => wanted.get(a) - wanted.get(b) || a.index - b.index);
        column.forEach((box, row) => { box.row = row; });
      }
    }
    const tallest = Math.max(1, ...columns.map((column) => column.length));
    for (const box of boxes) {
      box.x = BOX.margin + box.column * BOX.dx;
      box.y = BOX.margin + (box.row + (tallest - columns[box.column].length) / 2) * BOX.dy;
    }
    return {
      width: BOX.margin * 2 + Math.max(0, columns.length - 1) * BOX.dx + BOX.width,
      height: BOX.margin * 2 + (tallest - 1) * BOX.dy + BOX.height,
    };
  }

  drawGraph(boxes, arrows) {
    const { width, height } = this.layOut(boxes, arrows);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", height);
    const top = Math.log1p(arrows[0]?.bytes ?? 0) || 1;
    const lines = arrows.slice(0, MAX_ARROWS).reverse().map((arrow) => this.drawArrow(arrow, top));
    this.svg.replaceChildren(...lines, ...boxes.map((box) => this.drawBox(box)));
    const pane = this.svg.parentElement;
    pane.scrollTop = (pane.scrollHeight - pane.clientHeight) / 2; // columns are centred
  }

  drawArrow({ from, to, bytes, count, crosses }, top) {
    const back = to.x <= from.x;
    const [x1, y1] = [from.x + (back ? 0 : BOX.width), from.y + BOX.height / 2];
    const [x2, y2] = [to.x + (back ? BOX.width : 0), to.y + BOX.height / 2];
    const bend = (back ? -1 : 1) * Math.max(30, Math.abs(x2 - x1) / 2);
    const path = svgElement("path", { d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` });
    path.style.strokeWidth = 0.75 + (3 * Math.log1p(bytes)) / top;
    if (crosses) path.classList.add("crosses");
    hover(path, () => [`${from.label} to ${to.label}`, `${formatBytes(bytes)} in ${count} edges`,
      crosses ? "some cross devices" : "all within a device"]);
    return path;
  }

  drawBox(box) {
    const { scope } = box, group = svgElement("g", { transform: `translate(${box.x} ${box.y})` });
    const label = svgElement("text", { x: 8, y: 16 }), small = svgElement("text", { x: 8, y: 30, class: "small" });
    label.textContent = shorten(box.label, 24);
    const what = box.kind === "op" ? this.step.graph.opType(box.op) : `${scope.count.toLocaleString("en")} ops`;
    small.textContent = shorten(`${what} · ${formatTime(scope.busy)}`, 28);
    group.append(svgElement("rect", { class: "box", width: BOX.width, height: BOX.height, rx: 5 }), label, small);
    let x = 1;
    for (const { device, share } of shares(this.step, scope)) {
      const part = svgElement("rect", { x, y: BOX.height - 9, width: share * (BOX.width - 2), height: 8 });
      part.style.fill = `var(${device.color})`;
      group.append(part);
      x += share * (BOX.width - 2);
    }
    const name = box.kind === "op" ? this.step.graph.opName(box.op) : box.label;
    hover(group, () => [name, small.textContent, describeShares(this.step, scope)]);
    if (box.kind === "scope") this.makeOpener(group, box);
    return group;
  }

  makeOpener(group, box) {
    group.classList.add("opens");
    group.setAttribute("tabindex", 0);
    group.setAttribute("role", "button");
    group.setAttribute("aria-label", `Open scope ${box.label}, ${box.scope.count} ops`);
    group.addEventListener("click", () => this.toggle(box.scope.index));
    group.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      this.toggle(box.scope.index);
    });
  }
}

function svgElement(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function cell(text, value) {
  const data = document.createElement("td");
  data.className = "number";
  data.textContent = text;
  data.dataset.value = value;
  return data;
}

function hover(element, lines) {
  element.addEventListener("pointermove", (event) => tooltip.show(event, lines()));
  element.addEventListener("pointerleave", () => tooltip.hide());
}
