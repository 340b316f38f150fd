// Parts of the board: its markup, messages, cells, gauges, tables, log and block history, the opening's editor, the twin.
// Nothing is counted here: frames say what every cell, table and share is.

const SIDES = ['contiguous', 'paged'];
const PARTS = ['live', 'reserved', 'tail_waste', 'hole', 'free'];
const OVER = ['finished', 'refused', 'aborted'];
const hueStyle = (n) => (n ? `--c:var(--h${((n - 1) % 12) + 1});--t:var(--t${((n - 1) % 12) + 1})` : '');
const listed = (items) => items.join(document.documentElement.lang.startsWith('zh') ? '、' : ', ');

function boardHtml(data) {
  const W = data.words,
    B = W.board,
    side = (name, html) => `<div class="side" data-side="${name}">${html}</div>`;
  return `<div class="bar">
      <button type="button" class="btn p" data-act="s">${esc(B.token)} <kbd>G</kbd></button>
      <button type="button" class="btn" data-act="auto"></button>
      <span class="finish"></span>
      <span class="arrive">${esc(B.arrive)}
        <label>${esc(B.length)}<input class="length" inputmode="numeric" value="9" maxlength="12"></label>
        <label>${esc(B.limit)}<input class="limit" inputmode="numeric" value="12" maxlength="12"></label>
        <button type="button" class="btn" data-act="arrive">${esc(B.enter)} <kbd>N</kbd></button></span>
      <span class="tip">${esc(B.tip)}</span>
      <span class="ends">
        <button type="button" class="btn" data-act="undo">${esc(B.undo)} <kbd>Z</kbd></button>
        <button type="button" class="btn" data-act="redo">${esc(B.redo)} <kbd>Y</kbd></button>
        <button type="button" class="btn" data-act="reset">${esc(B.reset)} <kbd>R</kbd></button>
        <button type="button" class="ib link" data-act="link" aria-label="${esc(W.link)}">${ICON.link}<span>${esc(W.link)}</span></button>
      </span>
    </div>
    <p class="err arrive" role="alert"></p><p class="err bar" role="alert"></p>
    <div class="stage duo">${each(SIDES, (name) =>
      side(
        name,
        `<div class="msg" role="status"></div>
        <header><h3>${esc(B[name])}</h3><span class="pm sub"></span><span class="big"></span>${chip(W, 'counted')}</header>
        <div class="rows" role="group" aria-label="${esc(B[name])}"></div>
        <div class="gauge"></div>`,
      ),
    )}</div>
    <div class="rest duo">${each(SIDES, (name) =>
      side(
        name,
        `<div class="lg"></div><h4 class="tn"></h4><ol class="tb"></ol><div class="said" hidden><h4></h4><ol></ol></div>
        <h4 class="ln"></h4><ol class="log"></ol>`,
      ),
    )}</div>
    <div class="more"><p class="source"><span>${esc(W.live.source)}</span><span class="seg" role="group" aria-label="${esc(W.live.source)}">
        <button type="button" data-source="counted">${esc(W.counted)}</button>
        <button type="button" data-source="model">${esc(W.live.on_model)}</button></span><span class="say" role="status"></span></p>
      <details class="opening"><summary>${esc(B.opening)}</summary><div class="body"></div></details>
      <p class="badge"><span class="dot"></span><span class="what">${esc(W.badge)}</span> ${chip(W, 'counted', esc(W.badge_note))}
        <span class="place-now"></span><span class="keys">${each(B.keys.split(' · '), keyHint)}</span></p>
      <details class="twin"><summary>${esc(W.twin.title)}</summary><div class="scroll"></div></details></div>`;
}

const finishHtml = (n, B) =>
  `<button type="button" class="btn" data-finish="${n}" aria-label="${esc(fill(B.finish_one, { n }))}">${badge(n - 1)}${n < 10 ? `<kbd>${n}</kbd>` : ''}</button>`;

