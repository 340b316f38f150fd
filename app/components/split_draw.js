// A pool over time: one column of pixels per moment, the five parts stacked from below, each in its pattern.

const STACK = ['live', 'tail_waste', 'reserved', 'hole', 'free'];

// The state patterns as canvas patterns, in the colours of the page.
function makePatterns(context, k, ratio) {
  const tile = (size, draw) => {
    const canvas = document.createElement('canvas');
    canvas.width = canvas.height = size * ratio;
    const pen = canvas.getContext('2d');
    pen.scale(ratio, ratio);
    draw(pen, size);
    return context.createPattern(canvas, 'repeat');
  };
  const lines = (pen, size, colour, width, both) => {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    for (const shift of [-size, 0, size]) {
      pen.beginPath();
      pen.moveTo(shift, size);
      pen.lineTo(shift + size, 0);
      if (both) {
        pen.moveTo(shift, 0);
        pen.lineTo(shift + size, size);
      }
      pen.stroke();
    }
  };
  return {
    live: k.ink2,
    tail_waste: tile(5, (pen) => {
      pen.fillStyle = k.ink2;
      pen.beginPath();
      pen.arc(2.5, 2.5, 1.2, 0, 7);
      pen.fill();
    }),
    reserved: tile(7, (pen, size) => lines(pen, size, k.ink2, 1.5, false)),
    hole: tile(7, (pen, size) => lines(pen, size, k.line2, 1, true)),
    free: 'transparent',
  };
}

// parts: columns over steps; from step 0 to `upto` of `span` steps across the width.
function drawSplit(canvas, parts, pool, k, { span, upto, height, faint }) {
  const ratio = Math.min(2, devicePixelRatio || 1),
    width = canvas.clientWidth;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext('2d'),
    patterns = makePatterns(context, k, ratio),
    steps = parts.live.length;
  context.globalAlpha = faint ? 0.3 : 1;
  const end = Math.min(steps, upto);
  for (let x = 0; x < canvas.width; x++) {
    const step = Math.floor((x / canvas.width) * span);
    if (step >= end) break;
    let y = canvas.height;
    for (const part of STACK) {
      const tall = (parts[part][step] / pool) * canvas.height;
      context.fillStyle = patterns[part];
      if (tall > 0 && part !== 'free') context.fillRect(x, y - tall, 1, tall);
      y -= tall;
    }
  }
  context.globalAlpha = 1;
  context.strokeStyle = k.line2;
  context.lineWidth = ratio;
  const right = upto ? Math.min(canvas.width, (steps / span) * canvas.width) : canvas.width; // covered: says nothing
  context.strokeRect(ratio / 2, ratio / 2, Math.max(0, right - ratio), canvas.height - ratio);
  if (upto < span && upto > 0) {
    context.fillStyle = k.ink;
    context.fillRect((upto / span) * canvas.width - ratio, 0, k.head * ratio, canvas.height);
  }
}
