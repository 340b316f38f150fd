// Parts of the live page: its markup, the list of replies, the memory map, the queue. They show what a frame says.

const PACES = [1, 2, 4, 8, 12, 20, 0]; // 0: as fast as it goes
const GAUGE = ['live', 'tail_waste', 'reserved', 'hole', 'free'];
const OPEN_REPLIES = ['waiting', 'running', 'preempted', 'swapped'];

function liveHtml(data) {
  const W = data.words,
    L = W.live;
  return `<div class="stage">
      <div class="bar"><p class="badge"><span class="dot"></span><span class="what"></span>
          <span class="fresh"></span></p>
        <span class="drive"><button type="button" class="pl small"></button>
          <button type="button" class="ib next" aria-label="${esc(W.one_step)}">${ICON.step}</button>
          <label class="pace"><span>${esc(L.pace)}</span><select>${each(PACES, (n) => paceOption(n, L))}</select></label></span></div>
      <div class="hd" data-part="lanes"><h3>${esc(L.lanes)}</h3><span class="dim">${esc(L.lanes_note)}</span><span class="r occ"></span></div>
      <canvas class="lanes" role="img" tabindex="0"></canvas><canvas class="axis" aria-hidden="true"></canvas></div>
    <div class="rest">
      <div class="rates"><div class="first"><span class="dim">${esc(L.rate)}</span><b class="tps"></b>
          <canvas class="spark" role="img"></canvas></div>
        ${each(['ttft', 'itl', 'step'], (key) => `<div><span class="dim">${esc(L[key])}</span><b class="${key}"></b></div>`)}
        ${chip(W, 'measured')}</div>
      ${writeHtml(W, L)}
      <div class="cols">
        <div class="desk"><div class="hd" data-part="text"><h3>${esc(L.replies)}</h3></div>
          <ol class="replies"></ol></div>
        <div class="door"><div class="hd" data-part="queue"><h3>${esc(L.queue)}</h3><span class="dim count"></span></div>
          <div class="queue" role="status"></div>
          <div class="hd then"><h3>${esc(L.just)}</h3></div><ol class="just"></ol></div></div>
      <div class="memory"><div class="hd" data-part="blocks"><h3>${esc(L.memory)}</h3><span class="dim size"></span>
          <span class="r">${chip(W, 'counted', esc(L.memory_note))}</span></div>
        <div class="map" role="grid" aria-label="${esc(L.memory)}"></div><p class="whose" role="status"></p>
        <div class="gauge" aria-hidden="true">${each(GAUGE, (part) => `<i class="${part}"></i>`)}</div>
        <div class="lg">${each(GAUGE, (part) => `<span><i class="sw ${part}"></i>${esc(L[part])} <b data-usage="${part}"></b></span>`)}</div></div>
      <div class="room" data-part="machine"></div>
    </div>`;
}

const paceOption = (n, L) => `<option value="${n}">${esc(n ? fill(L.per_second, { n }) : L.full)}</option>`;

const writeHtml = (W, L) => `<form class="write" data-part="write" novalidate>
    <label class="prompt"><span>${esc(L.prompt)}</span><textarea rows="1" maxlength="4000" spellcheck="false"></textarea></label>
    <div class="send"><button type="submit" class="btn p">${esc(L.send)}</button>
      <button type="button" class="btn many">${esc(L.many)}</button></div>
    <div class="examples" role="group" aria-label="${esc(L.examples)}"></div>
    <div class="more">
      <label>${esc(L.name)}<input class="name" maxlength="24" autocomplete="off"></label>
      <label>${esc(L.max_tokens)}<input class="max" type="number" min="1" max="1000" value="160"></label>
      <label>${esc(L.temperature)}<input class="heat" type="number" min="0" max="2" step="0.1" value="0.8"></label></div>
    <p class="err" role="alert"></p>
  </form>`;

// ---- replies: one item per request, changed in place, so that a button stays where the hand is --------------------------
class ReplyList {
  // cancel(id); point(number or null)
  constructor(root, words, cancel, point) {
    Object.assign(this, { root, L: words.live, cancel, point, items: new Map() });
  }

