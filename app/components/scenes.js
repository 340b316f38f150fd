// The column of scenes and what hangs on them: the request's way, formulas, charts, tries, tasks, code, misconceptions,
// quiz.

function sceneHtml(scene, index, data, veiled) {
  const W = data.words;
  const kinds = ['sc', veiled ? 'veil' : '', index === data.scenes.length - 1 ? 'last' : ''].join(' ').trim();
  return `<section class="${kinds}" data-scene="${esc(scene.id)}" data-n="${index + 1}">
    <h2>${scene.title}${scene.core ? '' : `<span class="deep">${esc(W.deeper)}</span>`}</h2>
    <div class="prose">${scene.html}</div>
    ${scene.route.length ? wayHtml(scene.route, W) : ''}
    ${each(scene.formulas, formulaHtml)}
    ${each(scene.charts, (one) => chartHtml(one, W))}
    ${each(scene.predictions, (guess) => `<div class="box" data-guess="${esc(guess.id)}"></div>`)}
    ${scene.tries.length ? `<ol class="try">${each(scene.tries, (item, i) => tryHtml(item, i, W))}</ol>` : ''}
    ${each(scene.goals, goalHtml)}
    ${each(scene.code, codeHtml)}
    ${each(scene.misconceptions, (myth, i) => mythHtml(myth, i, W))}
    ${scene.quiz.length ? `<div class="quiz">${each(scene.quiz, questionHtml)}</div>` : ''}
  </section>`;
}

function wayHtml(route, W) {
  const button = (stop) => {
    const place = route.indexOf(stop);
    return `<li><button type="button" data-stop="${place}" aria-pressed="${place === 0}">
      ${stop.name}${stop.loop ? ICON.loop : ''}</button></li>`;
  };
  const main = route.filter((stop) => !stop.by_way);
  const byWays = route.filter((stop) => stop.by_way);
  return `<div class="way">
    <ol class="main">${each(main, button)}</ol>
    ${byWays.length ? `<ol class="by">${each(byWays, button)}</ol>` : ''}
    <div class="stop" role="status">${stopHtml(route[0], W)}</div>
  </div>`;
}

function stopHtml(stop, W) {
  if (!stop.by_way) return `<p>${stop.html}</p>`;
  const joins = stop.joins ? fill(W.joins, { to: stop.joins }) : '';
  return `<p>${stop.html}</p><p class="turns">${esc(fill(W.by_way, { from: stop.leaves }) + joins)}</p>`;
}

const tryHtml = (item, i, W) => `<li>
    <span>${item.html}</span>
    <button type="button" class="btn" data-try="${i}">${esc(W.take_me)}</button>
    <details class="ans" hidden><summary>${esc(W.answer)}</summary>${item.answer}</details>
  </li>`;

const goalHtml = (goal, i) => `<div class="box goal" data-goal="${i}">
    <span class="tick" aria-hidden="true">○</span><span class="q">${goal.html}</span><p class="say" role="status"></p>
  </div>`;

const codeHtml = (code) => `<details class="code">
    <summary>${code.caption}<code>${esc(code.file)}:${code.line}</code></summary>
    <pre tabindex="0"><code>${code.html}</code></pre>
  </details>`;

const mythHtml = (myth, i, W) => `<div class="mis">
    <p class="claim">${myth.claim}</p><p>${myth.truth}</p><p>${myth.experiment}</p>
    <button type="button" class="btn" data-myth="${i}">${esc(W.take_me)}</button>
  </div>`;

function questionHtml(question, i) {
  const choice = (c, j) =>
    `<button type="button" data-question="${i}" data-choice="${j}" aria-pressed="false"><span>${c.html}</span></button>`;
  return `<fieldset><legend>${question.html}</legend>
    ${each(question.choices, choice)}<div class="fb" role="status" hidden></div></fieldset>`;
}

