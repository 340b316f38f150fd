// The KV calculator of lesson 2, and the anchor's account of one GPU. Sums are done by the engine's closed forms
// (app/calculator.py): presets come with the page, own values are asked for over HTTP.

const ACCOUNT_PRESETS = ['anchor', 'llama', 'tiny'];

function createAccount(root, data, page) {
  const W = data.words,
    A = W.account,
    fields = Object.keys(data.account.fields),
    host = page.host;
  root.classList.add('account');
  root.innerHTML = accountHtml(data);
  const $ = (selector) => root.querySelector(selector),
    $$ = (selector) => [...root.querySelectorAll(selector)];
  const typed = (preset) =>
    Object.fromEntries(fields.map((name) => [name, String(data.account.presets[preset].values[name])]));
  let S = { preset: 'llama', eaten: 0, ...typed('llama') };
  let result = data.account.presets.llama,
    error = null,
    asked = 0;

  const stateOf = (scene) => ({ preset: scene.preset || 'llama', eaten: scene.eaten || 0, ...typed(scene.preset || 'llama') });

  function settle() {
    const preset = ACCOUNT_PRESETS.find((name) => fields.every((field) => typed(name)[field] === S[field]));
    S.preset = preset || 'own';
    if (preset) {
      asked++;
      error = null;
      result = data.account.presets[preset];
      return draw();
    }
    const turn = ++asked,
      params = new URLSearchParams(fields.map((field) => [field, S[field]]));
    params.set('v', data.version);
    draw();
    return fetch(`${page.base}account?${params}`)
      .then((response) => response.json())
      .catch(() => ({ error: { code: 'offline', detail: {} } }))
      .then((body) => {
        if (turn !== asked || !root.isConnected) return;
        error = body.error || null;
        if (!body.error) result = body;
        draw();
      });
  }

  function draw() {
    for (const button of $$('[data-preset]')) button.setAttribute('aria-pressed', button.dataset.preset === S.preset);
    for (const input of $$('.fields input')) {
      if (input.value !== S[input.name] && root.getRootNode().activeElement !== input) input.value = S[input.name];
      input.setAttribute('aria-invalid', Boolean(error && error.detail.field === input.name));
    }
    const said = error && fill(W.errors[error.code] || W.errors.broken, { ...error.detail, field: A[error.detail.field] });
    setHtml($('.err'), said ? esc(said) : '');
    const v = result.values;
    $('.sums').classList.toggle('late', Boolean(error));
    for (const name of ['token', 'request', 'all']) {
      setHtml($(`[data-sum=${name}] .big`), esc(result.shown[name]));
      setHtml($(`[data-sum=${name}] .how`), esc(fill(A[`how_${name}`], { ...v, one: result.shown[name === 'all' ? 'request' : 'token'] })));
    }
    $('.gpu').hidden = S.preset !== 'anchor';
    $('.gpu').classList.toggle('eaten', Boolean(S.eaten));
    $('[data-eat]').setAttribute('aria-pressed', Boolean(S.eaten));
    if ($('.twin').open) setHtml($('.twin .scroll'), twin());
    Object.assign(host.dataset, { ready: '1', preset: S.preset, eaten: S.eaten ? '1' : '' });
  }

  function twin() {
    const row = (name, value) => `<tr><td>${esc(name)}</td><td>${esc(value)}</td></tr>`;
    return `<table><tbody>${each(fields, (field) => row(A[field], S[field]))}
      ${each(['token', 'request', 'all'], (name) => row(A[name], result.shown[name]))}</tbody></table>`;
  }

  for (const button of $$('[data-preset]'))
    button.onclick = () => {
      if (button.dataset.preset === 'own') return $('.fields input').focus();
      Object.assign(S, typed(button.dataset.preset));
      for (const input of $$('.fields input')) input.value = S[input.name];
      settle();
      return page.changed();
    };
  for (const input of $$('.fields input'))
    input.oninput = () => {
      S[input.name] = input.value.normalize('NFKC').trim();
      settle();
      page.changed();
    };
  $('[data-eat]').onclick = () => {
    S.eaten = S.eaten ? 0 : 1;
    draw();
    page.changed();
  };
  $('.reset').onclick = () => {
    S = { ...home };
    settle();
    page.changed();
  };
  $('.link').onclick = () => copyLink($('.link span'), W, page.changed);
  $('.twin').ontoggle = draw;
  let home = S;

  return {
    show(state) {
      S = stateOf(state);
      home = { ...S };
      settle();
    },
    restore(reader, state) {
      S = stateOf(state);
      home = { ...S };
      const preset = reader.oneOf('preset', ACCOUNT_PRESETS);
      if (preset) Object.assign(S, typed(preset));
      const eaten = reader.whole('eaten', 0, 1);
      if (eaten !== null) S.eaten = eaten;
      for (const field of fields) {
        const value = reader.whole(field, ...data.account.fields[field]);
        if (value !== null) S[field] = String(value);
      }
      settle();
    },
    params(state) {
      const base = stateOf(state),
        own = S.preset === 'own',
        good = (field) => own && /^\d{1,9}$/.test(S[field]);
      return {
        preset: own || S.preset === base.preset ? null : S.preset,
        eaten: S.eaten === base.eaten ? null : S.eaten,
        ...Object.fromEntries(fields.map((field) => [field, good(field) ? S[field] : null])),
      };
    },
    quantity: () => null,
    redraw: draw,
    point() {},
    toggle() {},
    step() {},
    busy: false,
    stop() {
      asked++;
    },
  };
}