  show(requests, hot) {
    const inside = requests.filter((r) => r.status === 'running'),
      outside = requests.filter((r) => r.status !== 'running' && OPEN_REPLIES.includes(r.status)),
      over = requests.filter((r) => !OPEN_REPLIES.includes(r.status)).reverse();
    const wanted = [...inside, ...outside, ...over];
    for (const [number_, item] of this.items) {
      if (wanted.some((r) => r.number === number_)) continue;
      item.remove();
      this.items.delete(number_);
    }
    let before = null;
    for (const request of wanted.toReversed()) {
      const item = this.items.get(request.number) || this.make(request);
      if (item.nextSibling !== before || !item.isConnected) this.root.insertBefore(item, before);
      this.update(item, request, hot);
      before = item;
      if (request.id === this.sent) this.reveal(item);
    }
    this.root.classList.toggle('none', !wanted.length);
    if (!wanted.length) this.root.dataset.none = this.L.no_replies;
  }

  // What was just sent from here is brought into view, once.
  reveal(item) {
    this.sent = null;
    const { offsetTop: top, offsetHeight: height } = item,
      list = this.root;
    if (top < list.scrollTop || top + height > list.scrollTop + list.clientHeight)
      list.scrollTop = top + height - list.clientHeight;
  }

  make(request) {
    const item = document.createElement('li');
    item.dataset.number = request.number;
    item.innerHTML = `${badge(request.number - 1)}<p class="said"><b class="who"></b><span class="asked"></span><span
        class="reply"></span><i class="caret"></i></p>
      <span class="state"></span><button type="button" class="ib cancel">${ICON.close}</button>`;
    item.querySelector('.who').textContent = request.name;
    item.querySelector('.asked').textContent = request.prompt;
    const button = item.querySelector('.cancel');
    button.setAttribute('aria-label', fill(this.L.cancel, { n: request.number }));
    button.onclick = () => this.cancel(request.id);
    item.onpointerenter = () => this.point(request.number);
    item.onpointerleave = () => this.point(null);
    this.items.set(request.number, item);
    return item;
  }

  update(item, request, hot) {
    const open = OPEN_REPLIES.includes(request.status),
      part = (name) => item.querySelector(name);
    setText(part('.reply'), request.text);
    setText(part('.state'), this.state(request));
    item.classList.toggle('open', open);
    item.classList.toggle('writing', request.status === 'running');
    item.classList.toggle('hot', hot === request.number);
    part('.cancel').hidden = !open;
    const said = part('.said');
    if (open) said.scrollTop = said.scrollHeight;
  }

  state(request) {
    const L = this.L,
      of = { n: number(request.output_tokens), of: number(request.max_tokens) };
    if (request.status === 'running')
      return fill(request.output_tokens ? L.is_writing : L.is_reading, { ...of, p: number(request.prompt_tokens) });
    if (request.status === 'preempted') return fill(L.is_preempted, of);
    if (OPEN_REPLIES.includes(request.status)) return L.is_waiting;
    return fill(L[`ended_${request.reason}`] || L.ended_stop, of);
  }
}

// ---- memory: a button per block, filled from below ----------------------------------------------------------------------
class BlockMap {
  // pick(number or null, block or null, stays)
  constructor(root, words, pick) {
    Object.assign(this, { root, L: words.live, pick, cells: [], shown: [], at: 0 });
    root.onkeydown = (event) => this.key(event);
  }

  show(frame, hot) {
    const { num_blocks: count, block_size: size } = frame.engine;
    if (this.cells.length !== count) this.build(count);
    for (let id = 0; id < count; id++) {
      const [owner, filled, refs] = frame.blocks.slice(3 * id, 3 * id + 3),
        key = `${owner}|${filled}|${refs}|${hot}`;
      if (this.shown[id] === key) continue;
      this.shown[id] = key;
      this.cell(this.cells[id], id, { owner, filled, refs, size, hot });
    }
  }