// ---- the answer to a press -----------------------------------------------------------------------------------------
function drawMessage(box, frame, side, W) {
  const [code, text] = messageOf(frame, side, W),
    bad = WAITS.includes(code) || code === 'PREEMPTED_BY' || code === 'TOO_BIG';
  const shown = code === 'NO_RUN' ? `NO_RUN(${eventOf(frame[side], code)[3].largest_run})` : code;
  box.classList.toggle('bad', bad);
  box.dataset.code = shown;
  setHtml(box, `${shown ? `<span class="mono">${esc(shown)}</span>` : ''}<span>${esc(text)}</span>`);
}
const WAITS = ['NO_RUN', 'NO_BLOCKS', 'WATERMARK', 'SLOTS', 'BUDGET'];
const eventOf = (now, code) => now.events.find((event) => event[1] === code);

function messageOf(frame, side, W) {
  const B = W.board,
    now = frame[side],
    of = (code) => now.events.filter((event) => event[1] === code);
  for (const code of [...WAITS, 'PREEMPTED_BY']) {
    const found = eventOf(now, code);
    if (found) return [code, fill(B[`msg_${code}`], { n: found[2], ...found[3] })];
  }
  const entered = [...of('ADMITTED'), ...of('RESUMED')];
  const tables = entered.map((event) => now.tables.find((table) => table.n === event[2])).filter(Boolean);
  if (tables.length) {
    if (entered.length === 1) {
      const [{ n, blocks }] = tables;
      const last = blocks.length - 1;
      const values = { n, start: blocks[0], end: blocks[last], length: blocks.length, blocks: listed(blocks), last };
      const word = side === 'paged' && !last ? 'msg_in_paged_one' : `msg_in_${side}`;
      return [entered[0][1], fill(B[word], values)];
    }
    const sizes = tables.map((table) => table.blocks.length);
    const names = { ns: listed(tables.map((table) => table.n)), sizes: listed(sizes) };
    return [entered[0][1], fill(B[`msg_all_in_${side}`], names)];
  }
  const ended = of('FINISHED');
  if (ended.length) {
    const free = now.changes.filter((change) => change[1] === 'freed').map((change) => change[0]);
    const text = { ns: listed(ended.map((event) => event[2])), blocks: listed(free), start: Math.min(...free), end: Math.max(...free) };
    return ['FINISHED', fill(B[free.length ? `msg_out_${side}` : 'msg_out'], text)];
  }
  if (frame.action[0] === 'a') return ['', fill(B.msg_door, { n: now.requests[now.requests.length - 1].n })];
  if (!frame.action) return ['', fill(B.msg_opening, { count: now.requests.length })];
  const taken = now.changes.filter((change) => change[1] === 'taken'),
    written = now.changes.filter((change) => change[1] === 'written');
  if (!written.length) return ['', B.msg_nobody];
  if (side === 'contiguous') return ['', fill(B.msg_wrote, { count: written.length })];
  if (!taken.length) return ['', B.msg_own_blocks];
  return ['', listed(taken.map(([block, , n]) => fill(B.msg_taken, { n, block })))];
}