function accountHtml(data) {
  const W = data.words,
    A = W.account,
    { values, shown } = data.account.anchor,
    cells = (count, kind) => `<i class="${kind}"></i>`.repeat(count);
  const field = (name) => `<label><span>${esc(A[name])}</span><input name="${name}" inputmode="numeric" maxlength="9"></label>`;
  const sum = (name) => `<div data-sum="${name}"><h3>${esc(A[name])} ${chip(W, 'derived', esc(A.sum_note))}</h3>
    <p class="big"></p><p class="how"></p></div>`;
  const bytes = (name) => `<b>${esc(shown[name])}</b>`;
  return `<div class="stage">
      <div class="ctl"><div class="seg" role="group" aria-label="${esc(A.presets)}">${each(
        [...ACCOUNT_PRESETS, 'own'],
        (name) => `<button type="button" data-preset="${name}">${esc(A[`preset_${name}`])}</button>`,
      )}</div>
        <button type="button" class="ib reset" aria-label="${esc(W.reset)}">${ICON.reset}<span>${esc(W.reset)}</span></button>
        <button type="button" class="ib link" aria-label="${esc(W.link)}">${ICON.link}<span>${esc(W.link)}</span></button></div>
      <div class="fields">${each(Object.keys(data.account.fields), field)}</div>
      <p class="err" role="alert"></p>
      <div class="sums" aria-live="polite">${each(['token', 'request', 'all'], sum)}</div></div>
    <div class="rest"><div class="gpu">
      <h3>${esc(A.gpu)} ${chip(W, 'derived', esc(A.gpu_note))}</h3>
      <div class="card"><span class="weights" style="flex:${values.weight_bytes}">${esc(A.weights)} ${bytes('weight_bytes')}</span>
        <span class="left" style="flex:${values.left_bytes}">${esc(A.left)} ${bytes('left_bytes')}</span></div>
      <p>${fill(esc(A.blocks), { blocks: `<b>${number(values.blocks)}</b>`, each: values.blocks_per_request, tokens: number(values.context_tokens), fit: `<b>${values.requests_by_blocks_alone}</b>` })}</p>
      <div class="fit" role="img" aria-label="${esc(fill(A.fit_label, { fit: values.requests, eaten: values.requests_eaten_by_state }))}">
        ${cells(values.requests, 'live')}${cells(values.requests_eaten_by_state, 'ate')}</div>
      <p><button type="button" class="btn" data-eat>${esc(A.eat)}</button></p>
      <p class="truth">${fill(esc(A.truth), { state: bytes('state_bytes'), kv: bytes('request_kv_bytes'), all: bytes('request_bytes'), fit: `<b>${values.requests}</b>`, eaten: `<b>${values.requests_eaten_by_state}</b>`, bf16: values.requests_with_bf16_state })}</p>
    </div>
    <details class="twin"><summary>${esc(W.twin.title)}</summary><div class="scroll"></div></details></div>`;
}
