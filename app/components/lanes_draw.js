// Drawing on canvases: lanes of a run, reply lengths, time axis, lens. t is the number of steps played, 0 … span: the
// cell (slot, step) is drawn once step < t. `k` are the tokens of colours.js.

function fitCanvas(element, height) {
  const width = element.clientWidth,
    ratio = devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (element.width !== w || element.height !== h) {
    element.width = w;
    element.height = h;
    element.style.height = height + 'px';
  }
  const g = element.getContext('2d');
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  g.textBaseline = 'middle';
  return [g, width];
}

// Steps to pixels: a window of `steps` from 0.
const timeScale = (k, width, steps) => (step) => k.gutter + (clamp(step, 0, steps) / steps) * (width - k.gutter);
const stepAt = (k, element, steps, clientX) => {
  const box = element.getBoundingClientRect();
  return clamp((clientX - box.left - k.gutter) / (box.width - k.gutter), 0, 1) * steps;
};

function block(g, k, request, x, y, w, h, radius) {
  g.fillStyle = k.hue(request);
  g.beginPath();
  g.roundRect(x, y, w, h, radius);
  g.fill();
  if (k.edge(request) && w > 3 && h > 5) {
    g.strokeStyle = k.edge(request);
    g.lineWidth = 1;
    g.beginPath();
    g.roundRect(x + 0.5, y + 0.5, w - 1, h - 1, Math.max(0, radius - 0.5));
    g.stroke();
  }
}

// A prompt or a recomputation, no token yet: hatched.
function hatched(g, k, request, x, y, w, h) {
  g.save();
  g.beginPath();
  g.rect(x, y, w, h);
  g.clip();
  g.strokeStyle = k.hue(request);
  g.lineWidth = 1.6;
  g.beginPath();
  for (let d = -h; d < w; d += 6) {
    g.moveTo(x + d, y + h);
    g.lineTo(x + d + h, y);
  }
  g.stroke();
  g.restore();
  g.lineWidth = 1;
  g.strokeRect(x + 0.5, y + 0.5, Math.max(0, w - 1), h - 1);
}

// view: {t, steps (window), laneHeight, numbers, hot (request to point out), finished: {from, to, text}, goal (the step
// at which the counted run ends)}
function drawLanes(element, lanes, k, view) {
  const h = view.laneHeight,
    [g, width] = fitCanvas(element, h * lanes.slots + 1),
    X = timeScale(k, width, view.steps);
  const gap = h > 6 ? 1.5 : h > 3 ? 0.8 : 0.3,
    small = Math.min(k.lane, Math.max(9, h - 4));
  g.font = k.font(small);
  for (let slot = 0; slot < lanes.slots; slot++) {
    const middle = slot * h + h / 2;
    g.fillStyle = k.line;
    g.fillRect(k.gutter, middle, width - k.gutter, k.thin / 2);
    if (h >= 11 && view.numbers) {
      g.fillStyle = k.ink2;
      g.textAlign = 'right';
      g.fillText(slot + 1, k.gutter - 7, middle + 0.5);
    }
  }
  for (const cell of lanes.idle)
    if (cell.start < view.t) drawGap(g, k, cell, X(cell.start), X(Math.min(cell.end, view.t)), h, gap);
  g.textAlign = 'left';
  for (const seg of lanes.segs) {
    if (seg.start >= view.t) continue;
    const x = X(seg.start),
      w = X(Math.min(seg.end, view.t)) - x,
      y = seg.slot * h + gap / 2;
    g.globalAlpha = view.hot === undefined || view.hot === null || view.hot === seg.request ? 1 : 0.22;
    if (seg.kind) hatched(g, k, seg.request, x, y, Math.max(0.7, w - 1.2), h - gap);
    else block(g, k, seg.request, x, y, Math.max(0.7, w - 1.2), h - gap, h > 8 ? 2 : 0);
    const size = h > 26 ? Math.max(15, k.lane) : small;
    if (h >= 11 && w > size * 1.6 && view.numbers) {
      g.fillStyle = seg.kind ? k.ink : k.on(seg.request);
      g.font = k.font(size, 600);
      g.fillText(seg.request + 1, x + 4, y + (h - gap) / 2 + 0.8);
    }
    g.globalAlpha = 1;
  }
  if (view.finished)
    drawFinished(g, k, X(view.finished.from), X(view.finished.to), h * lanes.slots, view.finished.text);
  if (view.goal && view.goal < view.steps) {
    g.fillStyle = k.line2;
    for (let y = 0; y < h * lanes.slots; y += 8) g.fillRect(X(view.goal), y, k.thin, 4);
  }
  if (view.t > 0) {
    g.fillStyle = k.ink;
    g.fillRect(Math.min(X(view.t) - k.head / 2, width - k.head), 0, k.head, h * lanes.slots);
  }
}

