// Predictions: the learner commits to a number, then sees it beside the counted one (a hollow mark is the guess, a solid
// one is counted), or to a choice, and sees what becomes of it.

// `guesses` holds the numbers given so far, by prediction id.
function predictionHtml(guess, given, W) {
  if (guess.kind === 'choice') return choiceHtml(guess, given);
  if (given === undefined) {
    const [high, unit] = guess.kind === 'percent' ? [100, '%'] : [Math.max(10, Math.round(guess.answer * 2)), ''];
    return `<label class="q" for="g-${esc(guess.id)}">${guess.html}</label><div class="grow">
      <input id="g-${esc(guess.id)}" type="range" min="0" max="${high}" value="${guess.start}">
      <output for="g-${esc(guess.id)}"><span>${number(guess.start)}</span><small>${unit}</small></output>
      <button type="button" class="btn p commit">${esc(W.guess_go)}</button></div>`;
  }
  const away = given - guess.answer;
  const say = Math.abs(away) <= guess.tolerance ? guess.close : away > 0 ? guess.high : guess.low;
  return `<span class="q">${guess.html}</span>${rulerHtml([guess], given, W)}<p class="say" role="status">${say}</p>`;
}

function choiceHtml(guess, given) {
  const choice = (c, i) => {
    const mark = given === undefined ? '' : `<b>${c.right ? '✓' : i === given ? '✗' : ''}</b>`;
    const state = `aria-pressed="${i === given}"${given === undefined ? '' : ' disabled'}`;
    return `<button type="button" data-pick="${i}" ${state}><span>${c.html}</span>${mark}</button>`;
  };
  const say = given === undefined ? '' : `<p class="say" role="status">${guess.choices[given].feedback}</p>`;
  return `<span class="q">${guess.html}</span><div class="picks">${each(guess.choices, choice)}</div>${say}`;
}

// One line from 0 to 100 % (or to the largest number) with the counted marks and the guess.
function rulerHtml(counted, given, W) {
  const isPercent = counted[0].kind === 'percent';
  const top = isPercent ? 100 : Math.max(given, ...counted.map((c) => c.answer)) * 1.15 || 1;
  const side = (value) => (value / top < 0.06 ? ' l' : value / top > 0.94 ? ' r' : '');
  const place = (value) => `left:${(clamp(value / top, 0, 1) * 100).toFixed(2)}%`;
  const marks = counted.map(
    (c) => `<span class="mk${side(c.answer)}" style="${place(c.answer)}">${esc(c.name)}<b>${esc(c.shown)}</b></span>`,
  );
  const unit = isPercent ? '%' : '';
  const end = isPercent ? '100%' : number(Math.round(top));
  const guess = `${esc(W.you_guess)} <b>${number(given)}${unit}</b>`;
  return `<div class="rule"><i style="left:0">0</i><i style="left:100%">${end}</i>${marks.join('')}
    <span class="mk g${side(given)}" style="${place(given)}">${guess}</span></div>`;
}

function bindPrediction(box, guess, commit) {
  for (const button of box.querySelectorAll('[data-pick]')) button.onclick = () => commit(guess, +button.dataset.pick);
  const input = box.querySelector('input');
  if (!input) return;
  input.oninput = () => {
    box.querySelector('output span').textContent = number(input.value);
  };
  box.querySelector('.commit').onclick = () => commit(guess, +input.value);
}
