// Lesson 1 on the model: the workload of the picture, run by a real engine for this visitor alone. The server's frames
// hold the lanes so far; the run ends with its socket.

const RUN_PACES = [2, 5, 20, 0]; // steps a second; 0: as fast as it goes
const RUN_OPEN = ['connecting', 'loading', 'busy', 'running', 'paused'];

class ModelRun {
  // changed() is called whenever something is to be drawn; refused(problem) if a list that somebody typed cannot run.
  constructor(base, changed, refused) {
    Object.assign(this, { base, changed, refused, on: false, frame: null, lanes: {}, pace: 0, trouble: null, socket: null });
  }

  start(spec, B, policies) {
    this.end();
    const params = new URLSearchParams({ lengths: spec.lengths, arrivals: spec.arrivals, B, policies });
    if (spec.lengths === 'own') params.set('own', spec.own);
    Object.assign(this, { on: true, frame: null, lanes: {}, trouble: null });
    const socket = new LiveSocket(
      `${this.base}live/run?${params}`,
      {
        frame: (frame) => socket === this.socket && this.take(frame),
        line: (state) => {
          if (socket !== this.socket) return;
          if (state === 'open') this.setPace(this.pace);
          if (state === 'offline' && this.active) this.trouble = { code: 'offline', detail: {} };
          this.changed();
        },
      },
      true,
    );
    this.socket = socket;
    this.changed();
  }

  take(frame) {
    this.frame = frame;
    for (const [policy, raw] of Object.entries(frame.lanes || {})) {
      // only the policy that runs changes
      if (policy === frame.policy || !this.lanes[policy] || this.lanes[policy].steps !== raw.steps)
        this.lanes[policy] = unpackLanes(raw);
    }
    if (frame.state === 'failed') this.trouble = frame.error;
    if (this.trouble && this.trouble.code.startsWith('own_')) return this.refused(this.trouble);
    return this.changed();
  }

  get state() {
    if (this.trouble) return this.trouble.code === 'offline' ? 'offline' : 'failed';
    return this.frame ? this.frame.state : 'connecting';
  }

  get active() {
    return this.on && !this.trouble && RUN_OPEN.includes(this.state);
  }

  get policy() {
    return this.frame ? this.frame.policy : null;
  }

  ask(action, more) {
    if (!this.socket) return;
    this.socket.ask(action, more).catch((problem) => {
      if (!this.active) return;
      this.trouble = problem;
      this.changed();
    });
  }

  setPace(value) {
    this.pace = value;
    if (this.active) this.ask('pace', { value: value || null });
    this.changed();
  }

  toggle() {
    if (this.state === 'running') this.ask('pause');
    else if (this.state === 'paused') this.ask('resume');
  }

  step() {
    if (this.state === 'running') this.ask('pause');
    if (['running', 'paused'].includes(this.state)) this.ask('step');
  }

  // Close the line; what was drawn stays.
  end() {
    if (this.socket) this.socket.close();
    this.socket = null;
  }

  stop() {
    this.ask('stop');
  }

  leave() {
    this.end();
    Object.assign(this, { on: false, frame: null, lanes: {}, trouble: null });
  }
}

// ---- what stands on the page ---------------------------------------------------------------------------------------------
const sourceHtml = (W) => `<div class="source">
    <div class="seg" role="group" aria-label="${esc(W.live.source)}">
      <button type="button" data-source="counted" aria-pressed="true">${esc(W.counted)}</button>
      <button type="button" data-source="model" aria-pressed="false">${esc(W.live.on_model)}</button></div>
    <span class="say" role="status"></span>
    <button type="button" class="btn end" hidden>${esc(W.live.stop)}</button>
  </div><div class="took" hidden></div>`;

const runPacesHtml = (W) => `<div class="seg paces" role="group" aria-label="${esc(W.live.pace)}" hidden>
    ${each(RUN_PACES, (n) => `<button type="button" data-pace="${n}">${esc(n ? fill(W.live.short_pace, { n }) : W.live.full)}</button>`)}</div>`;

// State of the run in words, beside the switch.
function runText(run, W, total) {
  const L = W.live;
  if (!run.on) return L.source_note;
  if (run.trouble) return troubleText(run.trouble, W);
  const lanes = run.lanes[run.policy],
    at = { policy: W.mode[run.policy] || '', t: number(lanes ? lanes.span : 0), T: number(total) };
  return fill(L[`run_${run.state}`], at);
}

// The measured line of a policy; nothing before it has begun.
function measuredHtml(run, policy, W) {
  const L = W.live,
    m = run.on && run.frame && run.frame.measured ? run.frame.measured[policy] : null;
  if (!m) return '';
  const rate = m.tokens_per_second === null ? '–' : number(Math.round(m.tokens_per_second));
  const part = (word, value) => `<span>${esc(word)} <b>${esc(value)}</b></span>`;
  return `<span><b>${rate}</b> ${esc(L.per_s)}</span>${part(L.ttft, timeText(m.ttft_ms))}${part(L.itl, timeText(m.itl_ms))}
    ${part(L.step, timeText(m.step_ms))}${chip(W, 'measured', esc(fill(L.run_note, { machine: machineText(run.frame.model, L) })))}
    <span class="machine">${esc(machineText(run.frame.model, L))}</span>`;
}

// Both durations side by side, once both runs are over.
function tookHtml(run, policies, W) {
  const L = W.live,
    measured = (run.on && run.frame && run.frame.measured) || {};
  if (run.state !== 'done' || policies.some((policy) => !measured[policy])) return '';
  const one = (policy) => `<span>${esc(W.policy[policy])}<b>${measured[policy].seconds.toFixed(1)}<small> ${esc(L.seconds)}</small></b></span>`;
  return `${each(policies, one)}<span>${esc(machineText(run.frame.model, L))}</span>
    ${chip(W, 'measured', esc(L.took_note))}`;
}

// The replies that are being written now, the last words of each.
function saidHtml(run) {
  const texts = (run.frame && run.frame.texts) || [],
    lanes = run.lanes[run.policy];
  const over = new Set(lanes ? lanes.log.filter(([, , code]) => code === 'FINISHED').map(([, request]) => request) : []);
  return each(
    texts,
    ([request, text]) => `<li${over.has(request) ? ' class="over"' : ''}>${badge(request)}<bdi><span>${esc(text.slice(-120).replace(/\s+/g, ' '))}</span></bdi></li>`,
  );
}