// Why a cell is empty: 0 somebody waits or the batch is not done, 1 the tail, 2 nobody is there yet.
function drawGap(g, k, cell, x, x2, h, gap) {
  const y = cell.slot * h;
  if (cell.kind === 0) {
    g.fillStyle = k.idle;
    g.fillRect(x, y + gap / 2, Math.max(0.5, x2 - x - 0.6), h - gap);
    return;
  }
  g.strokeStyle = k.line2;
  g.lineWidth = cell.kind === 1 ? k.thin : k.thin * 1.6;
  g.lineCap = cell.kind === 1 ? 'butt' : 'round';
  g.setLineDash(cell.kind === 1 ? [3, 4] : [0.1, 7]);
  g.beginPath();
  g.moveTo(x + 2, y + h / 2);
  g.lineTo(Math.max(x + 2, x2 - 1), y + h / 2);
  g.stroke();
  g.setLineDash([]);
  g.lineCap = 'butt';
}

// The arrow from the playhead back to where this policy was done.
function drawFinished(g, k, x, x2, height, text) {
  const y = height / 2;
  if (x2 - x < 24) return;
  g.strokeStyle = k.ink;
  g.lineWidth = k.thin * 1.5;
  g.beginPath();
  g.moveTo(x, 1);
  g.lineTo(x, height);
  g.moveTo(x + 6, y);
  g.lineTo(x2 - 4, y);
  g.moveTo(x + 12, y - 4);
  g.lineTo(x + 6, y);
  g.lineTo(x + 12, y + 4);
  g.stroke();
  g.font = k.font(k.note, 600);
  g.textAlign = 'center';
  const w = g.measureText(text).width,
    middle = (x + x2) / 2;
  if (x2 - x > w + 44) {
    g.fillStyle = k.paper;
    g.fillRect(middle - w / 2 - 7, y - k.note, w + 14, 2 * k.note);
    g.fillStyle = k.ink;
    g.fillText(text, middle, y + 0.5);
  } else if (x2 - x > w + 6) {
    g.fillStyle = k.ink;
    g.fillText(text, middle, y - k.note - 3);
  } else {
    // no room between the lines: behind the playhead
    g.fillStyle = k.ink;
    g.textAlign = 'left';
    g.fillText(text, x2 + 8, y + 0.5);
  }
}

// Before the guess: every reply's length as a bar, in groups of one batch, so that the guess can be reasoned.
function drawLengths(element, lanes, k, height) {
  const [g, width] = fitCanvas(element, height + 1),
    n = lanes.lengths.length,
    groups = Math.ceil(n / lanes.slots);
  const unit = (width - k.gutter) / (n + groups - 1),
    longest = Math.max(...lanes.lengths);
  lanes.lengths.forEach((length, request) => {
    const tall = Math.max(1, (length / longest) * (height - 2));
    block(
      g,
      k,
      request,
      k.gutter + (request + Math.floor(request / lanes.slots)) * unit,
      height - tall,
      Math.max(0.7, unit - 2),
      tall,
      1,
    );
  });
  g.fillStyle = k.line2;
  g.fillRect(k.gutter, height - 0.5, width - k.gutter, 1);
}

