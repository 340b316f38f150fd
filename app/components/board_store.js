// Frames of the two-allocator board, as the engine made them. A frame belongs to an opening with its rules and to the
// actions before it; lists that begin alike share their frames. What is missing is asked for in one request.

const BOARD_KEYS = ['open', 'pool', 'b', 'seats', 'watermark', 'budget'];

// "s4,a9:12,s" as a list of single actions, and back.
function readActions(text) {
  const actions = [];
  for (const word of String(text || '').split(',')) {
    const times = /^s(\d{1,3})$/.exec(word);
    if (times) actions.push(...Array(+times[1]).fill('s'));
    else if (word) actions.push(word);
  }
  return actions;
}
function writeActions(actions) {
  const parts = [];
  for (let i = 0; i < actions.length; ) {
    let j = i + 1;
    if (actions[i] === 's') while (actions[j] === 's') j++;
    parts.push(j - i > 1 ? `s${j - i}` : actions[i]);
    i = j;
  }
  return parts.join(',');
}

class BoardStore {
  constructor(base, version, first) {
    Object.assign(this, { base, version, frames: new Map(), asked: new Map() });
    if (first) this.keep(this.rules(first.query), first.acts, 0, first.frames);
  }

  rules(state) {
    return BOARD_KEYS.map((key) => state[key]).join('|');
  }

  keep(rules, actions, since, frames) {
    frames.forEach((frame, i) => this.frames.set(`${rules}#${actions.slice(0, since + i).join()}`, unpackFrame(frame)));
  }

  // The frames after 0, 1, … all actions; shorter where one is not here yet.
  known(state, actions) {
    const rules = this.rules(state),
      found = [];
    let key = `${rules}#`;
    for (let i = 0; i <= actions.length; i++) {
      if (i) key += (i > 1 ? ',' : '') + actions[i - 1];
      const frame = this.frames.get(key);
      if (!frame) break;
      found.push(frame);
    }
    return found;
  }

  // Resolves when every frame of the list is here; rejects with {code, detail}.
  load(state, actions, since) {
    const key = `${this.rules(state)}#${actions.join()}`;
    if (!this.asked.has(key)) this.asked.set(key, this.fetch(state, actions, since).finally(() => this.asked.delete(key)));
    return this.asked.get(key);
  }

  // Have the frame after one more step ready before anybody asks for it.
  ahead(state, actions) {
    const next = [...actions, 's'];
    if (!this.frames.has(`${this.rules(state)}#${next.join()}`)) this.load(state, next, next.length).catch(() => {});
  }

  query(state, actions) {
    return new URLSearchParams([...BOARD_KEYS.map((key) => [key, state[key]]), ['acts', writeActions(actions) || '-']]);
  }

  // The same list on the model; resolves to what it wrote, or to {error}.
  write(state, actions) {
    return fetch(`${this.base}board/model?${this.query(state, actions)}`)
      .then((response) => response.json())
      .catch(() => ({ error: { code: 'offline', detail: {} } }));
  }

  async fetch(state, actions, since) {
    const params = this.query(state, actions);
    params.set('since', since);
    params.set('v', this.version);
    let body;
    try {
      body = await (await fetch(`${this.base}board?${params}`)).json();
    } catch {
      throw { code: 'offline', detail: {} };
    }
    if (body.error) throw body.error;
    this.keep(this.rules(state), actions, since, body.frames);
  }
}

function unpackFrame(raw) {
  const frame = { ...raw };
  for (const side of SIDES) {
    const cells = raw[side].cells.flatMap(([state, owner, count]) => Array(count).fill({ state, owner }));
    const tables = raw[side].tables.map(([n, blocks, written]) => ({ n, blocks, written }));
    frame[side] = { ...raw[side], cells, tables };
  }
  return frame;
}
