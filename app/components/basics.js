// Basics: escaping, numbers, words, icons. Texts of lessons arrive as HTML that Python rendered and escaped; everything
// else that is put into the page goes through `esc` or textContent.

const esc = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const number = (n) => Number(n).toLocaleString('en-US');
const percent = (share) => (share * 100).toFixed(1);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const still = matchMedia('(prefers-reduced-motion: reduce)');
const narrow = () => innerWidth <= 900;

// A word with its {placeholders} filled in. Unknown placeholders stay visible, so that a missing one is seen.
const fill = (word, values = {}) =>
  String(word ?? '').replace(/\{(\w+)\}/g, (all, key) => (key in values ? values[key] : all));

const line = (path, box = 20) => `<svg class="i" viewBox="0 0 ${box} ${box}" aria-hidden="true">${path}</svg>`;
const ICON = {
  play: '<svg viewBox="0 0 20 20" aria-hidden="true"><path d="M6 3.5v13l11-6.5z"/></svg>',
  pause: '<svg viewBox="0 0 20 20" aria-hidden="true"><path d="M5 3.5h3.6v13H5zM11.4 3.5H15v13h-3.6z"/></svg>',
  step: line('<path d="M5 4l8 6-8 6zM16 4v12"/>'),
  reset: line('<path d="M4 10a6 6 0 1 0 2-4.5M6 2v4h4"/>'),
  link: line(
    '<path d="M8 12l4-4M7 9l-2.5 2.5a3.2 3.2 0 0 0 4.5 4.5L11.5 13.5M13 11l2.5-2.5a3.2 3.2 0 0 0-4.5-4.5L8.5 6.5"/>',
  ),
  theme: line('<circle cx="10" cy="10" r="6.5"/><path d="M10 3.5v13a6.5 6.5 0 0 0 0-13z" fill="currentColor"/>'),
  close: line('<path d="M5 5l10 10M15 5L5 15"/>'),
  loop: line('<path d="M15.5 7A6 6 0 1 0 16 11M16 3v4h-4"/>'),
  logo: line('<path d="M2 5h9M14 5h4M2 10h5M10 10h8M2 15h12M17 15h1"/>'),
  measured: line('<circle cx="7" cy="8" r="4.6"/><path d="M7 8V5.4M5.5 1.2h3"/>', 14),
  counted: line('<path d="M2.5 2.5v9M5.5 2.5v9M8.5 2.5v9M11.5 2.5v9M1 9.5l12-5"/>', 14),
  derived: line('<path d="M9.5 2.2C7.6 1.4 7 2.6 6.7 4.5L5.7 10c-.3 1.8-1 2.6-2.4 2M4 6.2h5"/>', 14),
  quoted: line('<path d="M5.5 3C3.4 4.2 2 6 2 8.6V11h3.6V7.5H3.4M12.5 3C10.4 4.2 9 6 9 8.6V11h3.6V7.5h-2.2"/>', 14),
};
const LABELS = ['measured', 'counted', 'derived', 'quoted'];

// The same markup for every item.
const each = (items, html) => items.map(html).join('');

// The badge of a request (0-based here, 1-based on the page), in its own hue.
const badge = (request) => {
  const hue = (request % 12) + 1;
  return `<span class="rq" data-request="${request}" style="--c:var(--h${hue});--t:var(--t${hue})">${request + 1}</span>`;
};
const chip = (words, label, source = '') =>
  `<button type="button" class="chip ${label}" data-src="${esc(source)}">${ICON[label]}${esc(words[label])}</button>`;
