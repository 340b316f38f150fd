// The tokens of tokens.css as canvases need them. Read again whenever theme, width or projector change.

function readTokens(course) {
  const style = getComputedStyle(course);
  const value = (name) => style.getPropertyValue('--' + name).trim();
  const size = (name) => parseFloat(value(name));
  const hues = [],
    texts = [],
    edges = [];
  const edge = parseFloat(value('edge'));
  for (let i = 1; i <= 12; i++) {
    hues.push(value('h' + i));
    texts.push(value('t' + i));
    edges.push(edge ? darker(value('h' + i), edge / 100) : '');
  }
  const colours = Object.fromEntries(
    ['paper', 'panel', 'line', 'line2', 'ink', 'ink2', 'idle'].map((name) => [name, value(name)]),
  );
  return {
    ...colours,
    hue: (request) => hues[request % 12],
    on: (request) => texts[request % 12],
    edge: (request) => edges[request % 12],
    font: (pixels, weight = 400) => `${weight} ${pixels}px ${value('sans')}`,
    lane: size('fs-lane'),
    name: size('fs-name'),
    axis: size('fs-axis'),
    note: size('fs-note'),
    gutter: size('gutter'),
    thin: size('thin'),
    head: size('head'),
  };
}

const darker = (hex, share) =>
  `rgb(${[1, 3, 5].map((i) => Math.round(parseInt(hex.slice(i, i + 2), 16) * (1 - share))).join(' ')})`;
