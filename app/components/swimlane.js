// The swimlane: plays `trace.lanes()` of the engine. It draws what the trace says and schedules nothing.
// t is the number of steps played, 0 … span; a cell (slot, step) is drawn once step < t.
const GUTTER = 22;
function unpack(raw) {
  const segs = [], idle = [];
  for (let i = 0; i < raw.segs.length; i += 5) segs.push({ slot: raw.segs[i], s: raw.segs[i + 1], n: raw.segs[i + 2], r: raw.segs[i + 3], kind: raw.segs[i + 4] });
  for (let i = 0; i < raw.idle.length; i += 4) idle.push({ slot: raw.idle[i], s: raw.idle[i + 1], n: raw.idle[i + 2], kind: raw.idle[i + 3] });
  return { ...raw, segs, idle };
}
function at(points, step) { // value of a [step, value] change list at a step
  let low = 0, high = points.length - 1, found = 0;
  while (low <= high) { const mid = (low + high) >> 1; if (points[mid][0] <= step) { found = points[mid][1]; low = mid + 1; } else high = mid - 1; }
  return found;
}
function canvas(el, height) {
  const width = el.clientWidth, dpr = devicePixelRatio || 1;
  if (el.width !== Math.round(width * dpr) || el.height !== Math.round(height * dpr)) { el.width = Math.round(width * dpr); el.height = Math.round(height * dpr); el.style.height = height + 'px'; }
  const g = el.getContext('2d'); g.setTransform(dpr, 0, 0, dpr, 0, 0); g.clearRect(0, 0, width, height); return [g, width];
}
function bar(g, c, x, y, w, h, radius, edge) {
  g.beginPath(); g.roundRect(x, y, w, h, radius); g.fill();
  if (edge && c.light && w > 2 && h > 3) { g.save(); g.clip(); g.strokeStyle = 'rgba(0,0,0,.4)'; g.lineWidth = 2; g.stroke(); g.restore(); }
}
// One policy's lanes into a canvas.
function drawLanes(el, lanes, t, window_, laneHeight, c, note, head = t) {
  const [g, w] = canvas(el, laneHeight * lanes.slots + 1), h = laneHeight, gap = h > 6 ? 1.5 : h > 3 ? 0.8 : 0.3;
  const X = (s) => GUTTER + (Math.min(s, window_) / window_) * (w - GUTTER);
  g.textBaseline = 'middle';
  for (let j = 0; j < lanes.slots; j++) {
    g.fillStyle = c.line; g.fillRect(GUTTER, j * h + h / 2, w - GUTTER, 0.5);
    if (h >= 11) { g.fillStyle = c.ink2; g.font = `${Math.min(11 * c.type, 18)}px ${c.font}`; g.textAlign = 'right'; g.fillText(j + 1, GUTTER - 3, j * h + h / 2 + 0.5); }
  }
  for (const gapRun of lanes.idle) {
    if (gapRun.s >= t) continue;
    const x = X(gapRun.s), x2 = X(Math.min(gapRun.s + gapRun.n, t)), y = gapRun.slot * h;
    if (gapRun.kind === 0) { g.fillStyle = c.idle; g.fillRect(x, y + gap / 2, Math.max(0.5, x2 - x - 0.6), h - gap); }
    else if (gapRun.kind === 1) { g.strokeStyle = c.line2; g.lineWidth = 1; g.setLineDash([3, 4]); g.beginPath(); g.moveTo(x + 2, y + h / 2); g.lineTo(x2, y + h / 2); g.stroke(); g.setLineDash([]); }
    else if (h > 5) { g.strokeStyle = c.line; g.lineWidth = 1; g.strokeRect(x + 0.5, y + 1.5, Math.max(0, x2 - x - 2), h - 3); }
  }
  g.textAlign = 'left';
  for (const s of lanes.segs) {
    if (s.s >= t) continue;
    const x = X(s.s), width = X(Math.min(s.s + s.n, t)) - x, y = s.slot * h + gap / 2, hue = c.hue(s.r);
    g.globalAlpha = s.kind ? 0.45 : 1; g.fillStyle = hue; bar(g, c, x, y, Math.max(0.7, width - 1.2), h - gap, h > 8 ? 2 : 0, h > 5); g.globalAlpha = 1;
    if (h >= 11 && width > 18) { g.fillStyle = c.on(s.r); g.font = `600 ${h > 26 * c.type ? 15 * c.type : Math.min(11 * c.type, Math.max(9, h - 4))}px ${c.font}`; g.fillText(s.r + 1, x + 4, y + (h - gap) / 2 + 0.8); }
  }
  if (note && note.from < note.to) {
    const x = X(note.from), x2 = X(note.to), y = (h * lanes.slots) / 2; g.font = `600 ${14 * c.type}px ${c.font}`; const tw = g.measureText(note.text).width;
    g.strokeStyle = g.fillStyle = c.ink; g.lineWidth = 1.5;
    if (x2 - x > 40) { g.beginPath(); g.moveTo(x, 1); g.lineTo(x, h * lanes.slots); g.moveTo(x + 6, y); g.lineTo(x2 - 4, y); g.moveTo(x + 12, y - 4); g.lineTo(x + 6, y); g.lineTo(x + 12, y + 4); g.stroke(); }
    if (x2 - x > tw + 24) { g.fillStyle = c.paper; g.fillRect((x + x2) / 2 - tw / 2 - 7, y - 11 * c.type, tw + 14, 22 * c.type); g.fillStyle = c.ink; g.textAlign = 'center'; g.fillText(note.text, (x + x2) / 2, y + 0.5); }
  }
  if (head > 0) { g.fillStyle = c.ink; g.fillRect(Math.min(X(head) - 1, w - 2), 0, 2, h * lanes.slots); }
}
// Before the guess: the reply lengths as bars, in groups of one batch.
function drawLengths(el, lanes, height, c) {
  const [g, w] = canvas(el, height + 1), n = lanes.lengths.length, groups = Math.ceil(n / lanes.slots), unit = (w - GUTTER) / (n + groups - 1 || 1), top = Math.max(...lanes.lengths);
  lanes.lengths.forEach((length, r) => { const y = (length / top) * (height - 2); g.fillStyle = c.hue(r); bar(g, c, GUTTER + (r + Math.floor(r / lanes.slots)) * unit, height - y, Math.max(1, unit - 2), y, 1, unit > 5); });
  g.fillStyle = c.line2; g.fillRect(GUTTER, height - 0.5, w - GUTTER, 1);
}
function drawLens(el, lanes, t, c, covered) {
  const N = 24, n = Math.min(lanes.slots, 8), h = 14.4, [g, w] = canvas(el, n * h), cw = (w - GUTTER) / N, end = Math.min(Math.max(1, t), lanes.span), from = Math.max(0, end - N);
  g.textBaseline = 'middle';
  for (let j = 0; j < n; j++) {
    g.fillStyle = c.ink2; g.font = `11px ${c.font}`; g.textAlign = 'right'; g.fillText(j + 1, GUTTER - 7, j * h + h / 2);
    for (let i = 0; i < N; i++) {
      const step = from + i, x = GUTTER + i * cw; g.strokeStyle = c.line; g.lineWidth = 1;
      if (covered || step >= end || t === 0) { g.strokeRect(x + 0.5, j * h + 0.5, cw - 2, h - 2); continue; }
      const seg = lanes.segs.find((s) => s.slot === j && s.s <= step && step < s.s + s.n);
      if (seg) {
        g.globalAlpha = seg.kind ? 0.45 : 1; g.fillStyle = c.hue(seg.r); g.fillRect(x, j * h, cw - 1.2, h - 1.4); g.globalAlpha = 1;
        if (c.light) { g.strokeStyle = 'rgba(0,0,0,.3)'; g.strokeRect(x + 0.5, j * h + 0.5, cw - 2.2, h - 2.4); }
        if (step === seg.s) { g.fillStyle = c.on(seg.r); g.textAlign = 'center'; g.font = `600 10px ${c.font}`; g.fillText(seg.r + 1, x + cw / 2 - 0.5, j * h + h / 2); }
      } else {
        const gapRun = lanes.idle.find((s) => s.slot === j && s.s <= step && step < s.s + s.n);
        if (gapRun && gapRun.kind === 0) { g.fillStyle = c.idle; g.fillRect(x, j * h, cw - 1.2, h - 1.4); } else { g.fillStyle = c.line2; g.fillRect(x + cw / 2 - 2, j * h + h / 2 - 0.5, 4, 1); }
      }
    }
  }
  if (!covered && t > 0) { g.strokeStyle = c.ink; g.lineWidth = 2; g.strokeRect(GUTTER + (end - 1 - from) * cw - 1, 1, cw + 1, n * h - 2); }
  return [from + 1, end];
}