// ---- cells ---------------------------------------------------------------------------------------------------------
function drawCells(box, now, before, side, S, B) {
  const rows = box.querySelector('.rows'),
    wide = +S.pool > 64 ? 32 : 16,
    b = side === 'paged' ? +S.b : 1,
    shape = `${S.pool}|${b}`;
  if (rows.dataset.shape !== shape) {
    rows.dataset.shape = shape;
    rows.style.setProperty('--wide', wide);
    const cell = (i) =>
      `<button type="button" class="cell" data-slot="${i}" data-block="${Math.floor(i / b)}" tabindex="${i ? -1 : 0}"></button>`;
    const line = (first) => {
      const places = Array.from({ length: wide }, (_, k) => first + k);
      return `<div class="rl"></div><div class="cr${b > 1 ? ' grouped' : ''}" style="--b:${b}">${each(places, cell)}</div>`;
    };
    rows.innerHTML = each(Array.from({ length: +S.pool / wide }, (_, y) => y * wide), line);
    rows.querySelectorAll('.cell').forEach((cell, i) => {
      if (b > 1 && i % b === 0) cell.classList.add('first');
    });
    before = null;
  }
  const heads = new Set([0]); // where a new owner or a new block begins
  now.cells.forEach((cell, i) => {
    if (i % b === 0 && (b > 1 || !i || now.cells[i - 1].owner !== cell.owner)) heads.add(i);
  });
  const cells = rows.querySelectorAll('.cell');
  now.cells.forEach(({ state, owner }, i) => {
    const cell = cells[i],
      place = side === 'paged' ? logicalOf(now, Math.floor(i / b)) : null;
    const was = before && before.cells[i];
    if (was && was.state === state && was.owner === owner) return; // nothing new here
    cell.className = `cell ${state}${cell.classList.contains('first') ? ' first' : ''}`;
    cell.dataset.state = state;
    cell.dataset.owner = owner;
    cell.style.cssText = hueStyle(owner);
    // On a large board cells are too small for a number; it stands in the label above.
    cell.textContent = owner && heads.has(i) && (wide < 32 || (side === 'paged' && b < 3)) ? owner : '';
    const where = fill(side === 'paged' ? B.where_block : B.where_slot, { id: Math.floor(i / b), i });
    const whose = owner ? fill(place === null ? B.whose : B.whose_logical, { n: owner, k: place }) : '';
    cell.setAttribute('aria-label', `${where}${whose} · ${B[state]}`);
    if (was && owner !== was.owner && !still.matches)
      cell.animate([{ opacity: 0.2, transform: 'scale(.7)' }, { opacity: 1, transform: 'none' }], 240);
  });
  rows.querySelectorAll('.rl').forEach((line, y) => setHtml(line, labelsHtml(now, side, y * wide, wide, b, B)));
}
// Which logical block of its request a physical block is.
function logicalOf(now, block) {
  const table = now.tables.find((one) => one.blocks.includes(block));
  return table ? table.blocks.indexOf(block) : null;
}

function labelsHtml(now, side, first, wide, b, B) {
  const label = (from, span, html, warn) =>
    `<span${warn ? ' class="w"' : ''} style="grid-column:${from + 1}/span ${span}">${html}</span>`;
  if (side === 'paged') {
    if (b < 3) return '';
    return Array.from({ length: wide / b }, (_, k) => {
      const id = first / b + k,
        place = logicalOf(now, id);
      const owner = wide < 32 || place === null ? '' : badge(now.cells[id * b].owner - 1);
      const logical = place === null ? '' : `<span class="lo"> · ${esc(fill(B.logical, { k: place }))}</span>`;
      return label(k * b, b, `${owner}${esc(B.block)} <b>${id}</b>${logical}`);
    }).join('');
  }
  const runs = [
    ...now.tables.map(({ n, blocks: { 0: start, length } }) => [
      start,
      length,
      `<b>${n}</b> <span class="verb">${esc(B.reserves)}</span> <span class="word">${length}</span>`,
      `<b>${n}</b> <span class="word">${esc(B.goes_on)}</span>`,
    ]),
    ...now.runs.map(([start, length, hole]) => [
      start,
      length,
      `<span class="word">${esc(B.empty)} <b>${length}</b></span>`,
      `<span class="word">${esc(B.empty)} <span class="verb">${esc(B.goes_on)}</span></span>`,
      hole,
    ]),
  ];
  return each(runs, ([start, length, html, on, warn]) => {
    const from = Math.max(start, first),
      to = Math.min(start + length, first + wide);
    return from < to ? label(from - first, to - from, from === start ? html : on, warn) : '';
  });
}

function walkGrid(event, rows, wide) {
  const cell = event.target.closest('.cell'),
    step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide }[event.key];
  if (!cell || !step) return;
  const cells = [...rows.querySelectorAll('.cell')],
    next = cells[+cell.dataset.slot + step];
  event.preventDefault();
  event.stopPropagation();
  if (!next) return;
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

