// The swimlane player. It plays `trace.lanes()` of the engine: it draws what the trace says and schedules nothing.
//
// A figure module is made by createX(root, data, page) and answers to
//   restore(reader, state)  the state of a scene, then what the address says
//   show(state, play)       a state of a scene or an experiment
//   params(state)           what the address must hold beside the scene's state
//   redraw, stop, toggle, step(n), point(request), quantity(path), busy
// `page` has locked(), guess() and changed().

function createSwimlane(root, data, page) {
  const W = data.words,
    store = new LanesStore(page.base, data.version, data.slots, data.first);
  root.innerHTML = playerHtml(data);
  const $ = (selector) => root.querySelector(selector),
    $$ = (selector) => [...root.querySelectorAll(selector)];
  const host = page.host,
    panels = $$('.pan');
  let S = { mode: 'both', B: 8, t: 0, window: 0, lengths: 'real64', own: '', arrivals: 'all', follow: 'static' };
  let home = S,
    drawn = null,
    error = null,
    k = null,
    hot = null;
  let playing = false,
    speed = 120,
    last = 0,
    carry = 0;
  // The same workload on the model: its lanes take the place of the counted ones, on their scale of time.
  const run = new ModelRun(page.base, () => {
    if (run.active && run.lanes[run.policy]) S.t = run.lanes[run.policy].span;
    else if (run.state === 'done' && S.t < span() && !run.rested) S.t = Infinity;
    run.rested = run.state === 'done';
    runSoon();
  }, (problem) => {
    error = problem; // said where it was typed; the counted picture stays
    runLeave();
  });

  // ---- state -----------------------------------------------------------------------------------------------------
  function stateOf(scene) {
    const mode = scene.mode || 'both',
      t = scene.step === -1 ? Infinity : scene.step || 0;
    const arrivals = data.arrivals.kinds[scene.arrivals] || scene.arrivals || 'all';
    const follow = mode === 'both' ? (t === Infinity ? 'continuous' : 'static') : mode;
    return {
      mode,
      B: scene.B || 8,
      t,
      window: scene.window || 0,
      lengths: scene.lengths || 'real64',
      own: '',
      arrivals,
      follow,
    };
  }
  const shown = () => (S.mode === 'both' ? POLICIES : [S.mode]);
  const followed = () => (run.active && run.policy ? run.policy : S.mode === 'both' ? S.follow : S.mode);
  // What is drawn for a policy: the counted run, or what the model has done of it so far.
  const seen = (policy) => (run.on ? run.lanes[policy] || notBegun(drawn[policy]) : drawn[policy]);
  const span = () => Math.max(1, ...shown().map((policy) => drawn[policy].span));
  const steps = () => (S.window ? Math.min(span(), Math.max(S.window, Math.ceil(S.t * 1.06))) : span());
  const spec = () => ({ lengths: S.lengths, own: S.own, arrivals: S.arrivals });

  // Take the lanes of the state: at once where they are here, else when they come; the old picture fades meanwhile.
  function settle() {
    const wanted = store.key(spec(), S.B),
      pair = store.get(spec(), S.B);
    if (pair) {
      drawn = pair;
      root.classList.remove('late');
      store.prefetch(spec(), S.B, () => {
        host.dataset.kept = store.runs.size;
      });
      return redraw();
    }
    root.classList.add('late');
    redraw();
    return store.load(spec(), S.B).then(
      () => {
        if (store.key(spec(), S.B) === wanted) settle();
      },
      (problem) => {
        if (store.key(spec(), S.B) === wanted) refuse(problem);
      },
    );
  }

  // A workload that cannot run: say why where it was typed, keep what was typed, keep the last picture.
  function refuse(problem) {
    error = problem;
    const typed = S.own;
    Object.assign(S, lastGood);
    root.classList.remove('late');
    if (S.lengths !== 'own') S.own = '';
    controls.root.querySelector('textarea').value = typed || controls.root.querySelector('textarea').value;
    settle();
  }
  let lastGood = { lengths: 'real64', own: '', arrivals: 'all' };

  const controls = new WorkloadControls($('.load'), data, (change) => {
    run.leave();
    lastGood = spec();
    error = null;
    play(false);
    Object.assign(S, change, { t: 0, window: 0 });
    if (S.lengths !== 'own') S.own = '';
    settle();
    page.changed();
  });

  // ---- playing ---------------------------------------------------------------------------------------------------
  function play(on) {
    if (run.on) return runAgain();
    playing = Boolean(on) && !page.locked() && drawn !== null;
    if (playing) {
      if (S.t >= span()) S.t = 0;
      carry = 0;
      last = performance.now();
      requestAnimationFrame(frame);
    }
    redraw();
    if (!playing) page.changed();
  }
  function frame(now) {
    if (!playing || !root.isConnected) return;
    carry += Math.min(0.1, (now - last) / 1000) * speed;
    last = now;
    if (!still.matches || carry >= speed / 2) {
      // reduced motion: jumps of half a second
      S.t = Math.min(span(), S.t + carry);
      carry = 0;
      if (S.t >= span()) return play(false);
      redraw();
    }
    return requestAnimationFrame(frame);
  }
  function jump(t) {
    if (page.locked() || run.active) return;
    playing = false;
    S.t = clamp(Math.round(t), 0, span());
    redraw();
    page.changed();
  }

  // ---- on the model ----------------------------------------------------------------------------------------------
  let due = false;
  function runSoon() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      if (root.isConnected) redraw();
    });
  }
  function runStart() {
    playing = false;
    error = null;
    S.t = 0;
    S.window = 0;
    run.start(spec(), S.B, shown());
    page.changed();
  }
  function runAgain() {
    if (run.active) run.toggle();
    else runStart();
  }
  function runLeave() {
    if (!run.on) return;
    run.leave();
    S.t = home.t;
    redraw();
    page.changed();
  }
  function drawRun(covered) {
    const state = run.on ? run.state : '',
      bad = state === 'failed' || state === 'offline';
    for (const button of $$('[data-source]'))
      button.setAttribute('aria-pressed', (button.dataset.source === 'model') === run.on);
    setText($('.source .say'), covered ? W.guess_first : runText(run, W, run.policy ? drawn[run.policy].span : 0));
    $('.source .say').classList.toggle('warn', bad);
    $('.source .end').hidden = !run.active;
    $('.speeds').hidden = run.on;
    $('.paces').hidden = !run.on;
    for (const button of $$('[data-pace]')) button.setAttribute('aria-pressed', +button.dataset.pace === run.pace);
    const took = tookHtml(run, shown(), W);
    $('.took').hidden = !took;
    setHtml($('.took'), took);
    $('.lens').hidden = run.on;
    $('.said').hidden = !run.on;
    if (run.on) {
      setHtml($('.said h3'), `${esc(W.live.writing_now)} · <b>${esc(W.mode[followed()])}</b>`);
      setHtml($('.said-now'), saidHtml(run) || `<li class="none">${esc(W.live.nothing_yet)}</li>`);
    }
    const machine = run.on && run.frame && run.frame.model ? machineText(run.frame.model, W.live) : '';
    setText($('.badge .what'), run.on ? machine || W.live.connecting : W.badge);
    setHtml($('.badge .how'), run.on ? chip(W, 'measured', esc(fill(W.live.run_note, { machine }))) : chip(W, 'counted', esc(W.badge_note)));
    $('.badge .dot').classList.toggle('off', run.on && !run.active && state !== 'done');
    Object.assign(host.dataset, { source: run.on ? 'model' : 'counted', run: state });
  }

  // ---- drawing ---------------------------------------------------------------------------------------------------
  function laneHeight() {
    const both = S.mode === 'both';
    let total;
    if (narrow()) total = both ? 92 : 130;
    else if (page.presenting())
      total = both ? clamp((innerHeight - (run.on ? 830 : 750)) / 2, 110, 260) : clamp(innerHeight - (run.on ? 750 : 710), 240, 560);
    else total = both ? clamp((innerHeight - (run.on ? 704 : 652)) / 2, 104, 176) : clamp(innerHeight - (run.on ? 662 : 636), 220, 380);
    return Math.max(narrow() ? 2 : 3, total / S.B);
  }
  function redraw() {
    k = readTokens(page.course);
    draw();
  }
  function draw() {
    if (!drawn) return;
    const covered = page.locked();
    S.t = covered ? (S.t === Infinity ? Infinity : S.t) : Math.min(S.t, span());
    const t = covered ? 0 : Math.floor(S.t),
      window_ = covered ? span() : steps(),
      height = laneHeight();
    for (const panel of panels) drawPanel(panel, covered, t, window_, height);
    const lanes = seen(followed());
    drawAxis(
      $('.axis'),
      k,
      window_,
      covered ? 0 : S.t,
      W.zero_step,
      lanes.arrivals.some((a) => a > 0) ? lanes.arrivals : null,
    );
    drawText(covered, t, lanes);
    drawRun(covered);
    Object.assign(host.dataset, {
      step: t,
      b: S.B,
      mode: S.mode,
      window: S.window,
      playing: playing || run.state === 'running' ? '1' : '',
      ready: '1',
      workload: S.lengths,
      arrivals: S.arrivals,
    });
  }
  function drawPanel(panel, covered, t, window_, height) {
    const policy = panel.dataset.policy,
      visible = shown().includes(policy),
      lanes = seen(policy);
    panel.classList.toggle('off', !visible);
    if (!visible) return;
    const part = (selector) => panel.querySelector(selector),
      canvas = part('canvas'),
      at = run.active ? lanes.span : S.t; // a run on the model is shown as far as it has come
    t = covered ? 0 : Math.floor(run.active ? at : t);
    const ended = t >= lanes.span && !(run.active && (policy === run.policy || !lanes.span));
    setHtml(part('.pn'), esc(narrow() ? W.mode[policy] : W.policy[policy]));
    panel.classList.toggle('foc', !covered && S.mode === 'both' && followed() === policy);
    if (covered && policy === shown()[0]) drawLengths(canvas, lanes, k, height * lanes.slots);
    else {
      const done = S.mode === 'both' && !run.active && t > lanes.span;
      const text = done ? fill(t >= span() ? W.early_end : W.early, { n: number(t - lanes.span) }) : '';
      drawLanes(canvas, lanes, k, {
        t: covered ? 0 : Math.min(at, lanes.span, window_),
        steps: window_,
        laneHeight: (height * S.B) / lanes.slots,
        numbers: true,
        hot,
        goal: run.active ? drawn[policy].span : null,
        finished: done ? { from: lanes.span, to: Math.min(S.t, window_), text } : null,
      });
      if (S.mode === 'both' && !covered && ended && !run.active) playhead(canvas, lanes, window_, height);
    }
    setHtml(part('.pm'), metaHtml(covered, ended, policy, t, lanes));
    const empty = covered ? '?' : lanes.span ? '' : '–';
    setHtml(
      part('.big'),
      empty ? `<span class="dim">${empty}</span>` : `${percent(lanes.utilisation)}<small>%</small>`,
    );
    const measured = covered ? '' : measuredHtml(run, policy, W);
    part('.meas').hidden = !run.on;
    setHtml(part('.meas'), measured);
    const guess = page.guess(policy, S.B, S.lengths === 'real64' && S.arrivals === 'all');
    part('.gs').hidden = covered || guess === null;
    setHtml(part('.gs'), guess === null ? '' : esc(fill(W.your_guess, { g: guess })));
    part('.chip').dataset.src = esc(
      covered
        ? W.guess_first
        : fill(W.utilisation_note, { useful: number(lanes.useful_cells), B: lanes.slots, steps: number(lanes.steps) }),
    );
    Object.assign(
      panel.dataset,
      covered || empty ? { steps: '', utilisation: '' } : { steps: lanes.steps, utilisation: percent(lanes.utilisation) },
    );
    if (!playing) canvas.setAttribute('aria-label', describe(covered, policy, lanes));
  }
  // What stands beside a panel's name: who writes and who waits now, or the whole run once it is over.
  function metaHtml(covered, ended, policy, t, lanes) {
    const first = policy === shown()[0];
    if (run.active && !lanes.span) return esc(policy === run.policy || first ? W.live.about_to : W.live.after_that);
    if (covered) return esc(fill(first ? W.before_static : W.before_queue, { n: lanes.requests, B: lanes.slots }));
    if (ended) {
      const cells = fill(W.total_cells, { cells: number(lanes.useful_cells) });
      const wait = lanes.span > lanes.steps ? fill(W.total_span, { t: number(lanes.span) }) : '';
      return `${esc(fill(W.total, { steps: number(lanes.steps) }) + wait)}<span class="x">${esc(cells)}</span>`;
    }
    const queued = fill(W.queued, { n: t ? valueAt(lanes.waiting, t - 1) : lanes.requests });
    return `<b>${t ? valueAt(lanes.running, t - 1) : 0}</b> / ${lanes.slots} ${esc(W.writing)}<span class="x"> · ${esc(queued)}</span>`;
  }
  function describe(covered, policy, lanes) {
    if (covered) return `${W.policy[policy]}: ${W.guess_first}`;
    if (!lanes.span) return `${W.policy[policy]}: ${W.live.about_to}`;
    const steps = fill(W.total, { steps: number(lanes.steps) }),
      cells = fill(W.total_cells, { cells: number(lanes.useful_cells) });
    return `${W.policy[policy]}, B = ${lanes.slots}: ${steps}${cells}, ${percent(lanes.utilisation)}%`;
  }
  // The common playhead goes on through the lanes of the policy that is done.
  function playhead(canvas, lanes, window_, height) {
    const g = canvas.getContext('2d'),
      x = Math.min(timeScale(k, canvas.clientWidth, window_)(S.t), canvas.clientWidth - 1);
    g.fillStyle = k.ink;
    g.fillRect(x - k.head / 2, 0, k.head, height * S.B);
  }
  function drawText(covered, t, lanes) {
    const policy = W.mode[followed()],
      first = lanes.slots > 8 ? ` · ${esc(W.first_eight)}` : '';
    setHtml(
      $('.st'),
      covered ? esc(W.guess_first) : fill(esc(W.step_of), { t: `<b>${number(t)}</b>`, T: number(span()) }),
    );
    $('.pl').classList.toggle('off', covered);
    const moves = playing || run.state === 'running';
    setHtml($('.pl'), moves ? ICON.pause : ICON.play);
    $('.pl').setAttribute('aria-label', moves ? W.pause : W.play);
    for (const button of $$('.modes button')) button.setAttribute('aria-pressed', button.dataset.mode === S.mode);
    for (const button of $$('.speeds button')) button.setAttribute('aria-pressed', +button.dataset.speed === speed);
    $('.slots').value = data.slots.indexOf(S.B);
    $('.slots').setAttribute('aria-valuetext', `B = ${S.B}`);
    setHtml($('.ctl output'), String(S.B));
    $('.late').hidden = !lanes.early;
    $('.other').hidden = !lanes.other;
    if (!page.presenting() && !run.on) {
      const [from, to] = drawLens($('.lens canvas'), lanes, k, t, covered);
      const range = esc(fill(W.steps_range, { a: number(from), b: number(to) }));
      setHtml(
        $('.lens h3'),
        covered || !t ? esc(W.lens) + first : `${esc(W.lens)} · <b>${esc(policy)}</b> · ${range}${first}`,
      );
      $('.lens canvas').setAttribute('aria-label', $('.lens h3').textContent);
    }
    setHtml($('.whose'), `${esc(W.log)} · <b>${esc(policy)}</b>`);
    setHtml(
      $('.log'),
      covered ? `<li class="none">${esc(W.log_empty)}</li>` : logHtml(lanes, t, page.presenting() ? 4 : 5, W),
    );
    controls.show(spec(), error);
    controls.facts(drawn[followed()]);
    if ($('.twin').open && !playing)
      setHtml($('.twin .scroll'), covered ? esc(W.guess_first) : twinHtml({ static: seen('static'), continuous: seen('continuous') }, shown(), followed(), t, W));
  }

  // ---- controls --------------------------------------------------------------------------------------------------
  $('.pl').onclick = () => (page.locked() ? page.askGuess() : play(!playing));
  $('.next').onclick = () => advance(1);
  const advance = (n) => {
    if (run.active) {
      if (n > 0) run.step();
    } else if (drawn) jump(Math.floor(S.t) + n);
  };
  for (const button of $$('[data-source]'))
    button.onclick = () => {
      if (page.locked()) page.askGuess();
      else if (button.dataset.source === 'counted') runLeave();
      else if (drawn && !run.active) runStart();
    };
  for (const button of $$('[data-pace]')) button.onclick = () => run.setPace(+button.dataset.pace);
  $('.source .end').onclick = () => run.stop();
  $('.reset').onclick = () => {
    run.leave();
    play(false);
    error = null;
    S = { ...home };
    settle();
    page.changed();
  };
  $('.link').onclick = () => copyLink($('.link span'), W, page.changed);
  for (const button of $$('.modes button')) {
    button.onclick = () => {
      runLeave();
      const end = drawn && S.t >= span();
      S.mode = button.dataset.mode;
      S.window = 0;
      if (S.mode !== 'both') S.follow = S.mode;
      if (end) S.t = Infinity;
      redraw();
      page.changed();
    };
  }
  for (const button of $$('.speeds button'))
    button.onclick = () => {
      speed = +button.dataset.speed;
      redraw();
    };
  for (const panel of panels)
    panel.querySelector('.pn').onclick = () => {
      S.follow = panel.dataset.policy;
      redraw();
      page.changed();
    };
  $('.slots').oninput = (event) => {
    const began = performance.now();
    runLeave();
    const end = drawn && S.t >= span();
    S.B = data.slots[+event.target.value];
    if (end) S.t = Infinity;
    settle();
    host.dataset.pickMs = (performance.now() - began).toFixed(2);
    page.changed();
  };
  $('.twin').ontoggle = redraw;
  for (const canvas of [...$$('.pan canvas'), $('.axis')]) {
    const scrub = (event) => drawn && jump(stepAt(k, canvas, steps(), event.clientX));
    canvas.onpointerdown = (event) => {
      canvas.setPointerCapture(event.pointerId);
      scrub(event);
    };
    canvas.onpointermove = (event) => {
      if (event.buttons) scrub(event);
      else if (canvas !== $('.axis')) hover(canvas, event);
    };
    canvas.onpointerleave = () => {
      canvas.title = '';
      point(null);
    };
  }
  function hover(canvas, event) {
    if (!drawn || page.locked() || playing) return;
    const lanes = seen(canvas.closest('.pan').dataset.policy),
      box = canvas.getBoundingClientRect();
    const step = Math.floor(stepAt(k, canvas, steps(), event.clientX)),
      slot = Math.floor(((event.clientY - box.top) / box.height) * lanes.slots);
    const cell = lanes.rows[slot] && step < S.t ? cellAt(lanes, slot, step) : null;
    const request = cell && !cell.empty ? cell.request : null;
    canvas.title =
      request === null
        ? ''
        : fill(W.tip, {
            n: request + 1,
            length: number(lanes.lengths[request]),
            a: number(cell.start + 1),
            b: number(cell.end),
          });
    point(request);
  }
  function point(request) {
    if (hot === request || !drawn) return;
    hot = request;
    redraw();
  }

  // ---- what the page asks of it ------------------------------------------------------------------------------------
  return {
    show(state, start) {
      if (run.active && !start) return; // scrolling on does not end a run
      run.leave();
      playing = false;
      error = null;
      S = stateOf(state);
      home = { ...S };
      settle();
      if (start && S.t !== Infinity && !still.matches) play(true);
    },
    restore(reader, state) {
      S = stateOf(state);
      home = { ...S };
      S.mode = reader.oneOf('mode', MODES) ?? S.mode;
      const B = reader.whole('B', 1, 64);
      if (B !== null && data.slots.includes(B)) S.B = B;
      else if (B !== null) reader.refuse('B');
      const step = reader.whole('step', 0, 9999999),
        log = reader.oneOf('log', POLICIES);
      const [window_, lengths] = [reader.whole('window', 0, 9999999), reader.oneOf('lengths', data.lengths)];
      S.t = step ?? S.t;
      S.window = window_ ?? S.window;
      S.lengths = lengths ?? S.lengths;
      S.follow = S.mode === 'both' ? (log ?? S.follow) : S.mode;
      const own = reader.shaped('own', /^[\d\s,，、;；+-]*$/, 20000);
      if (S.lengths === 'own' && own !== null) S.own = own;
      else if (S.lengths === 'own') S.lengths = 'real64';
      const arrivals = reader.shaped('arrivals', /^(all|poisson:[\d.]+|bursts:\d+:\d+)$/, 40);
      const [kind, a, b] = (arrivals || '').split(':'),
        { rates, sizes, gaps } = data.arrivals;
      if (
        kind === 'all' ||
        (kind === 'poisson' && rates.includes(a)) ||
        (kind === 'bursts' && sizes.includes(a) && gaps.includes(b))
      )
        S.arrivals = arrivals;
      else if (arrivals !== null) reader.refuse('arrivals');
      settle();
    },
    params(state) {
      const base = stateOf(state),
        end = drawn && S.t >= span(),
        now = end && base.t === Infinity ? Infinity : Math.floor(S.t);
      const beside = (key, value = S[key]) => (value === base[key] ? null : value);
      return {
        mode: beside('mode'),
        B: beside('B'),
        step: page.locked() || run.on || now === base.t ? null : now === Infinity ? null : now,
        window: beside('window'),
        lengths: beside('lengths'),
        own: S.lengths === 'own' ? S.own : null,
        arrivals: beside('arrivals'),
        log: S.mode === 'both' && S.follow !== base.follow ? S.follow : null,
      };
    },
    quantity(path) {
      const [policy, name] = path.split('.');
      return drawn && !page.locked() && !run.on && drawn[policy] && name in drawn[policy] ? drawn[policy][name] : null;
    },
    redraw,
    point,
    toggle: () => play(!playing),
    step: advance,
    get busy() {
      return playing || run.state === 'running';
    },
    stop() {
      playing = false;
      run.end();
      store.sweep++;
    },
  };
}

// A run that has not begun: the slots, nobody in them.
const notBegun = (lanes) => ({
  ...lanes,
  ...{ segs: [], idle: [], rows: lanes.rows.map(() => []), log: [], running: [], waiting: [] },
  ...{ span: 0, steps: 0, useful_cells: 0 },
});

function setHtml(element, html) {
  if (element.shownHtml === html) return;
  element.shownHtml = html;
  element.innerHTML = html;
}

async function copyLink(label, W, save) {
  save(true);
  let copied = true;
  try {
    await navigator.clipboard.writeText(location.href);
  } catch {
    copied = false; // no permission, or no secure context: the address bar holds the same
  }
  label.textContent = copied ? W.copied : W.copy_bar;
  setTimeout(() => {
    label.textContent = W.link;
  }, 1800);
}
