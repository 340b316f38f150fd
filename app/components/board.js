// The two-allocator board of lesson 3. Its state is a list of actions and a place in it; every press adds one, undo and
// redo move the place. The engine replays the list on both allocators (app/board.py); here frames are drawn, and presses
// wait in order until their frames are here.

function createBoard(root, data, page) {
  const W = data.words,
    B = W.board,
    store = new BoardStore(page.base, data.version, data.first),
    host = page.host;
  root.classList.add('board');
  root.innerHTML = boardHtml(data);
  const $ = (selector) => root.querySelector(selector),
    $$ = (selector) => [...root.querySelectorAll(selector)];
  let S = { ...data.board.defaults, acts: [], at: 0, block: '' };
  let home = { ...S },
    shown = null, // the frame on the page, and its place in the list
    place = 0,
    error = null,
    loading = false,
    running = 0; // the timer of auto-run

  // ---- state -----------------------------------------------------------------------------------------------------
  function stateOf(scene) {
    const state = { ...data.board.defaults, block: '' };
    for (const key of BOARD_KEYS) if (key in scene) state[key] = String(scene[key]);
    state.acts = readActions(scene.acts);
    state.block = scene.block || '';
    state.at = 'at' in scene ? Math.min(scene.at, state.acts.length) : state.acts.length;
    return state;
  }
  const path = () => S.acts.slice(0, S.at);

  // Draw what is here; fetch what is not, one request at a time. The board shows the last place whose frame is here.
  function settle() {
    const actions = path(),
      known = store.known(S, actions);
    if (known.length) {
      place = known.length - 1;
      draw(known);
    }
    host.dataset.pending = actions.length + 1 - known.length;
    if (known.length > actions.length) askModel();
    if (known.length > actions.length && !page.locked() && SIDES.some((side) => shown[side].more)) store.ahead(S, actions);
    if (known.length > actions.length || loading) return;
    loading = true;
    const tried = { ...S };
    store.load(tried, actions, known.length).then(
      () => {
        loading = false;
        if (root.isConnected) settle();
      },
      (problem) => {
        loading = false;
        if (root.isConnected) refuse(problem, tried, actions);
      },
    );
  }

  // What cannot be: say so where it was typed, take the offending thing out again, keep the rest.
  let cut = { at: 0, acts: [] }, // what the last press cut off
    good = { ...S },
    asked = null; // the address, until something else is shown
  function refuse(problem, tried, actions) {
    stop();
    if (asked && problem.code !== 'offline') {
      // the address asks for what cannot be: the scene as it is
      const keys = ['open', 'acts'].filter((key) => asked.params.has(key)).map((key) => `${key}=${asked.params.get(key)}`);
      notice(page.course, fill(W.ignored, { keys: keys.join('  ').slice(0, 100) }), W);
      asked = null;
      S = { ...home };
      opening.read(S);
      return settle();
    }
    error = problem;
    if (store.rules(tried) !== store.rules(good) && problem.code !== 'offline') {
      error.where = 'opening';
      S = { ...good };
    } else {
      const bad = actions.findIndex((action, i) => i >= place && action[0] === 'a');
      error.where = bad < 0 ? 'bar' : 'arrive';
      if (bad >= 0 && problem.code !== 'offline') {
        S.acts = S.acts.filter((_, i) => i !== bad);
        if (S.at > bad) S.at--;
        if (S.acts.length === cut.at) S.acts.push(...cut.acts); // what could be redone before
      } else {
        S.acts = S.acts.slice(0, place);
        S.at = place;
      }
    }
    settle();
    drawError();
    const said = $(`.err.${error.where}`);
    if (said.getBoundingClientRect().bottom > innerHeight) said.scrollIntoView({ block: 'nearest' });
    return page.changed();
  }

  // ---- actions ---------------------------------------------------------------------------------------------------
  function press(action) {
    if (page.locked()) return action === 's' && S.acts[S.at] === 's' && S.at < locked() ? move(1) : page.askGuess();
    const began = performance.now();
    error = asked = null;
    cut = { at: S.at, acts: S.acts.slice(S.at) };
    S.acts = [...path(), action];
    S.at = S.acts.length;
    watchPaint(began, S.at);
    settle();
    return page.changed();
  }
  function move(by) {
    if (by > 0 && page.locked() && S.at + by > locked()) return page.askGuess();
    const began = performance.now();
    stop();
    error = null;
    S.at = clamp(S.at + by, 0, S.acts.length);
    watchPaint(began, S.at);
    settle();
    return page.changed();
  }
  // How far one may look before the guess.
  const locked = () => stateOf(page.lockState()).at;

  // How long a press took until it was painted, for the benchmark that reads it.
  let waits = [];
  function watchPaint(began, at) {
    waits.push([began, at]);
  }
  function painted() {
    const now = place;
    requestAnimationFrame(() =>
      setTimeout(() => {
        const done = waits.filter(([, at]) => at === now);
        waits = waits.filter(([, at]) => at !== now && at <= S.acts.length);
        if (done.length) host.dataset.paintMs = (performance.now() - done[done.length - 1][0]).toFixed(2);
      }),
    );
  }

  function arrive() {
    const [length, limit] = ['length', 'limit'].map((name) => typedIn($(`.arrive .${name}`)).slice(0, 18));
    press(`a${length}:${limit}`);
  }
  function reset() {
    stop();
    error = null;
    S = { ...good, acts: [], at: 0, block: '' };
    if (page.locked()) S = { ...home };
    settle();
    page.changed();
  }

  // ---- auto-run: one action after the other, until nobody is left -----------------------------------------------
  function run(on) {
    stop();
    if (!on) return redrawControls();
    if (page.locked() && S.at >= locked()) return page.askGuess();
    const beat = () => {
      if (!root.isConnected) return;
      if (S.at > place) running = setTimeout(beat, 60); // its frame is still on the way
      else if (S.at < S.acts.length && !(page.locked() && S.at >= locked())) {
        S.at++;
        settle();
        running = setTimeout(beat, 700);
      } else if (SIDES.some((side) => shown[side].more) && !page.locked() && !playOnly) {
        S.acts = [...path(), 's'];
        S.at = S.acts.length;
        settle();
        running = setTimeout(beat, 700);
      } else stop();
      redrawControls();
      page.changed();
    };
    running = setTimeout(beat, 350);
    return redrawControls();
  }
  let playOnly = false; // a scene plays its list and stops at its end
  function stop() {
    clearTimeout(running);
    running = 0;
    playOnly = false;
  }

  // ---- drawing ---------------------------------------------------------------------------------------------------
  function draw(known) {
    const frame = known[known.length - 1],
      before = shown;
    if (store.rules(S) !== store.rules(good)) opening.taken();
    good = { ...S };
    shown = frame;
    for (const side of SIDES) {
      const box = (part) => $(`.${part} [data-side=${side}]`);
      drawMessage(box('stage').querySelector('.msg'), frame, side, W);
      drawCells(box('stage'), frame[side], before && before !== frame ? before[side] : null, side, S, B);
      drawShare(box('stage'), frame[side], side, W, S);
      drawTable(box('rest'), frame[side], before && before !== frame ? before[side] : null, side, B, root);
      const of = S.block && S.block[0] === side[0] ? +S.block.slice(1) : -1;
      drawLog(box('rest'), known, side, of, W);
      for (const cell of box('stage').querySelectorAll('.cell')) cell.classList.toggle('pick', +cell.dataset.block === of);
    }
    if ($('.twin').open) setHtml($('.twin .scroll'), boardTwinHtml(frame, W));
    redrawControls();
    Object.assign(host.dataset, { ready: '1', at: place, total: S.acts.length, acts: writeActions(path()) });
    painted();
    page.told();
  }
  function redrawControls() {
    if (!shown) return;
    const ids = shown.paged.requests
      .filter((r, i) => [r, shown.contiguous.requests[i]].some((one) => !OVER.includes(one.status)))
      .map((r) => r.n);
    setHtml($('.finish'), ids.length ? esc(B.finish) + each(ids, (n) => finishHtml(n, B)) : '');
    $('[data-act=undo]').disabled = S.at === 0;
    $('[data-act=redo]').disabled = S.at >= S.acts.length;
    $('[data-act=s]').disabled = !SIDES.some((side) => shown[side].more);
    setHtml($('[data-act=auto]'), `${esc(running ? B.stop : B.auto)} <kbd>A</kbd>`);
    setHtml($('.place-now'), esc(fill(B.place, { at: S.at, total: S.acts.length })));
    drawError();
    host.dataset.running = running ? '1' : '';
  }
  function drawError() {
    const text = error ? fill(W.errors[error.code] || W.errors.broken, error.detail) : '';
    for (const where of ['arrive', 'opening', 'bar'])
      setHtml($(`.err.${where}`), error && error.where === where ? esc(text) : '');
    for (const input of $$('.arrive input'))
      input.setAttribute('aria-invalid', Boolean(error && error.where === 'arrive' && wrongField(error) === input.className));
    for (const row of $$('.opening [data-row]'))
      for (const input of row.querySelectorAll('input'))
        input.setAttribute(
          'aria-invalid',
          Boolean(
            error &&
              error.where === 'opening' &&
              error.detail.i === +row.dataset.row + 1 &&
              wrongField(error) === input.className,
          ),
        );
    if (error && error.where === 'opening') $('.opening').open = true;
  }

  // ---- the same list on the model --------------------------------------------------------------------------------
  // Every press runs the whole list again; the newest list is asked for once the one before has been answered.
  let onModel = false,
    written = null, // {acts, texts, ms, same, model}, or {error}
    asking = '';
  function askModel() {
    const wanted = `${store.rules(S)}#${writeActions(path())}`;
    if (!onModel || asking || (written && written.key === wanted)) return drawModel();
    asking = wanted;
    drawModel();
    return store.write(S, path()).then((body) => {
      asking = '';
      written = { ...body, key: wanted };
      if (!root.isConnected) return;
      if (body.error && body.error.code === 'live_loading') setTimeout(() => ((written = null), askModel()), 1500);
      else askModel();
    });
  }
  function drawModel() {
    const now = onModel ? written : null,
      failed = now && now.error;
    for (const button of $$('[data-source]')) button.setAttribute('aria-pressed', (button.dataset.source === 'model') === onModel);
    let text = onModel ? W.live.run_connecting : B.model_note;
    if (failed) text = fill(W.errors[failed.code] || W.errors.broken, failed.detail);
    else if (now) text = now.same ? B.same : B.not_same;
    setText($('.source .say'), text);
    $('.source .say').classList.toggle('warn', Boolean(failed || (now && !now.same)));
    drawSaid(root, failed ? null : now, W);
    setText($('.badge .what'), now && now.model ? machineText(now.model, W.live) : W.badge);
    Object.assign(host.dataset, { model: onModel ? (asking ? 'asking' : failed ? 'failed' : now ? 'written' : '') : '', same: now && now.same ? '1' : '' });
  }
  for (const button of $$('[data-source]'))
    button.onclick = () => {
      if (page.locked()) return page.askGuess();
      onModel = button.dataset.source === 'model';
      written = null;
      return askModel();
    };

  // ---- controls --------------------------------------------------------------------------------------------------
  const opening = new OpeningEditor($('.opening'), data, (change) => {
    if (page.locked()) return page.askGuess();
    stop();
    error = asked = null;
    good = { ...S };
    S = { ...S, ...change, acts: [], at: 0, block: '' };
    settle();
    return page.changed();
  });
  const ACTS = {
    s: () => press('s'),
    auto: () => run(!running),
    undo: () => move(-1),
    redo: () => move(1),
    reset,
    arrive,
    link: () => copyLink($('.link span'), W, page.changed),
  };
  $('.bar').onclick = (event) => {
    const button = event.target.closest('[data-act], [data-finish]');
    if (!button || button.disabled) return;
    if (!['auto', 'link'].includes(button.dataset.act)) stop();
    if (button.dataset.finish) press(`f${button.dataset.finish}`);
    else ACTS[button.dataset.act]();
  };
  for (const input of $$('.arrive input'))
    input.onkeydown = (event) => {
      if (event.key === 'Enter') arrive();
    };
  $('.twin').ontoggle = () => shown && settle();

  // A block: pointing shows whose it is, a click what became of it; arrows walk the grid.
  for (const rows of $$('.rows')) {
    const side = rows.closest('[data-side]').dataset.side;
    const tell = (event) => {
      const cell = event.target.closest('.cell');
      setHtml($('.tip'), cell ? cell.getAttribute('aria-label') : esc(B.tip));
      point(cell && +cell.dataset.owner ? +cell.dataset.owner - 1 : null);
    };
    rows.onpointerover = rows.onfocus = tell;
    rows.addEventListener('focusin', tell);
    rows.onpointerleave = () => {
      setHtml($('.tip'), esc(B.tip));
      point(null);
    };
    rows.onclick = (event) => {
      const cell = event.target.closest('.cell');
      if (cell) choose(side, cell.dataset.block);
    };
    rows.onkeydown = (event) => walkGrid(event, rows, S.pool > 64 ? 32 : 16);
  }
  $('.rest').onclick = (event) => {
    const item = event.target.closest('[data-block]');
    if (item) choose('paged', item.dataset.block);
    if (event.target.closest('.unpick')) choose('', '');
  };
  function choose(side, block) {
    const name = side ? side[0] + block : '';
    S.block = S.block === name ? '' : name;
    settle();
    page.changed();
  }
  function point(request) {
    for (const cell of $$('.cell')) cell.classList.toggle('faint', request !== null && +cell.dataset.owner !== request + 1);
  }

  // ---- what the page asks of it ----------------------------------------------------------------------------------
  return {
    show(state, play) {
      stop();
      error = asked = null;
      S = stateOf(state);
      if (page.locked()) {
        const guess = page.lockState();
        if (guess && S.at > stateOf(guess).at) S = stateOf(guess);
      }
      home = { ...S };
      good = { ...S };
      opening.read(S);
      settle();
      if (play && S.at < S.acts.length) {
        if (still.matches) move(S.acts.length - S.at);
        else {
          run(true);
          playOnly = true;
        }
      }
    },
    restore(reader, state) {
      S = stateOf(state);
      home = { ...S };
      if (page.locked() && page.lockState()) {
        const guess = stateOf(page.lockState());
        if (S.at > guess.at) S = guess;
        home = { ...S };
      }
      for (const key of BOARD_KEYS) {
        const offered = data.board[key];
        const value = offered ? reader.oneOf(key, offered) : reader.shaped(key, /^[\d:,]*$/, 400);
        if (value !== null && !page.locked()) S[key] = value;
      }
      const acts = reader.shaped('acts', /^(-|[sfa\d:,]*)$/, 8000);
      if (acts !== null && !page.locked()) S.acts = readActions(acts === '-' ? '' : acts);
      const at = reader.whole('at', 0, 9999);
      S.at = Math.min(at ?? (acts === null ? S.at : S.acts.length), page.locked() ? locked() : S.acts.length);
      const block = reader.shaped('block', /^(-|[cp]\d{1,3})$/, 4);
      if (block !== null) S.block = block === '-' ? '' : block;
      asked = reader;
      good = { ...S };
      opening.read(S);
      settle();
    },
    params(state) {
      const base = stateOf(state),
        acts = writeActions(S.acts),
        same = acts === writeActions(base.acts);
      const changed = Object.fromEntries(BOARD_KEYS.map((key) => [key, S[key] === base[key] ? null : S[key]]));
      const end = same ? base.at : S.acts.length;
      return { ...changed, acts: same ? null : acts || '-', at: S.at === end ? null : S.at, block: S.block === base.block ? null : S.block || '-' };
    },
    quantity(path) {
      const [side, name] = path.split('.');
      return shown && !page.locked() && shown[side] && name in shown[side].usage ? shown[side].usage[name] : null;
    },
    term: (id) => termHtml(id, shown, S),
    key(event) {
      const key = event.key.toLowerCase();
      if (/^[1-9]$/.test(key) && $(`[data-finish="${key}"]`)) press(`f${key}`);
      else if (key === 'n') $('.arrive input').focus();
      else if (BOARD_KEYMAP[key]) {
        const act = BOARD_KEYMAP[key];
        if (act !== 'auto') stop();
        if (!$(`[data-act=${act}]`).disabled) ACTS[act]();
      } else return false;
      return true;
    },
    redraw: () => shown && settle(),
    point,
    toggle: () => run(!running),
    step: (n) => (n > 0 ? !$('[data-act=s]').disabled && press('s') : move(-1)),
    get busy() {
      return running > 0;
    },
    stop,
  };
}
const BOARD_KEYMAP = { g: 's', a: 'auto', z: 'undo', u: 'undo', y: 'redo', r: 'reset' };