// ---- shares, gauge and its key -------------------------------------------------------------------------------------
function drawShare(box, now, side, W, S) {
  const B = W.board,
    usage = now.usage;
  setHtml(box.querySelector('.sub'), esc(fill(B[`${side}_sub`], { b: S.b })));
  setHtml(box.querySelector('.big'), `${percent(usage.live_share)}<small>%</small>`);
  box.querySelector('.chip').dataset.src = esc(fill(B.share_note, { live: usage.live, pool: usage.pool_slots }));
  const gauge = box.querySelector('.gauge');
  if (!gauge.childElementCount) gauge.innerHTML = each(PARTS, (part) => `<i class="${part}"></i>`);
  for (const [i, part] of PARTS.entries()) {
    gauge.children[i].style.flexGrow = usage[part];
    gauge.children[i].className = usage[part] ? part : `${part} nil`;
  }
  const key = (part) => `<span><i class="sw ${part}"></i>${esc(B[part])} <b data-part="${part}">${usage[part]}</b></span>`;
  setHtml(box.closest('.board').querySelector(`.rest [data-side=${side}] .lg`), each(PARTS, key));
}

// ---- tables --------------------------------------------------------------------------------------------------------
function drawTable(box, now, before, side, B, root) {
  setHtml(box.querySelector('.tn'), esc(B[`table_${side}`]));
  const rows = now.requests
    .filter((request) => !OVER.includes(request.status))
    .map((request) => {
      const table = now.tables.find((one) => one.n === request.n);
      const wait = request.why ? fill(B.waiting, { why: request.why[0] }) : B.at_door;
      if (!table) return `<li class="w">${badge(request.n - 1)}<span>${esc(wait)}</span></li>`;
      if (side === 'contiguous') {
        const text = fill(B.run, { start: table.blocks[0], length: table.blocks.length, written: table.written });
        return `<li data-table="${request.n}">${badge(request.n - 1)}<span>${esc(text)}</span></li>`;
      }
      const entries = each(
        table.blocks,
        (block, k) =>
          `<button type="button" data-block="${block}" aria-label="${esc(fill(B.entry, { k, block }))}"><small>${k}</small>${block}</button>`,
      );
      const count = fill(B.tokens, { n: table.written });
      return `<li data-table="${request.n}" style="${hueStyle(request.n)}">${badge(request.n - 1)}<span class="bt">${entries}</span><span class="dim">${esc(count)}</span></li>`;
    });
  setHtml(box.querySelector('.tb'), rows.join('') || `<li class="none">${esc(B.nobody)}</li>`);
  if (side !== 'paged' || !before || still.matches) return;
  // A block that was just taken moves from its place in the pool into the table.
  for (const [block, what] of now.changes) {
    const entry = what === 'taken' && box.querySelector(`.bt [data-block="${block}"]`),
      cell = entry && root.querySelector(`.stage [data-side=paged] .cell[data-block="${block}"]`);
    if (!cell) continue;
    const from = cell.getBoundingClientRect(),
      to = entry.getBoundingClientRect();
    const shift = `translate(${from.left - to.left}px, ${from.top - to.top}px)`;
    entry.animate([{ transform: shift }, { transform: 'none' }], { duration: 280, easing: 'ease-out' });
  }
}

