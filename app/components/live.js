// The live engine: one engine for everybody who has this page open. The server sends full frames over a websocket; this
// module draws the last one and sends what a hand does. It answers to the same calls as the player (swimlane.js).

function createLive(root, data, page) {
  const W = data.words,
    L = W.live;
  root.classList.add('live');
  root.innerHTML = liveHtml(data);
  const $ = (selector) => root.querySelector(selector),
    host = page.host,
    names = new Map();
  let frame = null,
    k = null,
    due = false,
    heard = 0,
    hot = null, // the request pointed at
    kept = null, // a block that was clicked: {id}
    asking = null, // a change of model or machine that waits for an answer about those inside
    refused = '', // why it was not begun
    trouble = '';

  const socket = new LiveSocket(`${page.base}live/engine`, {
    frame(next) {
      frame = next;
      heard = performance.now();
      for (const request of frame.requests) names.set(request.number, request.name);
      if (names.size > 600) for (const n of [...names.keys()].slice(0, 300)) names.delete(n);
      soon();
      page.changed();
    },
    line: () => soon(),
  });
  const clock = setInterval(() => badgeText(), 1000);

  const ask = (action, more, tell = say) =>
    socket.ask(action, more).then(
      (answer) => {
        tell('');
        return answer;
      },
      (problem) => {
        tell(troubleText(problem, W));
        return undefined;
      },
    );
  function say(text) {
    trouble = text;
    setText($('.write .err'), trouble);
  }

  const map = new BlockMap($('.map'), W, (id, stays) => {
    if (stays) kept = kept && kept.id === id ? null : { id };
    const block = id === null ? kept && kept.id : id;
    point(block === null || !frame ? null : frame.blocks[3 * block] > 0 ? frame.blocks[3 * block] : null, block);
  });
  const replies = new ReplyList($('.replies'), W, (id) => ask('cancel', { id }), point);
  let block = null;
  function point(request, at = null) {
    block = at;
    hot = request;
    soon();
  }

  // ---- drawing ---------------------------------------------------------------------------------------------------
  function soon() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      if (root.isConnected) draw();
    });
  }
  function redraw() {
    k = readTokens(page.course);
    draw();
  }
  function draw() {
    if (!k) k = readTokens(page.course);
    badgeText();
    host.dataset.ready = '1';
    host.dataset.line = socket.state;
    $('.drive').inert = socket.state !== 'open' || !frame || frame.state !== 'ready';
    root.classList.toggle('late', socket.state !== 'open');
    if (!frame) return;
    Object.assign(host.dataset, { step: frame.step, paused: frame.paused ? '1' : '', model: frame.state });
    drawPicture();
    drawDoor();
    drawMemory();
    replies.show(frame.requests, hot);
    drawWriting();
    if (frame.change) asking = null;
    if (asking && !anyOpen()) change(asking); // nobody is left to ask about
    setHtml($('.room'), engineRoomHtml(frame, { asking, refused }, W));
  }
  // What runs under the picture and whether its numbers are fresh.
  function badgeText() {
    const dot = $('.dot'),
      what = $('.what'),
      fresh = $('.fresh');
    const fine = socket.state === 'open' && frame && frame.state === 'ready';
    dot.className = `dot ${fine && !frame.paused ? '' : 'off'}`;
    let text = L.connecting;
    if (socket.state === 'offline' || (socket.state === 'connecting' && frame)) text = L.offline;
    else if (frame && frame.state === 'failed') text = fill(L.failed, { message: frame.message });
    else if (frame && frame.state !== 'ready') text = L.loading;
    else if (frame) text = machineText(frame.model, L);
    setText(what, text);
    const age = Math.floor((performance.now() - heard) / 1000);
    const busy = frame && anyOpen();
    let since = '';
    if (fine && frame.paused) since = L.paused;
    else if (fine && !busy) since = L.resting;
    else if (frame && heard) since = age < 2 ? L.fresh : fill(L.stale, { n: age });
    setText(fresh, since);
  }
  function drawPicture() {
    const h = laneHeight();
    drawLiveLanes($('.lanes'), frame, k, { laneHeight: h, names, hot });
    drawLiveAxis($('.stage .axis'), frame, k, fill(L.now, { t: number(frame.step) }));
    const running = frame.requests.filter((r) => r.status === 'running');
    setHtml($('.occ'), `<b>${running.length}</b> / ${frame.engine.slots} ${esc(W.writing)}`);
    const seats = running.map((r) => fill(L.seat, { slot: r.slot + 1, n: r.number }));
    $('.lanes').setAttribute('aria-label', `${L.lanes}: ${seats.join(', ') || L.resting}`);
    const rates = frame.rates;
    setHtml(
      $('.tps'),
      rates.tokens_per_second === null ? '–' : `${number(Math.round(rates.tokens_per_second))}<small> ${esc(L.per_s)}</small>`,
    );
    for (const key of ['ttft', 'itl', 'step']) setText($(`.rates .${key}`), timeText(rates[`${key}_ms`]));
    drawSpark($('.spark'), rates.history, k, page.presenting() ? 44 : 26);
    $('.spark').setAttribute('aria-label', L.history);
    $('.rates .chip').dataset.src = esc(fill(L.measured_note, { machine: machineText(frame.model, L) }));
    setHtml($('.pl'), frame.paused ? ICON.play : ICON.pause);
    $('.pl').setAttribute('aria-label', frame.paused ? L.resume : W.pause);
    $('.next').disabled = !frame.paused;
    const pace = $('.pace select'),
      value = String(frame.pace ?? 0);
    if (![...pace.options].some((option) => option.value === value))
      pace.insertAdjacentHTML('beforeend', paceOption(frame.pace, L));
    if (page.course.getRootNode().activeElement !== pace) pace.value = value;
  }
  function laneHeight() {
    if (narrow()) return 20;
    if (page.presenting()) return clamp((innerHeight - 840) / frame.engine.slots, 30, 44);
    return clamp((innerHeight - 750) / frame.engine.slots, 19, 34);
  }
  function drawDoor() {
    const waiting = frame.queue.behind.length + (frame.queue.head ? 1 : 0);
    setText($('.door .count'), waiting ? fill(L.waiting, { n: number(waiting) }) : '');
    setHtml($('.queue'), queueHtml(frame, names, W));
    setHtml($('.just'), justHtml(frame, names, W, narrow() ? 5 : 8)); // as many as there is room for
  }
  function drawMemory() {
    const { num_blocks: blocks, block_size: size } = frame.engine;
    setHtml($('.memory .size'), esc(fill(L.memory_size, { blocks: number(blocks), size })));
    map.show(frame, hot);
    for (const part of GAUGE) {
      const value = frame.usage ? frame.usage[part] : 0;
      $(`.gauge .${part}`).style.flexGrow = value;
      setText($(`[data-usage="${part}"]`), number(value));
    }
    $('.gauge').classList.toggle('none', !frame.usage);
    const pinned = block ?? (kept && kept.id);
    if (page.presenting() && pinned !== null) setHtml($('.memory .size'), whoseHtml(pinned));
    setHtml($('.memory .whose'), whoseHtml(pinned));
  }
  // A block's owner and the table it stands in.
  function whoseHtml(id) {
    if (id === null || id === undefined) return esc(L.point_block);
    const owner = frame.blocks[3 * id],
      request = frame.requests.find((r) => r.number === owner);
    if (!frame.blocks[3 * id + 2]) return esc(fill(L.block_free, { id }));
    const text = fill(L.block_of, { id, n: owner, filled: frame.blocks[3 * id + 1], size: frame.engine.block_size });
    if (!request) return esc(text);
    const table = each(request.table, (b) => `<span${b === id ? ' class="me"' : ''}>${b}</span>`);
    return `${badge(owner - 1)}${esc(request.name)} · ${esc(text)} <span class="tb">${esc(L.table)} ${table}</span>`;
  }

  // ---- writing ---------------------------------------------------------------------------------------------------
  const form = $('.write'),
    field = (name) => form.querySelector(name);
  const language = () => (frame && frame.model && frame.model.language) || 'zh';
  let offered = '';
  function drawWriting() {
    if (offered !== language()) {
      offered = language();
      const examples = data.prompts[offered];
      field('textarea').placeholder = fill(offered === 'zh' ? L.write_zh : L.write_en, { example: examples[0] });
      setHtml(
        field('.examples'),
        `<button type="button" class="long">${esc(L.long_one)}</button>` +
          each(examples, (text) => `<button type="button" lang="${offered}">${esc(text)}</button>`),
      );
    }
    field('.btn.p').disabled = field('.many').disabled = socket.state !== 'open' || frame.state !== 'ready';
  }
  field('.examples').onclick = (event) => {
    const button = event.target.closest('button');
    if (!button) return;
    field('textarea').value = button.classList.contains('long') ? data.prompts[`long_${language()}`] : button.textContent;
    field('textarea').focus();
  };
  form.onsubmit = (event) => {
    event.preventDefault();
    send(field('textarea').value, field('.name').value.trim()).then((id) => {
      if (id === undefined) return;
      field('textarea').value = '';
      replies.sent = id;
      soon();
    });
  };
  const send = (prompt, name) =>
    ask('submit', {
      prompt,
      name,
      max_tokens: +field('.max').value,
      temperature: field('.heat').value === '' ? -1 : +field('.heat').value,
      top_k: null,
      top_p: 0.95,
      seed: null,
    });
  field('textarea').onkeydown = (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  };
  field('.many').onclick = () => ask('fill', { count: 12 });
  // Some at once with a long opening, so that memory runs out before the slots do.
  const sendLong = async (count) => {
    for (let i = 0; i < count; i++) {
      const id = await send(data.prompts[`long_${language()}`], data.names[i % data.names.length]);
      if (id === undefined) return;
    }
  };

  // ---- driving ---------------------------------------------------------------------------------------------------
  const toggle = () => frame && ask(frame.paused ? 'resume' : 'pause');
  $('.pl').onclick = toggle;
  $('.next').onclick = () => ask('step');
  $('.pace select').onchange = (event) => {
    ask('pace', { value: +event.target.value || null });
    event.target.blur();
  };
  $('.room').onclick = (event) => {
    const button = event.target.closest('[data-do]');
    if (!button || !frame) return;
    const { do: action, model, machine, running } = button.dataset;
    const wish = { ...(model && { model }), ...(machine && { machine }) };
    asking = null;
    if (action === 'switch' && anyOpen() && !running) asking = wish;
    else if (action === 'switch') change(wish, running);
    if (action === 'fetch') ask('fetch', { model }, refuse);
    if (action === 'stay' && frame.change) ask('stay', {}, refuse);
    soon();
  };
  function anyOpen() {
    return frame.requests.some((r) => OPEN_REPLIES.includes(r.status));
  }
  function change(wish, running = 'finish') {
    asking = null;
    ask('switch', { ...wish, running }, refuse);
  }
  function refuse(text) {
    refused = text;
    soon();
  }
  const lanes = $('.lanes');
  lanes.onpointermove = (event) => frame && point(liveRequestAt(frame, k, lanes, event));
  lanes.onpointerleave = () => point(null);

  // A scene points to the part it speaks of.
  function look(part) {
    for (const element of root.querySelectorAll('[data-part]')) element.classList.toggle('on', element.dataset.part === part);
    host.dataset.part = part || '';
    const element = $(`[data-part="${CSS.escape(part || 'lanes')}"]`);
    if (!narrow() && root.scrollHeight > root.clientHeight && element) {
      const place = element.getBoundingClientRect().top - root.getBoundingClientRect().top + root.scrollTop;
      root.scrollTo({ top: place < root.clientHeight * 0.7 ? 0 : place - 40, behavior: 'smooth' });
    }
  }

  return {
    show(state, start) {
      look(state.part);
      if (!start) return;
      if (state.fill) ask('fill', { count: state.fill });
      if (state.long) sendLong(state.long);
      if (state.greedy) sendTwice();
      if (state.write) field('textarea').focus();
      if (state.pause) ask('pause');
    },
    restore(reader, state) {
      look(state.part);
      soon();
    },
    params: () => ({}),
    quantity: (name) => (frame && name === 'waits_for_blocks' && frame.queue.head?.code === 'NO_BLOCKS' ? 1 : null),
    redraw,
    point: () => {},
    toggle,
    step: (n) => n > 0 && frame && frame.paused && ask('step'),
    busy: false,
    stop() {
      clearInterval(clock);
      socket.close();
    },
  };

  // The same opening twice, without chance: the two replies are to be compared.
  async function sendTwice() {
    for (const name of data.names.slice(0, 2)) {
      const id = await ask('submit', {
        prompt: data.prompts[language()][0],
        name,
        max_tokens: 60,
        temperature: 0,
        top_k: null,
        top_p: null,
        seed: null,
      });
      if (id === undefined) return;
    }
  }
}
