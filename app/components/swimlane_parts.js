// Parts of the player: its markup, the controls of the workload, the decision log, the text twin.

const POLICIES = ['static', 'continuous'];
const SPEEDS = [
  [30, 'slow'],
  [120, 'medium'],
  [400, 'fast'],
];
const MODES = ['static', 'continuous', 'both'];

function playerHtml(data) {
  const W = data.words;
  return `<div class="stage">${controlsHtml(data, W)}
      ${each(POLICIES, (policy) => panelHtml(policy, W))}
      <canvas class="axis" aria-hidden="true"></canvas>${transportHtml(W)}</div>
    <div class="rest">${sourceHtml(W)}${workloadHtml(data, W)}${legendHtml(W)}
      <div class="two">
        <div class="lens"><h3></h3><canvas role="img"></canvas></div>
        <div class="said" hidden><h3></h3><ol class="said-now"></ol></div>
        <div><h3 class="whose"></h3><ol class="log"></ol></div>
      </div>
      <p class="badge"><span class="dot"></span><span class="what"></span> <span class="how"></span>
        <span class="keys">${each(W.keys.split(' · '), keyHint)}</span></p>
      <details class="twin"><summary>${esc(W.twin.title)}</summary><div class="scroll"></div></details>
    </div>`;
}

const controlsHtml = (data, W) => `<div class="ctl">
    <div class="seg modes" role="group" aria-label="${esc(W.policies)}">
      ${each(MODES, (mode) => `<button type="button" data-mode="${mode}">${esc(W.mode[mode])}</button>`)}</div>
    <label class="b"><span>${esc(W.slots)}</span>
      <input class="slots" type="range" min="0" max="${data.slots.length - 1}" step="1"><output></output></label>
    <button type="button" class="ib reset" aria-label="${esc(W.reset)}">${ICON.reset}<span>${esc(W.reset)}</span></button>
    <button type="button" class="ib link" aria-label="${esc(W.link)}">${ICON.link}<span>${esc(W.link)}</span></button>
  </div>`;

const panelHtml = (policy, W) => `<div class="pan" data-policy="${policy}">
    <header><button type="button" class="pn">${esc(W.policy[policy])}</button><span class="pm"></span>
      <span class="gs" hidden></span><span class="big"></span>${chip(W, 'counted')}</header>
    <p class="meas" hidden></p>
    <canvas role="img" tabindex="0"></canvas>
  </div>`;

const transportHtml = (W) => `<div class="tr">
    <button type="button" class="pl"></button>
    <button type="button" class="ib next" aria-label="${esc(W.one_step)}">${ICON.step}</button>
    <span class="st"></span>
    <div class="seg speeds" role="group" aria-label="${esc(W.speed)}">
      ${each(SPEEDS, ([speed, name]) => `<button type="button" data-speed="${speed}">${esc(W[name])}</button>`)}</div>
    ${runPacesHtml(W)}
  </div>`;

function workloadHtml(data, W) {
  const options = (values, word) => each(values, (value) => `<option value="${value}">${esc(word(value))}</option>`);
  const { kinds, rates, sizes, gaps } = data.arrivals;
  const arrivals = options(Object.keys(kinds), (name) => W.arrival_names[name]);
  return `<div class="load">
    <label>${esc(W.lengths)}<select class="lengths">${options(data.lengths, (name) => W.length_names[name])}</select></label>
    <label>${esc(W.arrivals)}<select class="kind">${arrivals}</select></label>
    <label class="rate"><select>${options(rates, (rate) => fill(W.rate, { rate }))}</select></label>
    <label class="burst"><select class="size">${options(sizes, (n) => fill(W.burst_size, { n }))}</select></label>
    <label class="burst"><select class="gap">${options(gaps, (n) => fill(W.burst_gap, { n }))}</select></label>
    <span class="facts"></span>
    <div class="own" hidden>
      <textarea spellcheck="false" maxlength="20000" aria-label="${esc(W.own_label)}" placeholder="12, 40, 7"></textarea>
      <button type="button" class="btn use">${esc(W.own_go)}</button><div class="err" role="alert"></div>
    </div>
  </div>`;
}

function legendHtml(W) {
  const entry = (pattern, word, more = '') =>
    `<span${more}><i class="sw ${pattern}">${pattern === 'live' ? 7 : ''}</i>${esc(word)}</span>`;
  return `<div class="lg">
    ${entry('live', W.legend_live)}${entry('prefill', W.legend_prefill, ' class="other" hidden')}
    ${entry('idle', W.legend_idle)}${entry('early', W.legend_early, ' class="late" hidden')}
    ${entry('tail', W.legend_tail)}${entry('now', W.legend_now)}<span class="unit">${esc(W.legend_cell)}</span>
  </div>`;
}

// "space|plays" → a key and what it does.
function keyHint(part) {
  const [key, does] = part.split('|');
  return does ? `<span class="x"><kbd>${esc(key)}</kbd> ${esc(does)}</span>` : esc(part);
}