function swimlane(course, data) {
  const W = data.words, $ = (s) => course.querySelector(s), $$ = (s) => [...course.querySelectorAll(s)];
  const still = matchMedia('(prefers-reduced-motion: reduce)'), SLOTS = data.slots, base = rootPath(data.slug);
  const store = new Map(), asked = new Set(), q = query(), ignored = [];
  const pick = (key, allowed, fallback) => { const v = q.get(key); if (v === null) return fallback; if (allowed.includes(v)) return v; ignored.push(key); return fallback; };
  const whole = (key, low, high, fallback) => { const v = q.get(key); if (v === null) return fallback; if (/^\d{1,7}$/.test(v) && +v >= low && +v <= high) return +v; ignored.push(key); return fallback; };
  const first = data.scenes[0].state;
  const S = { mode: pick('mode', ['static', 'continuous', 'both'], null), B: whole('B', 1, 64, null), t: whole('step', 0, 9999999, null), win: whole('window', 0, 9999999, 0), guess: whole('guess', 0, 100, null), lengths: pick('lengths', data.lengths, 'real64'), own: q.get('own') || '12, 40, 7, 30, 22', arrivals: pick('arrivals', data.arrivals, 'all'), scene: Math.max(0, data.scenes.findIndex((s) => s.id === q.get('scene'))), foc: 'static', play: false, spd: 120, home: null, ownError: '' };
  if (q.get('scene') && !data.scenes.some((s) => s.id === q.get('scene'))) ignored.push('scene');
  if (S.B !== null && !SLOTS.includes(S.B)) { ignored.push('B'); S.B = null; }
  if (!/^[\d\s,，、;；]*$/.test(S.own) || S.own.length > 4000) { ignored.push('own'); S.own = '12, 40, 7'; if (S.lengths === 'own') S.lengths = 'real64'; }
  for (const [key, value] of q) if (key === 'lang' ? !['zh', 'en'].includes(value) : key === 'theme' ? !['light', 'dark'].includes(value) : key === 'present' ? value !== 'true' : !['mode', 'B', 'step', 'window', 'guess', 'lengths', 'own', 'arrivals', 'scene'].includes(key)) ignored.push(key);
  const deep = S.mode !== null || S.B !== null || S.t !== null;
  const start = data.scenes[S.scene].state;
  if (S.mode === null) S.mode = start.mode || 'both'; if (S.B === null) S.B = start.B || 8;
  if (S.t === null) { S.t = start.step === -1 ? 1e9 : start.step || 0; if (!q.has('window')) S.win = start.window || 0; }
  if (S.guess === null && !deep) { S.t = 0; }
  S.home = { mode: first.mode || 'both', B: first.B || 8, t: 0, win: first.window || 0 };
  store.set('real64||all', new Map([[data.initial.B, { static: unpack(data.initial.lanes.static), continuous: unpack(data.initial.lanes.continuous) }]]));

  const specKey = () => `${S.lengths}|${S.lengths === 'own' ? S.own : ''}|${S.arrivals}`;
  const current = () => (store.get(specKey()) || new Map()).get(S.B);
  const vis = () => (S.mode === 'both' ? ['static', 'continuous'] : [S.mode]);
  const tmax = () => { const v = current(); return v ? Math.max(...vis().map((p) => v[p].span)) : 1; };
  const locked = () => S.guess === null;
  const span = () => { const T = tmax(); return S.win ? Math.min(T, Math.max(S.win, Math.round(S.t * 1.06))) : T; };
  async function load(slots) { // lanes of the current workload for these B
    const key = specKey(), wanted = slots.filter((b) => !asked.has(key + '#' + b) && !(store.get(key) || new Map()).has(b)); if (!wanted.length) return;
    wanted.forEach((b) => asked.add(key + '#' + b));
    const params = new URLSearchParams({ lengths: S.lengths, arrivals: S.arrivals, B: wanted.join(',') }); if (S.lengths === 'own') params.set('own', S.own);
    let body; try { const answer = await fetch(base + 'lanes?' + params); body = await answer.json(); } catch (error) { body = { error: W.offline }; }
    if (body.error) { wanted.forEach((b) => asked.delete(key + '#' + b)); if (key === specKey()) { S.ownError = body.key ? fill(W.errors[body.key], body.values) : body.error; render(); } return; }
    const found = store.get(key) || new Map();
    for (const [b, v] of Object.entries(body.lanes)) found.set(+b, { static: unpack(v.static), continuous: unpack(v.continuous) });
    store.set(key, found); if (key === specKey()) { S.ownError = ''; render(); }
  }
  const loadAll = () => load([S.B]).then(() => { if (!S.ownError) for (let i = 0; i < SLOTS.length; i += 5) load(SLOTS.slice(i, i + 5)); });
  const host = course.getRootNode().host || course;

  const opts = (names, words) => names.map((n) => `<option value="${n}">${esc(words[n])}</option>`).join('');
  $('.fig-col').innerHTML = `<div class=stage><div class=ctl><div class=seg id=mode>${['static', 'continuous', 'both'].map((m) => `<button type=button data-m=${m}>${esc(W.mode[m])}</button>`).join('')}</div>
<label class=b><span>${esc(W.slots)}</span><input id=B type=range min=0 max=${SLOTS.length - 1} aria-label="${esc(W.slots)}"><output id=Bo></output></label>
<button type=button class=ib id=rst>${ICON.reset}${esc(W.reset)}</button><button type=button class=ib id=lnk>${ICON.link}<span>${esc(W.link)}</span></button></div>
${['static', 'continuous'].map((p) => `<div class=pan data-p=${p}><header><button type=button class=pn>${esc(W.policy[p])}</button><span class=pm></span><span class=gs hidden></span><span class=big></span><button type=button class="chip counted">${esc(W.counted)}</button></header><canvas role=img tabindex=0></canvas></div>`).join('')}
<canvas id=ax height=26 aria-hidden=true></canvas>
<div class=tr><button type=button class=pl id=play></button><button type=button class=ib id=stp aria-label="${esc(W.one_step)}">${ICON.step}</button><span class=st></span><div class=seg id=spd>${[[30, 'slow'], [120, 'medium'], [400, 'fast']].map(([s, n]) => `<button type=button data-s=${s}>${esc(W[n])}</button>`).join('')}</div></div></div>
<div class=rest><div class=lg><span><i class="sw live"></i>${esc(W.legend_live)}</span><span><i class="sw idle"></i>${esc(W.legend_idle)}</span><span><i class="sw tail"></i>${esc(W.legend_tail)}</span><span class=early hidden><i class="sw early"></i>${esc(W.legend_early)}</span><span><i class="sw now"></i>${esc(W.legend_now)}</span><span style="margin-left:auto">${esc(W.legend_cell)}</span></div>
<div class=set><label>${esc(W.lengths)} <select id=len>${opts(data.lengths, W.length_names)}</select></label><label>${esc(W.arrivals)} <select id=arr>${opts(data.arrivals, W.arrival_names)}</select></label><div class=own hidden><textarea id=own aria-label="${esc(W.own_label)}"></textarea><button type=button class=btn id=ownGo>${esc(W.own_go)}</button><div class=err role=alert></div></div></div>
<div class=two><div><h3 id=lh></h3><canvas id=lens role=img></canvas></div><div><h3>${esc(W.log)} · <b id=gh></b></h3><ol class=log id=log></ol></div></div>
<p class=badge><span class=dot></span><span>${esc(W.badge)}</span><button type=button class="chip counted" data-src="${esc(W.badge_note)}">${esc(W.counted)}</button><span class=keys>${esc(W.keys)}</span></p>
<details class=twin><summary>${esc(W.twin)}</summary><table></table></details></div>`;

  const laneHeight = () => {
    const mobile = innerWidth <= 900, both = S.mode === 'both';
    const total = mobile ? (both ? 92 : 130) : both ? Math.max(104, Math.min(176, (innerHeight - 596) / 2)) : Math.max(220, Math.min(380, innerHeight - 600));
    return Math.max(mobile ? 2 : 3, total / S.B);
  };
  function render() {
    const v = current(), c = palette(course);
    $$('#mode button').forEach((b) => b.setAttribute('aria-pressed', b.dataset.m === S.mode)); $$('#spd button').forEach((b) => b.setAttribute('aria-pressed', +b.dataset.s === S.spd));
    $('#B').value = SLOTS.indexOf(S.B); $('#B').setAttribute('aria-valuetext', S.B); $('#Bo').textContent = S.B; $('#len').value = S.lengths; $('#arr').value = S.arrivals;
    $('.own').hidden = S.lengths !== 'own'; if (course.getRootNode().activeElement !== $('#own')) $('#own').value = S.own; $('.own .err').textContent = S.lengths === 'own' ? S.ownError : ''; $('.early').hidden = S.arrivals === 'all';
    host.dataset.ready = v ? '1' : ''; if (!v) return;
    const T = tmax(), covered = locked(); S.t = Math.max(0, Math.min(S.t, T)); const window_ = Math.max(1, span()), h = laneHeight();
    for (const el of $$('.pan')) {
      const p = el.dataset.p, show = vis().includes(p); el.classList.toggle('off', !show); el.classList.toggle('foc', !covered && S.mode === 'both' && S.foc === p); if (!show) continue;
      const d = v[p], t = Math.min(S.t, d.span), over = S.t >= d.span, pm = el.querySelector('.pm'), big = el.querySelector('.big'), gs = el.querySelector('.gs'), cv = el.querySelector('canvas');
      const early = S.mode === 'both' && p === 'continuous' && S.t > d.span ? { from: d.span, to: Math.min(S.t, window_), text: fill(S.t >= T ? W.early_end : W.early, { n: fmt(S.t - d.span) }) } : null;
      if (covered && p === 'static') drawLengths(cv, d, h * S.B, c); else drawLanes(cv, d, covered ? 0 : t, window_, h, c, early, covered ? 0 : S.t);
      pm.innerHTML = covered ? esc(p === 'static' ? fill(W.before_static, { n: d.requests, B: S.B }) : fill(W.before_queue, { n: d.requests })) : over ? esc(fill(W.total, { steps: fmt(d.steps), cells: fmt(d.useful_cells) })) : `<b style="color:var(--ink)">${at(d.running, t - 1)}</b> / ${S.B} ${esc(W.writing)}<span class=x> · ${esc(fill(W.queued, { n: t ? at(d.waiting, t - 1) : d.requests }))}</span>`;
      big.innerHTML = covered ? '<span class=dim>?</span>' : `${pct(d.utilisation)}<small>%</small>`; el.dataset.steps = covered ? '' : d.steps; el.dataset.utilisation = covered ? '' : pct(d.utilisation);
      el.querySelector('.chip').dataset.src = covered ? W.guess_first : fill(W.utilisation_note, { useful: fmt(d.useful_cells), B: S.B, steps: fmt(d.steps) });
      gs.hidden = covered || p !== 'static' || S.B !== 8 || S.lengths !== 'real64' || S.arrivals !== 'all'; gs.textContent = fill(W.your_guess, { g: S.guess });
      cv.setAttribute('aria-label', covered ? W.guess_first : `${W.policy[p]}: ${fill(W.total, { steps: fmt(d.steps), cells: fmt(d.useful_cells) })}, ${pct(d.utilisation)}%`);
    }
    const [g, w] = canvas($('#ax'), 26 * c.type), X = (s) => GUTTER + (Math.min(s, window_) / window_) * (w - GUTTER), unit = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((a) => window_ / a <= (w < 420 ? 5 : 9)) || 10000;
    g.font = `${12 * c.type}px ${c.font}`; g.fillStyle = c.ink2; g.textBaseline = 'top';
    for (let s = 0; s <= window_; s += unit) { g.fillRect(X(s), 0, 1, 4); g.textAlign = s ? 'center' : 'left'; if (X(s) < w - 16) g.fillText(s ? fmt(s) : fill(W.zero_step, {}), s ? X(s) : GUTTER, 10); }
    const x = Math.min(X(S.t), w - 1); g.fillStyle = c.ink; g.beginPath(); g.moveTo(x, 0); g.lineTo(x + 6, 9); g.lineTo(x - 6, 9); g.fill();
    $('.tr .st').innerHTML = covered ? esc(W.guess_first) : fill(esc(W.step_of), { t: `<b>${fmt(Math.round(S.t))}</b>`, T: fmt(T) });
    $('#play').classList.toggle('off', covered); $('#play').innerHTML = S.play ? ICON.pause : ICON.play; $('#play').setAttribute('aria-label', S.play ? W.pause : W.play);
    const p = S.mode === 'both' ? S.foc : S.mode, d = v[p]; $('#gh').textContent = W.policy[p];
    const [a, b] = drawLens($('#lens'), d, Math.round(S.t), c, covered); $('#lh').innerHTML = covered ? esc(W.lens) : `${esc(W.lens)} · <b>${esc(W.policy[p])}</b> · ${esc(fill(W.steps_range, { a: fmt(a), b: fmt(b) }))}${S.B > 8 ? ` · ${esc(W.first_eight)}` : ''}`; $('#lens').setAttribute('aria-label', $('#lh').textContent);
    const seen = covered ? [] : d.log.filter((e) => e[0] < S.t).slice(-5);
    const html = seen.map(([step, r, code, detail]) => `<li><span class=dim>${esc(fill(W.at_step, { t: fmt(step + 1) }))}</span>${requestBadge(r)}<span class=mono>${esc(code)}</span><em>${esc(fill(W.codes[code] || '', { ...detail, slot: (detail.slot ?? 0) + 1 }))}</em></li>`).join('') || `<li style="display:block" class=dim>${esc(W.log_empty)}</li>`;
    if ($('#log').dataset.h !== html) { $('#log').innerHTML = html; $('#log').dataset.h = html; }
    if (!covered) $('.twin table').innerHTML = `<tr><th></th>${vis().map((m) => `<th>${esc(W.policy[m])}</th>`).join('')}</tr>` + [['twin_steps', (m) => fmt(v[m].steps)], ['twin_util', (m) => pct(v[m].utilisation) + '%'], ['twin_useful', (m) => fmt(v[m].useful_cells)], ['twin_requests', (m) => fmt(v[m].requests)], ['twin_running', (m) => at(v[m].running, S.t - 1)], ['twin_waiting', (m) => at(v[m].waiting, S.t - 1)]].map(([k, f]) => `<tr><th>${esc(W[k])}</th>${vis().map((m) => `<td>${f(m)}</td>`).join('')}</tr>`).join('');
    Object.assign(host.dataset, { step: Math.round(S.t), b: S.B, mode: S.mode, window: S.win, scene: data.scenes[S.scene].id, playing: S.play ? '1' : '' });
    if (!covered) for (const scene of data.scenes) for (const goal of scene.goals) { // met by the run in view, once it is over
      const [policy, quantity] = goal.quantity.split('.'), run = v[policy], value = run && run[quantity];
      const met = run && vis().includes(policy) && S.t >= run.span && (goal.at_least === null || value >= goal.at_least) && (goal.at_most === null || value <= goal.at_most);
      const box = $(`[data-goal="${CSS.escape(goal.id)}"] .g`); if (met && !box.dataset.met) { box.dataset.met = '1'; box.innerHTML = `✓ ${goal.done}`; }
    }
    paintChips(course);
  }
  const save = () => writeQuery({ scene: S.scene ? data.scenes[S.scene].id : null, guess: S.guess, ...(locked() ? {} : { mode: S.mode, B: S.B, step: Math.round(S.t), window: S.win || null }), lengths: S.lengths === 'real64' ? null : S.lengths, own: S.lengths === 'own' ? S.own : null, arrivals: S.arrivals === 'all' ? null : S.arrivals });
  let timer = 0; const later = () => { clearTimeout(timer); timer = setTimeout(save, 150); };
  function go(state, play) {
    if (locked()) { const box = $('[data-guess]'); if (box) box.scrollIntoView({ block: 'center' }); return; }
    S.mode = state.mode || S.mode; S.B = state.B || S.B; S.win = state.window || 0; S.lengths = state.lengths || 'real64'; S.arrivals = state.arrivals || 'all';
    S.t = state.step === -1 ? 1e9 : state.step || 0; S.foc = S.mode === 'both' ? (state.step === -1 ? 'continuous' : 'static') : S.mode;
    S.home = { mode: S.mode, B: S.B, t: S.t, win: S.win, lengths: S.lengths, arrivals: S.arrivals }; setPlay(play && state.step !== -1 && !still.matches); loadAll(); render(); later();
  }
  function setPlay(on) { S.play = !!on && !locked(); render(); if (S.play) { last = performance.now(); requestAnimationFrame(frame); } else later(); }
  let last = 0, carry = 0;
  function frame(now) {
    if (!S.play || !course.isConnected) return;
    const dt = Math.min(0.1, (now - last) / 1000); last = now; carry += dt * S.spd;
    if (!still.matches || carry > S.spd / 2) { S.t += carry; carry = 0; if (S.t >= tmax()) { S.t = tmax(); setPlay(false); return; } render(); }
    requestAnimationFrame(frame);
  }
  function guesses() {
    for (const scene of data.scenes) for (const guess of scene.predictions) {
      const box = $(`[data-guess="${CSS.escape(guess.id)}"]`);
      if (locked()) {
        box.innerHTML = `<label for=gi>${guess.html}</label><div class=grow><input id=gi type=range min=0 max=100 value=${guess.start} aria-label="%"><output><span>${guess.start}</span><small>%</small></output><button type=button class="btn p" id=go>${esc(W.guess_go)}</button></div>`;
        $('#gi').oninput = (e) => { box.querySelector('output span').textContent = e.target.value; };
        $('#go').onclick = () => { S.guess = +$('#gi').value; guesses(); go({ mode: 'both', B: 8, step: 0 }, true); };
      } else {
        const feedback = Math.abs(S.guess - guess.answer) <= guess.tolerance ? guess.close : S.guess > guess.answer ? guess.high : guess.low;
        box.innerHTML = `<span class=q>${guess.html}</span><div class=rule><i style="left:0">0</i><i style="left:100%">100%</i><span class=mk style="left:${guess.answer}%">${esc(W.policy.static)}<b>${guess.shown}</b></span><span class="mk g" style="left:${S.guess}%">${esc(W.you_guess)} <b>${S.guess}%</b></span></div><p class=dim role=status>${feedback}</p>`;
      }
    }
    paintChips(course);
  }
  $('#play').onclick = () => { if (locked()) { go({}); return; } if (S.t >= tmax()) S.t = 0; setPlay(!S.play); };
  $('#stp').onclick = () => { if (locked()) return; S.t = Math.min(tmax(), Math.floor(S.t) + 1); setPlay(false); };
  $('#rst').onclick = () => { Object.assign(S, { lengths: 'real64', arrivals: 'all' }, S.home); setPlay(false); loadAll(); render(); later(); };
  $('#lnk').onclick = async () => { save(); let ok = true; try { await navigator.clipboard.writeText(location.href); } catch (error) { ok = false; } $('#lnk span').textContent = ok ? W.copied : W.copy_bar; setTimeout(() => { $('#lnk span').textContent = W.link; }, 1600); };
  $$('#mode button').forEach((b) => { b.onclick = () => { const end = S.t >= tmax(); S.mode = b.dataset.m; S.win = 0; if (S.mode !== 'both') S.foc = S.mode; if (end) S.t = 1e9; render(); later(); }; });
  $$('#spd button').forEach((b) => { b.onclick = () => { S.spd = +b.dataset.s; render(); }; });
  $$('.pn').forEach((b) => { b.onclick = () => { S.foc = b.closest('.pan').dataset.p; render(); }; });
  $('#B').oninput = (e) => { const t0 = performance.now(), end = S.t >= tmax(); S.B = SLOTS[+e.target.value]; if (end) S.t = 1e9; load([S.B]); render(); host.dataset.pickMs = (performance.now() - t0).toFixed(2); };
  $('#B').onchange = later;
  $('#len').onchange = (e) => { S.lengths = e.target.value; S.ownError = ''; S.win = 0; S.t = 0; setPlay(false); loadAll(); render(); later(); };
  $('#arr').onchange = (e) => { S.arrivals = e.target.value; S.win = 0; S.t = 0; setPlay(false); loadAll(); render(); later(); };
  $('#ownGo').onclick = () => { S.own = $('#own').value; S.ownError = ''; S.t = 0; setPlay(false); loadAll(); render(); later(); };
  for (const el of [...$$('.pan canvas'), $('#ax')]) {
    const scrub = (e) => { if (locked()) return; const r = el.getBoundingClientRect(); S.play = false; S.t = Math.round(Math.max(0, Math.min(1, (e.clientX - r.left - GUTTER) / (r.width - GUTTER))) * span()); render(); };
    el.onpointerdown = (e) => { el.setPointerCapture(e.pointerId); scrub(e); }; el.onpointermove = (e) => { if (e.buttons) scrub(e); }; el.onpointerup = later;
  }
  let hold = 0;
  function toScene(index, scroll) {
    const scene = data.scenes[index]; S.scene = index; $$('.sc').forEach((e, i) => e.classList.toggle('on', i === index));
    if (!locked()) go(scene.state, false); else render(); later();
    if (scroll) { hold = performance.now() + 600; $$('.sc')[index].scrollIntoView({ block: 'center' }); }
  }
  const watch = new IntersectionObserver((entries) => { for (const e of entries) if (e.isIntersecting && performance.now() > hold) { const i = $$('.sc').indexOf(e.target); if (i >= 0 && i !== S.scene) toScene(i, false); } }, { rootMargin: '-55% 0px -43% 0px' });
  const keys = (e) => {
    if (!course.isConnected) return; const target = e.composedPath()[0]; if (e.ctrlKey || e.metaKey || e.altKey || (target.matches && target.matches('input,textarea,select'))) return;
    if (e.key === ' ' && !(target.matches && target.matches('button,summary,a'))) { e.preventDefault(); if (!locked()) $('#play').click(); } else if (e.key === '.') $('#stp').click();
    else if (e.key === 'ArrowRight' || e.key === 'ArrowLeft') { e.preventDefault(); toScene(Math.max(0, Math.min(data.scenes.length - 1, S.scene + (e.key === 'ArrowRight' ? 1 : -1))), true); }
    else if (e.key === 'Escape' && course.classList.contains('present')) course.querySelector('[data-present]').click();
  };
  document.addEventListener('keydown', keys); const resize = new ResizeObserver(() => render()); resize.observe(course);
  bindScenes(course, data, go); guesses(); hold = performance.now() + 1200; $$('.sc').forEach((e, i) => { e.classList.toggle('on', i === S.scene); watch.observe(e); });
  if (S.scene) requestAnimationFrame(() => $$('.sc')[S.scene].scrollIntoView({ block: 'center' }));
  if (ignored.length) { const n = document.createElement('p'); n.className = 'notice'; n.setAttribute('role', 'status'); n.textContent = fill(W.ignored, { keys: [...new Set(ignored)].map((k) => k.slice(0, 20)).join(', ') }); course.querySelector('.top').after(n); }
  render(); setTimeout(loadAll, 60);
  return { redraw: render, stop: () => { document.removeEventListener('keydown', keys); watch.disconnect(); resize.disconnect(); S.play = false; } };
}