  cell(element, id, { owner, filled, refs, size, hot }) {
    const held = refs > 0,
      hue = ((owner - 1) % 12) + 1;
    element.className = [
      held ? (filled < size ? 'part' : 'live') : owner > 0 ? 'cached' : 'free',
      refs > 1 ? 'shared' : '',
      held && hot !== null && hot !== owner ? 'faint' : '',
      held && hot === owner ? 'hot' : '',
    ].join(' ');
    element.style.cssText =
      owner > 0 ? `--c:var(--h${hue});--t:var(--t${hue});--e:${100 - (100 * filled) / size}%` : '';
    setText(element, refs > 1 ? `×${refs}` : held ? String(owner) : '');
    element.dataset.owner = held ? owner : '';
    element.setAttribute(
      'aria-label',
      held ? fill(this.L.block_of, { id, n: owner, filled, size }) : fill(this.L.block_free, { id }),
    );
  }

  build(count) {
    this.root.replaceChildren();
    this.shown = [];
    this.cells = Array.from({ length: count }, (_, id) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.tabIndex = id ? -1 : 0;
      button.onpointerenter = () => this.pick(id, false);
      button.onfocus = () => this.pick(id, false);
      button.onclick = () => this.pick(id, true);
      return button;
    });
    this.root.append(...this.cells);
    this.root.onpointerleave = () => this.pick(null, false);
  }

  // One stop for the tab key; arrows walk over the map.
  key(event) {
    const across = getComputedStyle(this.root).gridTemplateColumns.split(' ').length;
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key];
    if (!by) return;
    event.stopPropagation();
    event.preventDefault();
    const next = clamp(this.cells.indexOf(event.target) + by, 0, this.cells.length - 1);
    this.cells.forEach((cell, id) => {
      cell.tabIndex = id === next ? 0 : -1;
    });
    this.cells[next].focus();
  }
}

// The head of the queue with its reason large, the rest as badges under one BEHIND_HEAD.
function queueHtml(frame, names, W) {
  const L = W.live,
    { head, behind } = frame.queue;
  const who = (n) => `<span class="who">${badge(n - 1)}${esc(names.get(n) || '')}</span>`;
  if (!head) return `<p class="none">${esc(L.nobody_waits)}</p>`;
  const why = head.code ? fill(W.codes[head.code] || head.code, codeDetail(head.detail)) : L.just_came;
  const shown = behind.slice(0, 3),
    more = behind.length - shown.length;
  const rest = behind.length
    ? `<p class="then"><span>${esc(L.behind)}</span><span class="mono">BEHIND_HEAD</span></p>
       <p class="others">${each(shown, who)}${more > 0 ? `<span class="dim">${esc(fill(L.and_more, { n: more }))}</span>` : ''}</p>`
    : '';
  return `<div class="head">${who(head.number)}<b class="mono">${esc(head.code || '')}</b><span class="why">${esc(why)}</span></div>${rest}`;
}

const justHtml = (frame, names, W, rows) =>
  each(
    frame.log.slice(-rows).reverse(),
    ([, n, code, detail]) => `<li>${badge(n - 1)}<span>${esc(names.get(n) || '')}
      ${esc(fill(W.codes[code] || code, codeDetail(detail)))}</span><span class="mono">${esc(code)}</span></li>`,
  ) || `<li class="none">${esc(W.log_empty)}</li>`;

// A slot counts from 1 on the page.
const codeDetail = (detail = {}) => ('slot' in detail ? { ...detail, slot: detail.slot + 1 } : detail);

// What the engine runs on: the machines, the models, and a change that was asked for. Of this visitor: `asking`, a change
// ({model or machine}) that waits for an answer about those inside, and `refused`, why the last one was not begun.
function engineRoomHtml(frame, visitor, W) {
  const L = W.live,
    button = (what, word) => `<button type="button" class="btn" ${what}>${esc(word)}</button>`;
  return `<h3>${esc(L.machines)}</h3>${each(['cpu', 'gpu'], (key) => machineHtml(key, frame, L, button))}
    <h3>${esc(L.models)}</h3>${each(['tiny', 'smollm2'], (key) => modelHtml(key, frame, L, button))}
    <div role="status">${changeHtml(frame, visitor, L, button)}</div>`;
}

