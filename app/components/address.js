// The address bar holds everything that must survive a reload. It is read once, at mount, and written without a round
// trip to the server. What it holds and cannot be used is collected in `ignored`, and the page says so.

const addressOf = () => new URLSearchParams(location.search);

function writeAddress(changes) {
  const params = addressOf();
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === '') params.delete(key);
    else params.set(key, value);
  }
  const text = params.toString().replaceAll('%2C', ',').replaceAll('%3A', ':');
  const next = location.pathname + (text ? '?' + text : '');
  if (next !== location.pathname + location.search) history.replaceState(history.state, '', next);
}

class AddressReader {
  constructor() {
    this.params = addressOf();
    this.read = new Set(['lang', 'theme', 'present', 'embed', 'embed_options']);
    this.ignored = [];
    this.oneOf('lang', ['zh', 'en']);
    this.oneOf('theme', ['light', 'dark']);
    this.oneOf('present', ['true']);
  }

  raw(key) {
    this.read.add(key);
    return this.params.get(key);
  }

  refuse(key) {
    this.ignored.push(`${key}=${this.params.get(key)}`);
    return null;
  }

  oneOf(key, allowed) {
    const value = this.raw(key);
    return value === null || allowed.includes(value) ? value : this.refuse(key);
  }

  whole(key, low, high) {
    const value = this.raw(key);
    if (value === null) return null;
    return /^\d{1,9}$/.test(value) && +value >= low && +value <= high ? +value : this.refuse(key);
  }

  // Whether the value has this shape; the server says what is wrong inside it.
  shaped(key, pattern, limit) {
    const value = this.raw(key);
    return value === null || (value.length <= limit && pattern.test(value)) ? value : this.refuse(key);
  }

  rest() {
    for (const key of new Set(this.params.keys())) if (!this.read.has(key)) this.refuse(key);
    return this.ignored.map((text) => (text.length > 48 ? text.slice(0, 47) + '…' : text));
  }
}

// Pages lie beside each other: the part of the path before the page's own name.
const basePath = (slug) =>
  slug && location.pathname.endsWith('/' + slug)
    ? location.pathname.slice(0, -slug.length)
    : location.pathname.replace(/[^/]*$/, '');

// A link to another page keeps language, theme and projector.
function pageLink(base, slug) {
  const params = addressOf();
  const keep = ['lang', 'theme', 'present']
    .filter((key) => params.has(key))
    .map((key) => `${key}=${encodeURIComponent(params.get(key))}`);
  return base + slug + (keep.length ? '?' + keep.join('&') : '');
}