// ---- log, or what became of one block ------------------------------------------------------------------------------
function drawLog(box, known, side, block, W) {
  const B = W.board;
  if (block < 0) {
    setHtml(box.querySelector('.ln'), esc(W.log));
    const events = known.flatMap((frame) => frame[side].events).filter((event) => event[1] !== 'BEHIND_HEAD');
    const item = ([step, code, n, detail]) => {
      const shown = code === 'NO_RUN' ? `NO_RUN(${detail.largest_run})` : code;
      return `<li data-code="${esc(shown)}"><span class="dim">${esc(fill(B.step, { n: step + 1 }))}</span>${badge(n - 1)}
        <span class="mono">${esc(shown)}</span><em>${esc(logText(code, detail, side, W))}</em></li>`;
    };
    setHtml(box.querySelector('.log'), each(events.slice(-5), item) || `<li class="none">${esc(W.log_empty)}</li>`);
    return;
  }
  const name = fill(side === 'paged' ? B.history_block : B.history_slot, { id: block });
  setHtml(
    box.querySelector('.ln'),
    `<b>${esc(name)}</b> <button type="button" class="ib unpick" aria-label="${esc(W.close)}">${ICON.close}</button>`,
  );
  const lines = known.flatMap((frame, i) =>
    frame[side].changes
      .filter((change) => change[0] === block)
      .map(([, what, n, count]) => ({ at: i, what, n, count })),
  );
  const item = ({ at, what, n, count }) =>
    `<li data-what="${what}"><span class="dim">${esc(fill(B.press, { n: at }))}</span>${n ? badge(n - 1) : '<span></span>'}
      <span class="whole">${esc(fill(B[`was_${what}`], { n, count }))}</span></li>`;
  setHtml(box.querySelector('.log'), each(lines.slice(-9), item) || `<li class="none">${esc(B.never)}</li>`);
}
function logText(code, detail, side, W) {
  const B = W.board,
    own = B[`log_${code}_${side}`] || B[`log_${code}`];
  return fill(own || W.codes[code], detail);
}

// ---- what the model wrote, where it was asked to -------------------------------------------------------------------
function drawSaid(root, written, W) {
  const B = W.board,
    known = written && written.texts;
  for (const side of SIDES) {
    const box = root.querySelector(`.rest [data-side=${side}] .said`);
    box.hidden = !known;
    if (!known) continue;
    const times = written.ms[side].filter((ms) => ms !== null),
      last = times.length ? `${fill(B.took, { ms: times[times.length - 1].toFixed(1) })} ` : '';
    const note = fill(B.took_note, { machine: machineText(written.model, W.live) });
    setHtml(box.querySelector('h4'), `${esc(B.said)} <span class="clock">${esc(last)}${last ? chip(W, 'measured', esc(note)) : ''}</span>`);
    const item = ([n, [prompt, reply]]) =>
      `<li>${badge(n - 1)}<span lang="zh-Hant"><span class="dim">${esc(prompt)}</span><b>${esc(reply)}</b></span></li>`;
    setHtml(box.querySelector('ol'), each(Object.entries(written.texts[side]), item));
    decorate(box);
  }
}

// ---- the formula's terms, from the board ---------------------------------------------------------------------------
function termHtml(id, frame, S) {
  if (!frame) return '';
  const tables = frame.paged.tables;
  const values = {
    b: () => `<b>b = ${esc(S.b)}</b>`,
    n: () => each(tables, (table) => `${badge(table.n - 1)} ${table.written} `),
    allocated: () => each(frame.paged.requests.filter((r) => r.held), (r) => `${badge(r.n - 1)} ${r.held} `),
    waste: () => each(frame.paged.requests.filter((r) => r.held), (r) => `${badge(r.n - 1)} ${r.waste} `),
  };
  return values[id] ? values[id]() : '';
}

// ---- text twin -----------------------------------------------------------------------------------------------------
function boardTwinHtml(frame, W) {
  const B = W.board,
    T = W.twin;
  const table = (caption, heads, rows) =>
    `<table><caption>${esc(caption)}</caption><thead><tr>${each(heads, (h) => `<th>${esc(h)}</th>`)}</tr></thead>
      <tbody>${each(rows, (row) => `<tr>${each(row, (cell) => `<td>${esc(cell)}</td>`)}</tr>`)}</tbody></table>`;
  const parts = PARTS.map((part) => [B[part], ...SIDES.map((side) => frame[side].usage[part])]);
  const share = [B.share, ...SIDES.map((side) => `${percent(frame[side].usage.live_share)}%`)];
  const place = (request, side) => {
    const found = frame[side].tables.find((one) => one.n === request.n);
    if (!found) return OVER.includes(request.status) ? B.over : request.why ? request.why[0] : B.at_door;
    const { blocks } = found;
    return side === 'paged' ? blocks.join(' → ') : `${blocks[0]}–${blocks[blocks.length - 1]}`;
  };
  return (
    table(B.twin_parts, ['', B.contiguous, B.paged], [...parts, share]) +
    each(SIDES, (side) =>
      table(
        B[side],
        [T.request, B.length, B.limit, B.live, B.place_in],
        frame[side].requests.map((r) => [r.n, r.length, r.limit, r.written, place(r, side)]),
      ),
    )
  );
}

