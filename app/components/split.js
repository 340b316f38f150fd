// Four ways of handing out the same memory, lesson 2: the parts of the pool over time, one picture per rule on a common
// axis of steps, and their averages. Runs come from the engine (app/split.py); here they are drawn and looked up.

const SPLIT_KEYS = ['prompt', 'limit', 'pool'];

function createSplit(root, data, page) {
  const W = data.words,
    P = W.split,
    rules = data.split.rules,
    host = page.host,
    kept = new Map();
  root.classList.add('split');
  root.innerHTML = splitHtml(data);
  const $ = (selector) => root.querySelector(selector),
    $$ = (selector) => [...root.querySelectorAll(selector)];
  let S = { ...data.split.defaults, t: Infinity, mean: 'all', focus: '' };
  let home = S,
    drawn = null,
    error = null,
    playing = false,
    last = 0;

  const stateOf = (scene) => ({
    ...Object.fromEntries(SPLIT_KEYS.map((key) => [key, String(scene[key] ?? data.split.defaults[key])])),
    t: (scene.step ?? -1) < 0 ? Infinity : scene.step,
    mean: scene.mean || 'all',
    focus: scene.focus || '',
  });
  const query = () => new URLSearchParams(SPLIT_KEYS.map((key) => [key, S[key]])).toString();
  const span = () => Math.max(...rules.map((rule) => drawn.rules[rule].steps));

  function settle() {
    const wanted = query();
    if (kept.has(wanted)) {
      drawn = kept.get(wanted);
      root.classList.remove('late');
      redraw();
      return page.told();
    }
    root.classList.add('late');
    redraw();
    return fetch(`${page.base}split?${wanted}&v=${data.version}`)
      .then((response) => response.json())
      .catch(() => ({ error: { code: 'offline', detail: {} } }))
      .then((body) => {
        if (!root.isConnected) return;
        error = body.error || null;
        if (!body.error) kept.set(wanted, body);
        if (query() !== wanted) return;
        if (body.error) {
          root.classList.remove('late');
          redraw();
        } else settle();
      });
  }

  function redraw() {
    const covered = page.locked();
    setHtml($('.err'), error ? esc(fill(W.errors[error.code] || W.errors.broken, error.detail)) : '');
    for (const select of $$('[data-key]')) select.value = S[select.dataset.key];
    for (const button of $$('[data-mean]')) button.setAttribute('aria-pressed', button.dataset.mean === S.mean);
    host.dataset.ready = '1';
    if (!drawn || !$('.stage').clientWidth) return;
    const k = readTokens(page.course),
      end = S.t >= span(),
      focus = S.focus ? S.focus.split('+') : rules;
    for (const rule of rules) {
      const run = drawn.rules[rule],
        panel = $(`[data-rule=${rule}]`),
        share = S.mean === 'waiting' ? run.live_share_saturated : run.live_share;
      panel.classList.toggle('faint', !focus.includes(rule));
      setHtml(panel.querySelector('.big'), covered ? '?' : `${percent(share)}<small>%</small>`);
      setHtml(panel.querySelector('.sub'), covered ? '' : esc(fill(P.facts, { steps: number(run.steps), preemptions: run.preemptions })));
      panel.querySelector('.chip').dataset.src = esc(
        fill(P[S.mean === 'waiting' ? 'note_waiting' : 'note_all'], { pool: number(drawn.pool), steps: number(run.steps) }),
      );
      const canvas = panel.querySelector('canvas');
      drawSplit(canvas, run.parts, drawn.pool, k, {
        span: span(),
        upto: covered ? 0 : end ? span() : S.t,
        height: page.presenting() ? 60 : narrow() ? 34 : 74,
        faint: !focus.includes(rule),
      });
      const at = Math.min(Math.max(0, Math.floor(S.t) - 1), run.steps - 1);
      const now = (part) => (end ? run.mean[part] : S.t > run.steps ? null : run.parts[part][at]);
      const shown = Object.fromEntries(STACK.map((part) => [part, covered ? null : now(part)]));
      const gauge = panel.querySelector('.gauge');
      if (!gauge.childElementCount) gauge.innerHTML = each(STACK, (part) => `<i class="${part}"></i>`);
      STACK.forEach((part, i) => {
        gauge.children[i].style.flexGrow = shown[part] ?? 0;
        gauge.children[i].className = shown[part] ? part : `${part} nil`;
        panel.dataset[part] = shown[part] === null ? '' : Math.round(shown[part]);
      });
      canvas.setAttribute('aria-label', covered ? W.guess_first : twinLine(rule, shown));
    }
    setHtml($('.st'), covered ? esc(W.guess_first) : end ? esc(P.average) : fill(esc(W.at_step), { t: `<b>${number(Math.floor(S.t))}</b>` }));
    $('.time').max = span();
    $('.time').value = end ? span() : S.t;
    setHtml($('.pl'), playing ? ICON.pause : ICON.play);
    $('.pl').setAttribute('aria-label', playing ? W.pause : W.play);
    setHtml($('.shares'), covered ? '' : sharesHtml());
    setHtml($('.commands pre'), each(rules, (rule) => `${esc(drawn.rules[rule].command)}\n`));
    Object.assign(host.dataset, { split: root.classList.contains('late') ? '' : query(), t: end ? -1 : Math.floor(S.t), mean: S.mean, moving: playing ? '1' : '' });
  }
  const twinLine = (rule, shown) => `${P[rule]}: ${STACK.map((part) => `${P[part]} ${number(Math.round(shown[part] ?? 0))}`).join(', ')}`;

  // The averages as a table: what each part is, as a share of the pool.
  function sharesHtml() {
    const head = each(rules, (rule) => `<th>${esc(P[rule])}</th>`);
    const cell = (rule, part) => `<td data-mean-of="${rule}.${part}">${percent(drawn.rules[rule].mean[part] / drawn.pool)}%</td>`;
    const row = (part) => `<tr><th><i class="sw ${part}"></i>${esc(P[part])}</th>${each(rules, (rule) => cell(rule, part))}</tr>`;
    const saturated = each(
      rules,
      (rule) => `<td data-mean-of="${rule}.saturated">${percent(drawn.rules[rule].live_share_saturated)}%</td>`,
    );
    return `<thead><tr><th>${esc(P.average)}</th>${head}</tr></thead><tbody>${each(STACK, row)}
      <tr><th>${esc(P.saturated)}</th>${saturated}</tr></tbody>`;
  }

  // ---- playing ---------------------------------------------------------------------------------------------------
  function play(on) {
    if (page.locked()) return page.askGuess();
    playing = Boolean(on) && drawn !== null;
    if (playing) {
      if (S.t >= span()) S.t = 0;
      last = performance.now();
      requestAnimationFrame(frame);
    }
    redraw();
    return page.changed();
  }
  function frame(now) {
    if (!playing || !root.isConnected) return;
    const passed = Math.min(0.5, (now - last) / 1000);
    if (!still.matches || passed >= 0.5) {
      S.t = Math.min(span(), S.t + (passed * span()) / 8);
      last = now;
      if (S.t >= span()) {
        S.t = Infinity;
        play(false);
        return;
      }
      redraw();
    }
    requestAnimationFrame(frame);
  }
  function jump(t) {
    if (page.locked() || !drawn) return;
    playing = false;
    S.t = t >= span() ? Infinity : clamp(Math.round(t), 1, span());
    redraw();
    page.changed();
  }

  $('.pl').onclick = () => play(!playing);
  $('.time').oninput = (event) => jump(+event.target.value);
  $('.reset').onclick = () => {
    playing = false;
    S = { ...home };
    settle();
    page.changed();
  };
  $('.link').onclick = () => copyLink($('.link span'), W, page.changed);
  for (const button of $$('[data-mean]'))
    button.onclick = () => {
      S.mean = button.dataset.mean;
      redraw();
      page.changed();
    };
  for (const select of $$('[data-key]'))
    select.onchange = () => {
      if (page.locked()) {
        select.value = S[select.dataset.key];
        page.askGuess();
        return;
      }
      S[select.dataset.key] = select.value;
      settle();
      page.changed();
    };
  for (const canvas of $$('.pool canvas')) {
    const scrub = (event) => {
      const box = canvas.getBoundingClientRect();
      if (drawn) jump(((event.clientX - box.left) / box.width) * span());
    };
    canvas.onpointerdown = (event) => {
      canvas.setPointerCapture(event.pointerId);
      scrub(event);
    };
    canvas.onpointermove = (event) => event.buttons && scrub(event);
  }

  return {
    show(state, start) {
      playing = false;
      error = null;
      S = stateOf(state);
      home = { ...S };
      settle();
      if (start && drawn && S.t !== Infinity) play(true);
    },
    restore(reader, state) {
      S = stateOf(state);
      home = { ...S };
      for (const key of SPLIT_KEYS) S[key] = reader.oneOf(key, data.split.offered[key]) ?? S[key];
      S.t = reader.whole('t', 1, 9999999) ?? S.t;
      S.mean = reader.oneOf('mean', ['all', 'waiting']) ?? S.mean;
      settle();
    },
    params(state) {
      const base = stateOf(state),
        beside = (key) => (S[key] === base[key] ? null : S[key]);
      return {
        ...Object.fromEntries(SPLIT_KEYS.map((key) => [key, beside(key)])),
        t: page.locked() || S.t === base.t || S.t === Infinity ? null : Math.floor(S.t),
        mean: beside('mean'),
      };
    },
    quantity(path) {
      const [rule, name] = path.split('.');
      return drawn && !page.locked() && drawn.rules[rule] ? (drawn.rules[rule][name] ?? null) : null;
    },
    redraw,
    point() {},
    toggle: () => play(!playing),
    step: (n) => drawn && jump((S.t === Infinity ? span() : S.t) + n),
    get busy() {
      return playing;
    },
    stop() {
      playing = false;
    },
  };
}

