// The step behind the charts: unpacks what columns.py packed.

const ARRAYS = {
  Uint8: Uint8Array, Uint16: Uint16Array, Uint32: Uint32Array,
  Int8: Int8Array, Int16: Int16Array, Int32: Int32Array, Float64: Float64Array,
};

async function unpack(text) {
  const packed = atob(text.trim());
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const size = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  return resolve(head, buffer, 4 + size);
}

// Replaces what stands for an array, wherever it is in the document.
function resolve(value, buffer, base) {
  if (typeof value !== "object" || value === null) return value;
  if (typeof value.type === "string" && "at" in value) {
    const stored = new ARRAYS[value.type](buffer, base + value.at, value.length);
    if (!value.delta) return stored;
    const sums = new Float64Array(stored.length);
    for (let i = 0, sum = 0; i < stored.length; i++) sums[i] = sum += stored[i];
    return sums;
  }
  if (Array.isArray(value)) {
    return typeof value[0] === "object" ? value.map((item) => resolve(item, buffer, base)) : value;
  }
  for (const key of Object.keys(value)) value[key] = resolve(value[key], buffer, base);
  return value;
}

// The first index in [from, to) whose value is at least `wanted`, else `to`.
function lowerBound(values, wanted, from, to) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle] < wanted) from = middle + 1; else to = middle;
  }
  return from;
}

class Step {
  constructor(document) {
    Object.assign(this, document);
    this.finish = this.spans.start.map((start, i) => start + this.spans.duration[i]);
    this.busy = new Float64Array(this.finish.length + 1); // prefix sums of durations
    this.spanOf = new Uint32Array(this.ops.leaf.length);
    let begin = 0;
    for (const [index, lane] of this.lanes.entries()) {
      lane.index = index;
      lane.begin = begin;
      begin = lane.end;
      for (let i = lane.begin; i < lane.end; i++) {
        this.busy[i + 1] = this.busy[i] + this.spans.duration[i];
        if ("device" in lane) this.spanOf[this.spans.item[i]] = i;
      }
      lane.busyShare = (this.busy[lane.end] - this.busy[lane.begin]) / Math.max(this.makespan_ns, 1);
    }
    this.paths = []; // of scopes, each with a slash at its end
    for (const { name, parent } of this.scopes) {
      this.paths.push(this.paths.length ? `${this.paths[parent]}${name}/` : "");
    }
    for (const lane of this.lanes) lane.label = this.laneName(lane);
    this.assignColors();
  }

  // Accelerators take the hues; CPUs are grey beside them, and take hues where there is nothing else.
  assignColors() {
    const mixed = this.devices.some((device) => !device.is_cpu);
    let next = 0;
    for (const device of this.devices) {
      device.color = mixed && device.is_cpu ? "--cpu" : `--c${next++ % 8}`;
    }
  }

  opName(op) { return this.paths[this.ops.scope[op]] + this.ops.leaf[op]; }

  opType(op) { return this.types[this.ops.type[op]]; }

  deviceOf(op) { return this.devices[this.ops.device[op]]; }

  tensorName(transfer) {
    const op = this.transfers.src_op[transfer];
    const output = this.transfers.output[transfer];
    return output < 0 ? `^${this.opName(op)}` : `${this.opName(op)}:${output}`;
  }

  laneName(lane) {
    if (!("device" in lane)) return lane.channel.replaceAll("/device:", "");
    const several = this.lanes.some((other) => other.device === lane.device && other.slot > 0);
    return this.devices[lane.device].label + (several ? ` slot ${lane.slot}` : "");
  }
}
