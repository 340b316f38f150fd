// A lesson: the column of scenes beside a figure. A scene is one idea with one state of its figure; scrolling, the arrow
// keys and the address all lead to it. A lesson may have several figures; the one of the current scene is shown. Until
// the first prediction is made the figures are locked.

function createLesson(course, data, base) {
  const W = data.words,
    host = course.getRootNode().host || course,
    scenes = data.scenes,
    reader = new AddressReader();
  const predictions = scenes.flatMap((scene) => scene.predictions),
    lock = predictions[0];
  const veiledFrom = lock ? scenes.findIndex((scene) => scene.predictions.includes(lock)) : Infinity;
  const given = {};
  predictions.forEach((guess, i) => {
    const most = { percent: 100, choice: (guess.choices || []).length - 1 }[guess.kind] ?? 1e9;
    const value = reader.whole(i ? `guess_${guess.id}` : 'guess', 0, most);
    if (value !== null) given[guess.id] = value;
  });
  let current = Math.max(
    0,
    scenes.findIndex(
      (scene) =>
        scene.id ===
        reader.oneOf(
          'scene',
          scenes.map((s) => s.id),
        ),
    ),
  );

  course.insertAdjacentHTML(
    'beforeend',
    `<main class="lesson" data-view="${esc(scenes[current].view)}">
      <section class="hero"><p class="kick">${esc(data.kicker)}</p><h1>${data.title}</h1>
        <p class="lede">${data.lede}</p></section>
      ${each(data.views, (view) => `<section class="player" data-view="${esc(view)}" aria-label="${esc(W.figures[view])}"></section>`)}
      <div class="text">${each(scenes, (scene, i) => sceneHtml(scene, i, data, i > veiledFrom))}
        <p class="one">${data.sentence}</p></div>
    </main>`,
  );
  const sections = [...course.querySelectorAll('.sc')];
  const firstOf = (view) => scenes.find((scene) => scene.view === view);

  // ---- the figure --------------------------------------------------------------------------------------------------
  const locked = () => Boolean(lock) && given[lock.id] === undefined;
  let timer = 0,
    hold = 0; // until `hold`, scrolling is the page's own and changes no scene
  const page = {
    course,
    host,
    base,
    locked,
    lockState: () => scenes[veiledFrom].state,
    askGuess: () => go(null, false),
    presenting: () => course.classList.contains('present'),
    guess: (policy, B, real) => (lock && real && lock.about === `${policy}.${B}` && !locked() ? given[lock.id] : null),
    // What stands in the text follows the figure.
    told: () => {
      checkGoals(course, scenes, (scene, path) => figures[scene.view].quantity(path), W);
      showTerms(course, figure());
    },
    changed: (now) => {
      // to the address, not more than a few times a second
      page.told();
      clearTimeout(timer);
      if (now === true) save();
      else timer = setTimeout(save, 250);
    },
  };
  const rootOf = (view) => course.querySelector(`.player[data-view="${CSS.escape(view)}"]`);
  const figures = Object.fromEntries(data.views.map((view) => [view, FIGURES[view](rootOf(view), data, page)]));
  const figure = () => figures[scenes[current].view];
  function save() {
    clearTimeout(timer);
    if (!course.isConnected) return;
    const own = Object.fromEntries(
      predictions.map((guess, i) => [i ? `guess_${guess.id}` : 'guess', given[guess.id] ?? null]),
    );
    const state = (view) => (scenes[current].view === view ? scenes[current] : firstOf(view)).state;
    const held = data.views.map((view) => [view, figures[view].params(state(view))]);
    const others = held.filter(([view]) => view !== scenes[current].view).flatMap(([, params]) => Object.keys(params));
    writeAddress({
      scene: current ? scenes[current].id : null,
      ...own,
      ...Object.fromEntries(others.map((key) => [key, null])),
      ...figure().params(scenes[current].state),
    });
  }

  // Show a state; while the guess is open, lead there instead.
  function go(state, play) {
    if (locked()) {
      toScene(veiledFrom, true);
      course.querySelector(`[data-guess="${CSS.escape(lock.id)}"] :is(input, button)`).focus({ preventScroll: true });
      return false;
    }
    figure().show(state, play);
    page.changed();
    return true;
  }

  // ---- scenes ------------------------------------------------------------------------------------------------------
  function mark() {
    sections.forEach((section, i) => section.classList.toggle('on', i === current));
    course.querySelector('.top .place').textContent = `${current + 1} / ${scenes.length}`;
    course.classList.toggle('locked', locked());
    host.dataset.scene = scenes[current].id;
    const view = scenes[current].view,
      main = course.querySelector('.lesson');
    main.dataset.view = view;
    for (const other of data.views) rootOf(other).hidden = other !== view;
  }
  function reach(section) {
    if (page.presenting()) course.querySelector('.text').scrollTop = 0;
    else if (!narrow()) section.scrollIntoView({ block: 'center' });
    else {
      // below the picture, which stays on top
      section.style.scrollMarginTop = `${course.querySelector('.stage').offsetHeight}px`;
      section.scrollIntoView({ block: 'start' });
    }
  }
  function toScene(index, scroll) {
    const moved = index !== current;
    current = index;
    mark();
    if (scroll) {
      hold = performance.now() + 700;
      reach(sections[index]);
    }
    if (moved) {
      figure().show(scenes[index].state, false);
      page.changed();
    }
  }
  const watch = new IntersectionObserver(
    (entries) => {
      if (performance.now() < hold || page.presenting()) return;
      for (const entry of entries) if (entry.isIntersecting) toScene(sections.indexOf(entry.target), false);
    },
    { rootMargin: '-55% 0px -43% 0px' },
  );

  // ---- guesses -----------------------------------------------------------------------------------------------------
  function drawGuesses() {
    for (const guess of predictions) {
      const box = course.querySelector(`[data-guess="${CSS.escape(guess.id)}"]`);
      box.innerHTML = predictionHtml(guess, given[guess.id], W);
      bindPrediction(box, guess, (made, value) => {
        const first = locked();
        given[made.id] = value;
        drawGuesses();
        mark();
        current = scenes.findIndex((scene) => scene.predictions.includes(made));
        mark();
        if (first) figure().show({ ...scenes[veiledFrom].state, step: still.matches ? -1 : 0 }, true);
        page.changed();
      });
      decorate(box);
    }
  }

  // ---- keys: space, full stop, comma, arrows, escape ---------------------------------------------------------------
  function keys(event) {
    if (!course.isConnected || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.composedPath()[0],
      on = (selector) => target instanceof Element && target.matches(selector);
    if (event.key === 'Escape') {
      if (course.querySelector('.pop')) popover(course, null);
      else if (page.presenting()) course.querySelector('.exit').click();
      return;
    }
    if (on('input, textarea, select')) return;
    if (event.key === ' ' && !on('button, summary, a, pre, [role=button]')) figure().toggle();
    else if (event.key === '.') figure().step(1);
    else if (event.key === ',') figure().step(-1);
    else if (figure().key && figure().key(event)); // a key of the figure's own
    else if (event.key === 'ArrowRight' || (event.key === 'PageDown' && page.presenting()))
      toScene(Math.min(scenes.length - 1, current + 1), true);
    else if (event.key === 'ArrowLeft' || (event.key === 'PageUp' && page.presenting()))
      toScene(Math.max(0, current - 1), true);
    else return;
    event.preventDefault();
  }

  // ---- start -------------------------------------------------------------------------------------------------------
  const free = () => {
    hold = 0;
  };
  for (const kind of ['wheel', 'touchstart', 'pointerdown']) document.addEventListener(kind, free, { passive: true });
  sections.forEach((section, i) => {
    bindScene(section, scenes[i], W, go, page.changed);
    watch.observe(section);
  });
  drawGuesses();
  mark();
  for (const view of data.views)
    figures[view].restore(reader, (scenes[current].view === view ? scenes[current] : firstOf(view)).state);
  loadCharts(course, data, base);
  const ignored = reader.rest();
  if (ignored.length) notice(course, fill(W.ignored, { keys: ignored.slice(0, 4).join('  ') }), W);
  document.addEventListener('keydown', keys);
  const pointed = (event) => {
    const element = event.target.closest('.text .rq');
    figure().point(element && !locked() && !figure().busy ? +element.dataset.request : null);
  };
  course.querySelector('.text').onpointerover = pointed;
  const resize = new ResizeObserver(() => figure().redraw());
  resize.observe(course);
  hold = performance.now() + 1500;
  if (current) requestAnimationFrame(() => reach(sections[current]));
  return {
    redraw: () => {
      mark();
      figure().redraw();
      drawCharts(course);
    },
    stop() {
      save();
      for (const view of data.views) figures[view].stop();
      document.removeEventListener('keydown', keys);
      for (const kind of ['wheel', 'touchstart', 'pointerdown']) document.removeEventListener(kind, free);
      watch.disconnect();
      resize.disconnect();
    },
  };
}