const gigabytes = (n) => number(Math.round(n / 1e8) / 10);

function machineHtml(key, frame, L, button) {
  const { gpu } = frame,
    runs = frame.model && frame.model.machine === key,
    can = key === 'cpu' || gpu.state === 'ready' || gpu.state === 'interpreter';
  let about = '';
  if (key === 'gpu' && gpu.state === 'ready')
    about = fill(L.gpu_memory, { name: gpu.name, free: gigabytes(gpu.free), total: gigabytes(gpu.total) });
  else if (key === 'gpu') about = L[`gpu_${gpu.state === 'none' ? gpu.reason : gpu.state}`];
  let now = '';
  if (runs) now = `<span>${esc(L.model_runs)}</span>`;
  else if (can && frame.model) now = button(`data-do="switch" data-machine="${key}"`, L.machine_switch);
  return `<p data-key="${key}"><b>${esc(L[`machine_${key}`])}</b>${about && `<span class="about">${esc(about)}</span>`}${now}</p>`;
}

function modelHtml(key, frame, L, button) {
  const model = frame.models[key],
    megabytes = (n) => number(Math.round(n / 1e6));
  const runs = frame.model && frame.model.key === key;
  const fetching = () =>
    `<progress max="${model.total || 1}" ${model.total ? `value="${model.done}"` : ''}></progress>
      <span>${esc(fill(L.fetching, { done: megabytes(model.done), total: model.total ? megabytes(model.total) : '?' }))}</span>`;
  const get = (word) => button(`data-do="fetch" data-model="${key}"`, word),
    change = button(`data-do="switch" data-model="${key}"`, L.model_switch);
  const states = {
    absent: () => get(L.fetch),
    fetching,
    fetched: () => change,
    loading: () => `<span>${esc(L.model_loading)}</span>`,
    ready: () => (runs ? `<span>${esc(L.model_runs)}</span>` : change),
    failed: () => `<span class="warn">${esc(fill(L.model_failed, { message: model.message }))}</span>${get(L.again)}`,
  };
  return `<p data-key="${key}"><b>${esc(L[`model_${key}`])}</b><span class="about">${esc(L[`model_${key}_about`])}</span>${states[model.state]()}</p>`;
}

// A change on its way, or the question what becomes of those inside; else what the last one failed of.
function changeHtml(frame, { asking, refused }, L, button) {
  const { change } = frame;
  if (change) {
    const to = `${L[`model_${change.key}`]} · ${L[`machine_${change.machine}`]}`,
      what = fill(change.draining ? L.change_draining : L.change_loading, { to, n: number(change.left) });
    const now = `data-do="switch" data-running="cancel" data-model="${change.key}" data-machine="${change.machine}"`;
    return `<p class="change"><span>${esc(what)}</span>${change.draining ? button(now, L.change_cancel) : ''}
      ${button('data-do="stay"', L.change_stay)}</p>`;
  }
  if (asking) {
    const what = each(Object.entries(asking), ([name, value]) => `data-${name}="${value}" `),
      open = frame.requests.filter((r) => OPEN_REPLIES.includes(r.status)).length;
    return `<p class="change"><span>${esc(fill(L.change_ask, { n: number(open) }))}</span>
      ${button(`data-do="switch" data-running="finish" ${what}`, L.change_finish)}
      ${button(`data-do="switch" data-running="cancel" ${what}`, L.change_cancel)}${button('data-do="stay"', L.change_stay)}</p>`;
  }
  const failed = frame.state === 'ready' && frame.message ? fill(L.model_failed, { message: frame.message }) : '';
  return refused || failed ? `<p class="warn">${esc(refused || failed)}</p>` : '';
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
