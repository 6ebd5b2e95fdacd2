// The name scopes as a tree: sums per scope, what is open, and the boxes that this makes.
//
// A box is a closed scope, an op of an open scope, or the rest of an open scope that has too many.

const MAX_CHILDREN = 40; // scopes, and ops, of one open scope that get a box of their own

class ScopeTree {
  constructor(step) {
    this.step = step;
    const n = step.graph.scopes.length, devices = step.devices.length;
    this.scopes = step.graph.scopes.map((scope, index) => ({
      ...scope, index, children: [], ops: [], count: 0, busy: 0, persistent: 0, center: 0,
      perDevice: new Float64Array(devices),
    }));
    for (let op = 0; op < step.graph.ops.leaf.length; op++) this.addOp(op);
    for (let i = n - 1; i > 0; i--) this.addChild(this.scopes[i]);
    for (const scope of this.scopes) scope.children.sort((a, b) => b.busy - a.busy || a.index - b.index);
    this.open = new Set([0]);
    for (let scope = this.scopes[0]; scope.children.length === 1 && scope.ops.length <= 2;) {
      scope = scope.children[0];
      this.open.add(scope.index);
    }
  }

  addOp(op) {
    const { step } = this, scope = this.scopes[step.graph.ops.scope[op]], span = step.spanOf[op];
    const busy = step.duration[span];
    scope.ops.push(op);
    scope.count++;
    scope.busy += busy;
    scope.persistent += step.graph.ops.persistent_bytes[op];
    scope.center += step.start[span];
    scope.perDevice[step.placement[op]] += busy;
  }

  addChild(scope) {
    const parent = this.scopes[scope.parent];
    parent.children.push(scope);
    for (const key of ["count", "busy", "persistent", "center"]) parent[key] += scope[key];
    scope.perDevice.forEach((busy, device) => { parent.perDevice[device] += busy; });
  }

  toggle(index) {
    if (this.open.has(index)) this.open.delete(index); else this.open.add(index);
  }

  // The boxes in tree order, with their depth; `boxOf[op]` is the box that an op is in.
  boxes() {
    const found = [], boxOf = new Int32Array(this.step.graph.ops.leaf.length);
    const place = (scope, box) => {
      for (const op of scope.ops) boxOf[op] = box;
      for (const child of scope.children) place(child, box);
    };
    const visit = (scope, depth) => {
      for (const [i, child] of scope.children.entries()) {
        if (i >= MAX_CHILDREN) break;
        if (this.open.has(child.index)) {
          found.push({ kind: "open", scope: child, depth, label: child.name });
          visit(child, depth + 1);
        } else {
          found.push({ kind: "scope", scope: child, depth, label: child.name });
          place(child, found.length - 1);
        }
      }
      this.visitRest(scope, depth, found, boxOf, place);
    };
    visit(this.scopes[0], 0);
    return { found, boxOf };
  }

  visitRest(scope, depth, found, boxOf, place) {
    const rest = scope.children.slice(MAX_CHILDREN);
    if (rest.length) {
      found.push({ kind: "rest", depth, label: `${rest.length} more scopes`, scope: sum(rest, this.step) });
      for (const child of rest) place(child, found.length - 1);
    }
    if (scope.ops.length > MAX_CHILDREN) {
      const own = this.ofOps(scope.ops);
      found.push({ kind: "rest", depth, label: `${scope.ops.length} ops`, scope: own });
      for (const op of scope.ops) boxOf[op] = found.length - 1;
      return;
    }
    for (const op of scope.ops) {
      found.push({ kind: "op", depth, label: this.step.graph.ops.leaf[op], op, scope: this.ofOps([op]) });
      boxOf[op] = found.length - 1;
    }
  }

  ofOps(ops) {
    const { step } = this, total = empty(step);
    for (const op of ops) {
      const span = step.spanOf[op], busy = step.duration[span];
      total.count++;
      total.busy += busy;
      total.persistent += step.graph.ops.persistent_bytes[op];
      total.center += step.start[span];
      total.perDevice[step.placement[op]] += busy || 1e-9; // one op always shows its device
    }
    return total;
  }
}

function empty(step) {
  return { count: 0, busy: 0, persistent: 0, center: 0, perDevice: new Float64Array(step.devices.length) };
}

function sum(scopes, step) {
  const total = empty(step);
  for (const scope of scopes) {
    for (const key of ["count", "busy", "persistent", "center"]) total[key] += scope[key];
    scope.perDevice.forEach((busy, device) => { total.perDevice[device] += busy; });
  }
  return total;
}

// The devices of a box with their shares of its time, largest first.
function shares(step, { perDevice }) {
  const total = perDevice.reduce((a, b) => a + b, 0) || 1;
  return [...perDevice].map((busy, device) => ({ device: step.devices[device], share: busy / total }))
    .filter(({ share }) => share > 0).sort((a, b) => b.share - a.share);
}

function describeShares(step, scope) {
  return shares(step, scope).map(({ device, share }) => `${device.label} ${trim(share * 100)}%`).join(", ");
}
