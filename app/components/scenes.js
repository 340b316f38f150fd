// The column of scenes and what hangs on them: the request's way, tries, tasks, code, misconceptions, quiz.

function sceneHtml(scene, index, data, veiled) {
  const W = data.words, last = index === data.scenes.length - 1;
  const parts = [`<div class="prose">${scene.html}</div>`];
  if (scene.route.length) parts.push(wayHtml(scene.route, W));
  for (const guess of scene.predictions) parts.push(`<div class="box" data-guess="${esc(guess.id)}"></div>`);
  if (scene.tries.length) parts.push(`<ol class="try">${scene.tries.map((t, i) => tryHtml(t, i, W)).join('')}</ol>`);
  for (const [i, goal] of scene.goals.entries()) {
    parts.push(`<div class="box goal" data-goal="${i}"><span class="tick" aria-hidden="true">○</span><span class="q">${goal.html}</span><p class="say" role="status"></p></div>`);
  }
  for (const code of scene.code) {
    parts.push(`<details class="code"><summary>${code.caption}<code>${esc(code.file)}:${code.line}</code></summary><pre tabindex="0"><code>${code.html}</code></pre></details>`);
  }
  for (const [i, myth] of scene.misconceptions.entries()) {
    parts.push(`<div class="mis"><p class="claim">${myth.claim}</p><p>${myth.truth}</p><p>${myth.experiment}</p><button type="button" class="btn" data-myth="${i}">${esc(W.take_me)}</button></div>`);
  }
  if (scene.quiz.length) parts.push(`<div class="quiz">${scene.quiz.map(questionHtml).join('')}</div>`);
  const deep = scene.core ? '' : `<span class="deep">${esc(W.deeper)}</span>`;
  return `<section class="sc${veiled ? ' veil' : ''}${last ? ' last' : ''}" data-scene="${esc(scene.id)}" data-n="${index + 1}"><h2>${scene.title}${deep}</h2>${parts.join('')}</section>`;
}

const stopHtml = (stop, W) => `<p>${stop.html}</p>${stop.by_way ? `<p class="turns">${esc(fill(W.by_way, { from: stop.leaves })) + (stop.joins ? esc(fill(W.joins, { to: stop.joins })) : '')}</p>` : ''}`;

function wayHtml(route, W) {
  const button = (stop) => `<li><button type="button" data-stop="${route.indexOf(stop)}" aria-pressed="${route.indexOf(stop) === 0}">${stop.name}${stop.loop ? ICON.loop : ''}</button></li>`;
  const main = route.filter((stop) => !stop.by_way), by = route.filter((stop) => stop.by_way);
  return `<div class="way"><ol class="main">${main.map(button).join('')}</ol>${by.length ? `<ol class="by">${by.map(button).join('')}</ol>` : ''}
    <div class="stop" role="status">${stopHtml(route[0], W)}</div></div>`;
}

const tryHtml = (item, i, W) =>
  `<li><span>${item.html}</span><button type="button" class="btn" data-try="${i}">${esc(W.take_me)}</button><details class="ans" hidden><summary>${esc(W.answer)}</summary>${item.answer}</details></li>`;

const questionHtml = (question, i) =>
  `<fieldset><legend>${question.html}</legend>${question.choices.map((c, j) => `<button type="button" data-question="${i}" data-choice="${j}" aria-pressed="false"><span>${c.html}</span></button>`).join('')}<div class="fb" role="status" hidden></div></fieldset>`;

// `go(state, play)` shows a state of the figure; it answers false while the guess is still open.
function bindScene(box, scene, W, go) {
  const all = (selector) => box.querySelectorAll(selector);
  for (const button of all('[data-stop]')) {
    button.onclick = () => {
      all('[data-stop]').forEach((other) => other.setAttribute('aria-pressed', other === button));
      box.querySelector('.stop').innerHTML = stopHtml(scene.route[button.dataset.stop], W);
      decorate(box);
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
  for (const button of all('[data-myth]')) button.onclick = () => go(scene.misconceptions[button.dataset.myth].state, true);
  for (const button of all('[data-question]')) {
    button.onclick = () => {
      const field = button.closest('fieldset'), choice = scene.quiz[button.dataset.question].choices[button.dataset.choice];
      const feedback = field.querySelector('.fb');
      field.querySelectorAll('[data-question]').forEach((other) => other.setAttribute('aria-pressed', other === button));
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
      const box = course.querySelector(`[data-scene="${CSS.escape(scene.id)}"] [data-goal="${i}"]`), value = quantity(goal.quantity);
      if (value === null) continue;
      const met = (goal.at_least === null || value >= goal.at_least) && (goal.at_most === null || value <= goal.at_most);
      if (met) box.dataset.met = '1';
      box.querySelector('.tick').textContent = box.dataset.met ? '✓' : '○';
      box.querySelector('.say').innerHTML = box.dataset.met ? goal.done : esc(fill(W.goal_now, { value: value <= 1 ? percent(value) + '%' : number(value) }));
    }
  }
}