// A formula in native MathML; its terms can be clicked. Symbols are set apart by blanks, "x / y" is a fraction.
function formulaHtml(formula, i) {
  const symbol = (word) => {
    const term = formula.terms.find((one) => word === `{${one.id}}`);
    if (term)
      return `<mrow class="term" data-formula="${i}" data-term="${esc(term.id)}" tabindex="0" role="button"><mi mathvariant="normal">${esc(term.name)}</mi></mrow>`;
    return /^[\d.]+$/.test(word) ? `<mn>${esc(word)}</mn>` : `<mo>${esc(word)}</mo>`;
  };
  const symbols = formula.expression.split(' '),
    parts = [];
  for (let k = 0; k < symbols.length; k++) {
    if (symbols[k + 1] === '/') {
      parts.push(`<mfrac>${symbol(symbols[k])}${symbol(symbols[k + 2])}</mfrac>`);
      k += 2;
    } else parts.push(symbol(symbols[k]));
  }
  return `<div class="box formula" data-formula="${i}"><math display="block"><mrow>${parts.join('')}</mrow></math>
    <p class="say">${formula.html}</p><p class="now" role="status"></p></div>`;
}

// What the figure says of the term that was clicked, kept up to date.
function showTerms(course, figure) {
  for (const box of course.querySelectorAll('.formula[data-open]'))
    setHtml(box.querySelector('.now'), figure.term ? figure.term(box.dataset.open) : '');
}

// `go(state, play)` shows a state of the figure; it answers false while the guess is still open. `changed()` is called when
// what the figure says beside the text may be another.
function bindScene(box, scene, W, go, changed) {
  const all = (selector) => box.querySelectorAll(selector);
  for (const button of all('[data-stop]')) {
    button.onclick = () => {
      all('[data-stop]').forEach((other) => other.setAttribute('aria-pressed', other === button));
      box.querySelector('.stop').innerHTML = stopHtml(scene.route[button.dataset.stop], W);
      decorate(box);
    };
  }
  for (const term of all('.term')) {
    const box = term.closest('.formula'),
      of = scene.formulas[term.dataset.formula].terms.find((one) => one.id === term.dataset.term);
    term.onclick = () => {
      for (const other of box.querySelectorAll('.term'))
        other.setAttribute('aria-pressed', other.dataset.term === term.dataset.term);
      box.dataset.open = term.dataset.term;
      box.querySelector('.say').innerHTML = of.html;
      decorate(box);
      changed();
    };
    term.onkeydown = (event) => {
      if (event.key !== 'Enter' && event.key !== ' ') return;
      event.preventDefault();
      event.stopPropagation();
      term.onclick();
    };
  }
  for (const button of all('[data-try]')) {
    button.onclick = () => {
      if (!go(scene.tries[button.dataset.try].state, true)) return;
      const item = button.closest('li');
      item.classList.add('ok');
      item.querySelector('.ans').hidden = false;
    };
  }
  for (const button of all('[data-myth]'))
    button.onclick = () => go(scene.misconceptions[button.dataset.myth].state, true);
  for (const button of all('[data-question]')) {
    button.onclick = () => {
      const field = button.closest('fieldset'),
        choice = scene.quiz[button.dataset.question].choices[button.dataset.choice];
      const feedback = field.querySelector('.fb');
      field
        .querySelectorAll('[data-question]')
        .forEach((other) => other.setAttribute('aria-pressed', other === button));
      feedback.hidden = false;
      feedback.innerHTML = `<b>${choice.right ? '✓' : '✗'}</b> ${choice.feedback}`;
      decorate(feedback);
    };
  }
}

// Tasks are checked against the figure's own run: `quantity(name)` gives a number the engine counted, or null.
function checkGoals(course, scenes, quantity, W) {
  for (const scene of scenes) {
    for (const [i, goal] of scene.goals.entries()) {
      const box = course.querySelector(`[data-scene="${CSS.escape(scene.id)}"] [data-goal="${i}"]`),
        value = quantity(scene, goal.quantity);
      if (value === null) continue;
      const met =
        (goal.at_least === null || value >= goal.at_least) && (goal.at_most === null || value <= goal.at_most);
      if (met) box.dataset.met = '1';
      box.querySelector('.tick').textContent = box.dataset.met ? '✓' : '○';
      box.querySelector('.say').innerHTML = box.dataset.met
        ? goal.done
        : esc(fill(W.goal_now, { value: value <= 1 ? percent(value) + '%' : number(value) }));
    }
  }
}
