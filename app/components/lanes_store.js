// Lanes by workload and number of slots. The first view came with the page; the rest is fetched over HTTP, one B after
// the other, nearest first. Everything in a run was counted by the engine; here it is only unpacked and looked up.

function unpackLanes(raw) {
  const segs = [],
    idle = [],
    rows = Array.from({ length: raw.slots }, () => []);
  for (let i = 0; i < raw.segs.length; i += 5) {
    const [slot, start, length, request, kind] = raw.segs.slice(i, i + 5);
    segs.push({ slot, start, end: start + length, request, kind });
  }
  for (let i = 0; i < raw.idle.length; i += 4) {
    const [slot, start, length, kind] = raw.idle.slice(i, i + 4);
    idle.push({ slot, start, end: start + length, kind });
  }
  for (const seg of segs) rows[seg.slot].push(seg);
  for (const gap of idle) rows[gap.slot].push({ ...gap, empty: true });
  for (const row of rows) row.sort((a, b) => a.start - b.start);
  return { ...raw, segs, idle, rows, early: idle.some((gap) => gap.kind === 2), other: segs.some((seg) => seg.kind) };
}

// What stands in a slot at a step: a segment, a gap (`empty`), or undefined after the end.
const cellAt = (lanes, slot, step) => lanes.rows[slot].find((cell) => cell.start <= step && step < cell.end);

// The value of [step, value] change points at a step; 0 before the first.
function valueAt(points, step) {
  let value = 0;
  for (const [from, next] of points) {
    if (from > step) break;
    value = next;
  }
  return value;
}

class LanesStore {
  // first: what Python sent along; offered: the numbers of slots; version: changes with the engine's source.
  constructor(base, version, offered, first) {
    this.base = base;
    this.version = version;
    this.offered = offered;
    this.runs = new Map();
    this.waiting = new Map();
    this.sweep = 0;
    this.keep(first, first.B, first.lanes);
  }

  key(spec, B) {
    return [spec.lengths, spec.lengths === 'own' ? spec.own : '', spec.arrivals, B].join('|');
  }

  keep(spec, B, raw) {
    const pair = { static: unpackLanes(raw.static), continuous: unpackLanes(raw.continuous) };
    this.runs.set(this.key(spec, B), pair);
    return pair;
  }

  get(spec, B) {
    return this.runs.get(this.key(spec, B));
  }

  // Resolves to the pair of runs; rejects with {code, detail}.
  load(spec, B) {
    const key = this.key(spec, B);
    if (this.runs.has(key)) return Promise.resolve(this.runs.get(key));
    if (!this.waiting.has(key)) {
      const job = this.fetch({ ...spec }, B).finally(() => this.waiting.delete(key));
      this.waiting.set(key, job);
    }
    return this.waiting.get(key);
  }

  async fetch(spec, B) {
    const params = new URLSearchParams({ lengths: spec.lengths, arrivals: spec.arrivals, B, v: this.version });
    if (spec.lengths === 'own') params.set('own', spec.own);
    let body;
    try {
      const response = await fetch(`${this.base}lanes?${params}`);
      body = await response.json();
    } catch {
      throw { code: 'offline', detail: {} };
    }
    if (body.error) throw body.error;
    return this.keep(spec, B, body);
  }

  // Fetch every other B of a workload in the background, nearest first; a new call ends the one before.
  async prefetch(spec, B, each) {
    const turn = ++this.sweep,
      place = this.offered.indexOf(B);
    const order = [...this.offered].sort(
      (a, b) => Math.abs(this.offered.indexOf(a) - place) - Math.abs(this.offered.indexOf(b) - place),
    );
    for (const next of order) {
      if (turn !== this.sweep) return;
      try {
        await this.load(spec, next);
      } catch {
        return;
      }
      if (each) each(next);
    }
  }
}
