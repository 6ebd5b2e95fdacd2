// The steps behind the charts: unpacks what columns.py packed and document.py left out.

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
    const stored = join(new Uint8Array(buffer, base + value.at), ARRAYS[value.type], value.length);
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

// Puts the bytes of each value together; they lie apart, the lowest ones of all values first.
function join(stored, type, length) {
  const size = type.BYTES_PER_ELEMENT, bytes = new Uint8Array(length * size);
  for (let at = 0, byte = 0; byte < size; byte++) {
    for (let i = byte; i < bytes.length; i += size) bytes[i] = stored[at++];
  }
  return new type(bytes.buffer);
}

// The first index in [from, to) whose value is at least `wanted`, else `to`.
function lowerBound(values, wanted, from, to) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle] < wanted) from = middle + 1; else to = middle;
  }
  return from;
}

// What all steps have in common: ops, tensors, links and devices.
class Graph {
  constructor(document) {
    Object.assign(this, document);
    this.paths = []; // of scopes, each with a slash at its end
    for (const { name, parent } of this.scopes) {
      this.paths.push(this.paths.length ? `${this.paths[parent]}${name}/` : "");
    }
    const { outputs } = this.ops;
    this.firstOutput = new Uint32Array(outputs.length + 1);
    for (let op = 0; op < outputs.length; op++) this.firstOutput[op + 1] = this.firstOutput[op] + outputs[op];
  }

  opName(op) { return this.paths[this.ops.scope[op]] + this.ops.leaf[op]; }

  opType(op) { return this.types[this.ops.type[op]]; }

  // Of what an op sends: a tensor, or a signal, which has the output -1 and no bytes.
  sentBytes(op, output) { return output < 0 ? 0 : this.tensor_bytes[this.firstOutput[op] + output]; }

  outputBytes(op) {
    let sum = 0;
    for (let i = this.firstOutput[op]; i < this.firstOutput[op + 1]; i++) sum += this.tensor_bytes[i];
    return sum;
  }
}

// One simulated step. A span is an op in the lane of a device, a transfer in that of a channel.
class Step {
  constructor(graph, document, first) {
    Object.assign(this, document, { graph, devices: graph.devices });
    this.unpackSpans(first);
    const several = new Set(this.lanes.filter((lane) => lane.slot > 0).map((lane) => lane.device));
    for (const lane of this.lanes) lane.label = this.laneName(lane, several);
  }

  unpackSpans(first) {
    const { gap, extra, item } = this.spans, length = item.length;
    this.start = new Float64Array(length);
    this.duration = new Float64Array(length);
    this.finish = new Float64Array(length);
    this.busy = new Float64Array(length + 1); // prefix sums of durations
    this.item = Uint32Array.from(item);
    this.spanOf = new Uint32Array(this.placement.length);
    this.spanOfTransfer = new Uint32Array(this.transfers.src_op.length);
    let begin = 0;
    for (const [index, lane] of this.lanes.entries()) {
      Object.assign(lane, { index, begin, isDevice: "device" in lane });
      begin = lane.end;
      for (let i = lane.begin, now = 0; i < lane.end; i++) {
        this.start[i] = now + gap[i];
        this.duration[i] = extra[i] + (lane.isDevice ? this.opTime(item[i], first) : this.sendTime(item[i]));
        this.finish[i] = now = this.start[i] + this.duration[i];
        this.busy[i + 1] = this.busy[i] + this.duration[i];
        (lane.isDevice ? this.spanOf : this.spanOfTransfer)[item[i]] = i;
      }
      lane.busyShare = (this.busy[lane.end] - this.busy[lane.begin]) / Math.max(this.makespan_ns, 1);
    }
  }

  // As `_expected_ns` of document.py, to the last bit.
  opTime(op, first) { return first ? first.duration[first.spanOf[op]] : 0; }

  sendTime(transfer) {
    const pair = this.srcDevice(transfer) * this.devices.length + this.transfers.dst_device[transfer];
    const { latency_ns: latency, bytes_per_s: rate } = this.graph.links;
    return Math.floor(latency[pair] + this.transferBytes(transfer) * (1e9 / rate[pair]) + 0.5);
  }

  deviceOf(op) { return this.devices[this.placement[op]]; }

  srcDevice(transfer) { return this.placement[this.transfers.src_op[transfer]]; }

  transferBytes(transfer) {
    return this.graph.sentBytes(this.transfers.src_op[transfer], this.transfers.output[transfer]);
  }

  tensorName(transfer) {
    const name = this.graph.opName(this.transfers.src_op[transfer]);
    const output = this.transfers.output[transfer];
    return output < 0 ? `^${name}` : `${name}:${output}`;
  }

  laneName(lane, several) {
    if (!lane.isDevice) return lane.channel.replaceAll("/device:", "");
    return this.devices[lane.device].label + (several.has(lane.device) ? ` slot ${lane.slot}` : "");
  }

  laneOfSpan(span) { return this.lanes.find((lane) => span < lane.end); }
}
