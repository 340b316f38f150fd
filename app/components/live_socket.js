// A websocket to an engine. Every server message is a full state (a frame); every message sent is answered. When the
// line breaks it comes back by itself, with longer and longer pauses, unless `once` is set.

class LiveSocket {
  // path: behind the base; hear: {frame(data), line(state)} with state 'connecting', 'open' or 'offline'.
  constructor(path, hear, once = false) {
    const url = new URL(path, location.href);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    Object.assign(this, { url, hear, once, asked: new Map(), count: 0, tries: 0, ended: false, state: 'connecting' });
    this.open();
  }

  open() {
    if (this.socket) this.turn('connecting'); // not while it is being made
    const socket = new WebSocket(this.url);
    this.socket = socket;
    socket.onopen = () => {
      this.tries = 0;
      this.turn('open');
    };
    socket.onmessage = (event) => this.take(JSON.parse(event.data));
    socket.onclose = () => {
      for (const { no } of this.asked.values()) no({ code: 'offline', detail: {} });
      this.asked.clear();
      if (this.ended) return;
      this.turn('offline');
      if (this.once) return;
      const pause = Math.min(15000, 500 * 2 ** this.tries++) * (0.75 + Math.random() / 2);
      this.timer = setTimeout(() => this.open(), pause);
    };
  }

  turn(state) {
    if (this.state === state) return;
    this.state = state;
    this.hear.line(state);
  }

  take(message) {
    if (!('re' in message)) return this.hear.frame(message);
    const asked = this.asked.get(message.re);
    this.asked.delete(message.re);
    if (!asked) return null;
    return 'error' in message ? asked.no(message.error) : asked.yes(message.ok);
  }

  // Resolves to the answer; rejects with {code, detail}.
  ask(action, more = {}) {
    return new Promise((yes, no) => {
      if (this.state !== 'open') return no({ code: 'offline', detail: {} });
      const n = ++this.count;
      this.asked.set(n, { yes, no });
      return this.socket.send(JSON.stringify({ ...more, do: action, n }));
    });
  }

  close() {
    this.ended = true;
    clearTimeout(this.timer);
    this.socket.close();
  }
}

// What went wrong, in words.
function troubleText(problem, W) {
  const detail = Object.entries(problem.detail || {}).map(([k, v]) => [k, typeof v === 'number' ? number(v) : v]);
  return fill(W.errors[problem.code] || W.errors.broken, Object.fromEntries(detail));
}

// "tiny-model · CPU · torch · 1 thread"; nothing while no model is there.
const machineText = (model, L) =>
  model
    ? [model.name, model.device, model.backend, fill(model.threads === 1 ? L.thread : L.threads, { n: model.threads })]
        .filter(Boolean)
        .join(' · ')
    : '';

// Milliseconds as a person reads them; a dash while nothing was measured.
const timeText = (ms) => {
  if (ms === null || ms === undefined) return '–';
  return ms >= 1000 ? `${(ms / 1000).toFixed(ms >= 10000 ? 0 : 1)} s` : `${ms.toFixed(ms >= 10 ? 0 : 1)} ms`;
};
