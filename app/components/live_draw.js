// Drawing of the live engine: lanes of its last steps, the right edge being now, and the line of its throughput.

// frame: what the server says; view: {laneHeight, names: number → name, hot: number to point out or null}
function drawLiveLanes(element, frame, k, view) {
  const h = view.laneHeight,
    slots = frame.engine.slots,
    [g, width] = fitCanvas(element, h * slots + 1);
  const X = liveScale(k, width, frame),
    size = Math.min(k.name, Math.max(10, h - 5)),
    notched = new Set();
  element.dataset.nameSize = size;
  for (let i = 0; i < frame.notches.length; i += 2) notched.add(`${frame.notches[i]}|${frame.notches[i + 1]}`);
  for (let slot = 0; slot < slots; slot++) {
    const middle = slot * h + h / 2;
    g.fillStyle = k.line;
    g.fillRect(k.gutter, middle, width - k.gutter, k.thin / 2);
    g.fillStyle = k.ink2;
    g.font = k.font(Math.min(k.lane, Math.max(9, h - 4)));
    g.textAlign = 'right';
    g.fillText(slot + 1, k.gutter - 7, middle + 0.5);
  }
  g.textAlign = 'left';
  for (let i = 0; i < frame.segs.length; i += 5) {
    const [slot, start, length, request, kind] = frame.segs.slice(i, i + 5);
    const x = X(start),
      w = X(start + length) - x - 1.5,
      y = slot * h + 1;
    if (w <= 0) continue;
    g.globalAlpha = view.hot === null || view.hot === request ? 1 : 0.22;
    if (kind) hatched(g, k, request - 1, x, y, w, h - 2);
    else block(g, k, request - 1, x, y, w, h - 2, 3);
    const cut = notched.has(`${slot}|${start + length}`) || notched.has(`${slot}|${start + length - 1}`);
    if (cut && w > 14) {
      g.fillStyle = k.paper;
      for (let n = 1; n <= 3; n++) g.fillRect(x + w - 4.5 * n, y, 2, h - 2);
    }
    drawName(g, k, view.names.get(request) || '', request, kind, { x, y, w: cut ? w - 16 : w, h: h - 2, size });
    g.globalAlpha = 1;
  }
  if (frame.step) {
    g.fillStyle = k.ink;
    g.fillRect(width - k.head, 0, k.head, h * slots);
  }
}

// "12 Ada" where there is room, else the number, else nothing.
function drawName(g, k, name, request, kind, box) {
  g.font = k.font(box.size, 600);
  g.fillStyle = kind ? k.ink : k.on(request - 1);
  const room = box.w - 10,
    full = name ? `${request} ${name}` : `${request}`;
  const text = g.measureText(full).width <= room ? full : `${request}`;
  if (g.measureText(text).width > room) return;
  const middle = box.y + box.h / 2 + 0.8;
  if (kind) {
    g.fillStyle = k.paper; // letters on hatching
    g.fillRect(box.x + 3, middle - box.size / 2 - 1, g.measureText(text).width + 4, box.size + 1);
    g.fillStyle = k.ink;
  }
  g.fillText(text, box.x + 5, middle);
}

// How many steps the lanes reach back: fewer at first, so that what has just begun is not a sliver.
const REACH = 60;
const liveReach = (frame) => clamp(frame.step, Math.min(REACH, frame.window), frame.window);

// Steps to pixels: the last steps, the last one at the right edge.
const liveScale = (k, width, frame) => {
  const reach = liveReach(frame),
    from = frame.step - reach,
    unit = (width - k.gutter - k.head) / reach;
  return (step) => k.gutter + clamp(step - from, 0, reach) * unit;
};

function drawLiveAxis(element, frame, k, now) {
  const [g, width] = fitCanvas(element, k.axis + 12),
    X = liveScale(k, width, frame);
  g.font = k.font(k.axis);
  g.textBaseline = 'top';
  g.fillStyle = k.ink2;
  g.textAlign = 'right';
  g.fillText(now, width, 7);
  const room = width - g.measureText(now).width - 14;
  g.textAlign = 'center';
  const reach = liveReach(frame),
    every = reach > 2 * REACH ? REACH : REACH / 3;
  for (let step = Math.ceil(Math.max(0, frame.step - reach) / every) * every; step < frame.step; step += every) {
    g.fillRect(X(step), 0, k.thin, 4);
    const half = g.measureText(number(step)).width / 2;
    if (X(step) + half < room && X(step) - half >= 0) g.fillText(number(step), X(step), 7);
  }
}

// The request at a place of the lanes, or null.
function liveRequestAt(frame, k, element, event) {
  const box = element.getBoundingClientRect(),
    reach = liveReach(frame),
    unit = (box.width - k.gutter - k.head) / reach;
  const step = frame.step - reach + Math.floor((event.clientX - box.left - k.gutter) / unit),
    slot = Math.floor(((event.clientY - box.top) / box.height) * frame.engine.slots);
  for (let i = 0; i < frame.segs.length; i += 5) {
    const [row, start, length, request] = frame.segs.slice(i, i + 4);
    if (row === slot && start <= step && step < start + length) return request;
  }
  return null;
}

// A line of values, oldest first, from 0 to its own highest.
function drawSpark(element, values, k, height) {
  const [g, width] = fitCanvas(element, height),
    top = Math.max(1, ...values),
    thick = k.thin * 2;
  g.fillStyle = k.line;
  g.fillRect(0, height - 1, width, 1);
  if (values.length < 2) return;
  const x = (i) => 2 + (i / (values.length - 1)) * (width - 8),
    y = (value) => height - 3 - (value / top) * (height - 8);
  g.strokeStyle = k.ink;
  g.lineWidth = thick;
  g.lineJoin = 'round';
  g.beginPath();
  values.forEach((value, i) => g[i ? 'lineTo' : 'moveTo'](x(i), y(value)));
  g.stroke();
  g.fillStyle = k.ink;
  g.beginPath();
  g.arc(x(values.length - 1), y(values[values.length - 1]), thick + 1, 0, 7);
  g.fill();
}