function drawAxis(element, k, steps, t, zero, arrivals) {
  const height = k.axis + 14,
    [g, width] = fitCanvas(element, height),
    X = timeScale(k, width, steps);
  const most = width < 420 ? 5 : Math.min(9, width / (k.axis * 6));
  let unit = 1;
  for (const next of [2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000])
    if (steps / unit > most) unit = next;
  g.font = k.font(k.axis);
  g.textBaseline = 'top';
  for (let s = 0; s <= steps; s += unit) {
    g.fillStyle = k.ink2;
    g.fillRect(X(s), 0, k.thin, 4);
    g.textAlign = s ? 'center' : 'left';
    if (X(s) < width - k.axis * 1.4) g.fillText(s ? number(s) : zero, s ? X(s) : k.gutter, 10);
  }
  if (arrivals)
    for (const [request, arrival] of arrivals.entries())
      if (arrival > 0 && arrival < steps) {
        g.fillStyle = k.hue(request);
        g.fillRect(X(arrival) - 1, 0, 2, 7);
      }
  const x = Math.min(X(t), width - 1);
  g.fillStyle = k.ink;
  g.beginPath();
  g.moveTo(x, 0);
  g.lineTo(x + 6, 9);
  g.lineTo(x - 6, 9);
  g.fill();
}

// The lens: 24 steps × up to 8 slots, one cell each, so that a cell is seen for what it is. Returns the steps in view.
function drawLens(element, lanes, k, t, covered) {
  const across = 24,
    n = Math.min(lanes.slots, 8),
    h = 14.4,
    [g, width] = fitCanvas(element, n * h),
    w = (width - k.gutter) / across;
  const end = clamp(t, 0, lanes.span),
    from = Math.max(0, end - across);
  for (let slot = 0; slot < n; slot++) {
    g.fillStyle = k.ink2;
    g.font = k.font(11);
    g.textAlign = 'right';
    g.fillText(slot + 1, k.gutter - 7, slot * h + h / 2);
    for (let i = 0; i < across; i++) {
      const step = from + i,
        x = k.gutter + i * w,
        y = slot * h;
      const cell = covered || step >= end ? null : cellAt(lanes, slot, step);
      if (!cell) {
        g.strokeStyle = k.line;
        g.lineWidth = 1;
        g.strokeRect(x + 0.5, y + 0.5, w - 2, h - 2);
      } else if (cell.empty && cell.kind === 0) {
        g.fillStyle = k.idle;
        g.fillRect(x, y, w - 1.2, h - 1.4);
      } else if (cell.empty) {
        g.fillStyle = k.line2;
        g.fillRect(
          x + w / 2 - (cell.kind === 1 ? 2 : 1),
          y + h / 2 - (cell.kind === 1 ? 0.5 : 1),
          cell.kind === 1 ? 4 : 2,
          cell.kind === 1 ? 1 : 2,
        );
      } else {
        if (cell.kind) hatched(g, k, cell.request, x, y, w - 1.2, h - 1.4);
        else block(g, k, cell.request, x, y, w - 1.2, h - 1.4, 0);
        if (step === cell.start) {
          g.fillStyle = cell.kind ? k.ink : k.on(cell.request);
          g.textAlign = 'center';
          g.font = k.font(10, 600);
          g.fillText(cell.request + 1, x + w / 2 - 0.5, y + h / 2);
        }
      }
    }
  }
  if (!covered && end > 0) {
    g.strokeStyle = k.ink;
    g.lineWidth = 2;
    g.strokeRect(k.gutter + (end - 1 - from) * w - 1, 1, w + 1, n * h - 2);
  }
  return [from + 1, end];
}