// The controls under the lanes: lengths, arrivals, the learner's own list. change(spec) tries a workload.
class WorkloadControls {
  constructor(root, data, change) {
    this.root = root;
    this.data = data;
    const $ = (selector) => root.querySelector(selector),
      { kinds } = data.arrivals;
    $('.lengths').onchange = (event) => {
      root.querySelector('.own').hidden = event.target.value !== 'own';
      if (event.target.value === 'own' && !$('textarea').value.trim()) return $('textarea').focus();
      return change({ lengths: event.target.value, own: $('textarea').value });
    };
    $('.use').onclick = () => change({ lengths: 'own', own: $('textarea').value });
    $('textarea').onkeydown = (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) $('.use').click();
    };
    $('.kind').onchange = (event) => change({ arrivals: kinds[event.target.value] });
    $('.rate select').onchange = (event) => change({ arrivals: `poisson:${event.target.value}` });
    const burst = () => change({ arrivals: `bursts:${$('.size').value}:${$('.gap').value}` });
    $('.size').onchange = burst;
    $('.gap').onchange = burst;
  }

  // What is shown: the workload that runs, or the list that could not run with the reason beside it.
  show(spec, error) {
    const $ = (selector) => this.root.querySelector(selector);
    const W = this.data.words;
    const focused = this.root.getRootNode().activeElement;
    const typing = !$('.own').hidden && [$('textarea'), $('.lengths')].includes(focused);
    const [kind, first, second] = spec.arrivals.split(':');
    $('.own').hidden = !error && !typing && spec.lengths !== 'own';
    $('.lengths').value = $('.own').hidden ? spec.lengths : 'own';
    $('.kind').value = kind;
    $('.rate').hidden = kind !== 'poisson';
    for (const label of this.root.querySelectorAll('.burst')) label.hidden = kind !== 'bursts';
    if (kind === 'poisson') $('.rate select').value = first;
    if (kind === 'bursts') {
      $('.size').value = first;
      $('.gap').value = second;
    }
    if (spec.own && focused !== $('textarea')) $('textarea').value = spec.own;
    $('textarea').setAttribute('aria-invalid', error ? 'true' : 'false');
    $('.err').textContent = error ? fill(W.errors[error.code] || W.errors.broken, error.detail) : '';
  }

  facts(lanes) {
    const text = fill(this.data.words.facts, {
      n: number(lanes.requests),
      min: number(Math.min(...lanes.lengths)),
      max: number(Math.max(...lanes.lengths)),
      total: number(lanes.useful_cells),
    });
    const element = this.root.querySelector('.facts');
    if (element.textContent !== text) element.textContent = text;
  }
}

// The last decisions before step t, each with who, code and the reason in words.
function logHtml(lanes, t, lines, W) {
  let end = lanes.log.length;
  while (end > 0 && lanes.log[end - 1][0] >= t) end--;
  const rows = lanes.log.slice(Math.max(0, end - lines), end).map(([step, request, code, detail]) => {
    const word = W.outcomes[`${code}_${lanes.policy}`] || W.codes[code] || '';
    const values = { ...detail, slot: (detail.slot ?? 0) + 1 };
    return `<li data-code="${esc(code)}"><span class="dim">${esc(fill(W.at_step, { t: number(step + 1) }))}</span>
      ${badge(request)}<span class="mono">${esc(code)}</span><em>${esc(fill(word, values))}</em></li>`;
  });
  return rows.join('') || `<li class="none">${esc(W.log_empty)}</li>`;
}

// The picture as text: the runs, who sits where at this step, and every request of the followed policy.
function twinHtml(pair, shown, followed, t, W) {
  const T = W.twin;
  const row = (cells) => `<tr>${each(cells, (cell) => `<td>${esc(cell)}</td>`)}</tr>`;
  const table = (caption, heads, rows) => `<table><caption>${esc(caption)}</caption>
    <tr>${each(heads, (head) => `<th scope="col">${esc(head)}</th>`)}</tr>${each(rows, row)}</table>`;
  const runs = shown.map((p) => [
    W.policy[p],
    number(pair[p].steps),
    percent(pair[p].utilisation) + '%',
    number(pair[p].useful_cells),
    number(pair[p].requests),
  ]);
  const lanes = pair[followed],
    step = clamp(t, 1, lanes.span) - 1,
    kinds = [T.writing, T.prefill, T.recompute];
  const seats = lanes.rows.map((_, slot) => {
    const cell = t > 0 ? cellAt(lanes, slot, step) : null;
    if (!cell || cell.empty) return [slot + 1, '–', cell ? [T.idle, T.tail, T.early][cell.kind] : '–', '–'];
    return [slot + 1, cell.request + 1, kinds[cell.kind], number(step - cell.start + 1)];
  });
  const requests = lanes.lengths.map((length, request) => {
    const own = lanes.segs.filter((seg) => seg.request === request);
    return [
      request + 1,
      number(length),
      number(Math.ceil(lanes.arrivals[request]) + 1),
      own.length ? own[0].slot + 1 : '–',
      own.length ? number(own[0].start + 1) : '–',
      own.length ? number(own[own.length - 1].end) : '–',
    ];
  });
  return (
    table(T.runs, [T.policy, T.steps, T.util, T.useful, T.requests], runs) +
    table(fill(T.seats, { policy: W.policy[followed], t: number(t) }), [T.slot, T.request, T.state, T.written], seats) +
    table(
      fill(T.all, { policy: W.policy[followed] }),
      [T.request, T.length, T.arrival, T.slot, T.enters, T.leaves],
      requests,
    )
  );
}