// ---- the opening: lengths, limits and rules ------------------------------------------------------------------------
// What a field holds: full-width digits as plain ones, and no comma or colon, which set numbers apart in a list.
const typedIn = (input) => input.value.normalize('NFKC').trim().replaceAll(',', '，').replaceAll(':', '：');
const wrongField = (error) => (['board_limit', 'board_limit_word', 'board_pool'].includes(error.code) ? 'limit' : 'length');

class OpeningEditor {
  // use(change) is called with {open, pool, b, seats, watermark, budget} as typed; nothing is checked here.
  constructor(root, data, use) {
    Object.assign(this, { root, data, B: data.words.board, use });
    this.body = root.querySelector('.body');
    this.draw([['9', '16']], data.board.defaults);
  }

  // Show a state, unless somebody is in the middle of typing another.
  read(state) {
    if (JSON.stringify(this.typed()) !== this.last) return;
    this.draw(
      state.open.split(',').map((pair) => pair.split(':')),
      state,
    );
  }

  draw(pairs, rules) {
    const { B } = this,
      input = (name, value) =>
        `<label>${esc(B[name])}<input class="${name}" inputmode="numeric" maxlength="9" value="${esc(value ?? '')}"></label>`;
    const row = ([length, limit], i) => `<li data-row="${i}">${badge(i)}${input('length', length)}${input('limit', limit)}
        <button type="button" class="ib drop" data-drop="${i}" aria-label="${esc(fill(B.drop, { n: i + 1 }))}"${pairs.length < 2 ? ' disabled' : ''}>${ICON.close}</button></li>`;
    const select = (key) => {
      const shown = (value) => (value === '' ? B.no_limit : key === 'watermark' ? `${Math.round(value * 100)}%` : value);
      const option = (value) =>
        `<option value="${esc(value)}"${value === rules[key] ? ' selected' : ''}>${esc(shown(value))}</option>`;
      return `<label>${esc(B[`rule_${key}`])}<select data-rule="${key}">${each(this.data.board[key], option)}</select></label>`;
    };
    this.body.innerHTML = `<ol>${pairs.map(row).join('')}</ol>
      <p class="row"><button type="button" class="btn add"${pairs.length >= this.data.board.requests ? ' disabled' : ''}>${esc(B.add)}</button>
        ${each(['pool', 'b', 'seats', 'watermark', 'budget'], select)}</p>
      <p class="row"><button type="button" class="btn p use">${esc(B.use)}</button>
        <span class="err opening" role="alert"></span></p>`;
    this.last = JSON.stringify(this.typed());
    const redraw = (next) => {
      const { last } = this;
      this.draw(next, this.typed());
      this.last = last;
    };
    const use = () => this.use(this.typed());
    this.body.querySelector('.use').onclick = use;
    this.body.querySelector('.add').onclick = () => redraw([...this.pairs(), ['8', '12']]);
    for (const button of this.body.querySelectorAll('.drop'))
      button.onclick = () => redraw(this.pairs().filter((_, i) => i !== +button.dataset.drop));
    for (const field of this.body.querySelectorAll('input'))
      field.onkeydown = (event) => {
        if (event.key === 'Enter') use();
      };
  }

  // What was typed is on the board now.
  taken() {
    this.last = JSON.stringify(this.typed());
  }

  pairs() {
    return [...this.body.querySelectorAll('[data-row]')].map((row) => [...row.querySelectorAll('input')].map(typedIn));
  }

  typed() {
    const rules = [...this.body.querySelectorAll('[data-rule]')].map((field) => [field.dataset.rule, field.value]);
    return {
      open: this.pairs()
        .map((pair) => pair.join(':'))
        .join(','),
      ...Object.fromEntries(rules),
    };
  }
}