function splitHtml(data) {
  const W = data.words,
    P = W.split;
  const panel = (rule) => `<div class="pool" data-rule="${rule}">
      <header><h3>${esc(P[rule])}</h3><span class="pm">${esc(P[`${rule}_sub`])}</span><span class="pm sub"></span>
        <span class="big"></span>${chip(W, 'counted')}</header>
      <canvas role="img" tabindex="0"></canvas><div class="gauge"></div></div>`;
  const select = (key) =>
    `<label>${esc(P[key])}<select data-key="${key}">${each(data.split.offered[key], (value) => `<option value="${value}">${number(value)}</option>`)}</select></label>`;
  return `<div class="stage"><div class="ctl">
      <div class="seg" role="group" aria-label="${esc(P.means)}">
        <button type="button" data-mean="all">${esc(P.mean_all)}</button>
        <button type="button" data-mean="waiting">${esc(P.mean_waiting)}</button></div>
      <button type="button" class="ib reset" aria-label="${esc(W.reset)}">${ICON.reset}<span>${esc(W.reset)}</span></button>
      <button type="button" class="ib link" aria-label="${esc(W.link)}">${ICON.link}<span>${esc(W.link)}</span></button></div>
      ${each(data.split.rules, panel)}
      <div class="tr"><button type="button" class="pl"></button>
        <input class="time" type="range" min="1" step="1" aria-label="${esc(P.time)}"><span class="st"></span></div></div>
    <div class="rest">
      <div class="lg">${each(STACK, (part) => `<span><i class="sw ${part}"></i>${esc(P[part])}</span>`)}
        <span class="unit">${esc(P.unit)}</span></div>
      <p class="err" role="alert"></p>
      <div class="load">${each(SPLIT_KEYS, select)}</div>
      <table class="shares"></table>
      <details class="commands"><summary>${esc(P.commands)}</summary><pre tabindex="0"></pre></details>
      <p class="badge"><span class="dot"></span><span>${esc(W.badge)}</span> ${chip(W, 'counted', esc(W.badge_note))}</p></div>`;
}
