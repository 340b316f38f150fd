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
  const ids = scenes.map((scene) => scene.id);
  let current = Math.max(0, ids.indexOf(reader.oneOf('scene', ids)));

  course.insertAdjacentHTML(
    'beforeend',
    `<main class="lesson" data-view="${esc(scenes[current].view)}">
      <section class="hero"><p class="kick">${esc(data.kicker)}</p><h1>${data.title}</h1>
        <p class="lede">${data.lede}</p></section>
      ${each(data.views, (view) => `<section class="player" data-view="${esc(view)}" aria-label="${esc(W.figures[view])}"></section>`)}
      <div class="text">${each(scenes, (scene, i) => sceneHtml(scene, i, data, i > veiledFrom))}
        <p class="one">${data.sentence}</p></div>
      <button type="button" class="btn whole">${esc(W.figure_open)}</button>
    </main>`,
  );
  const main = course.querySelector('.lesson'),
    text = course.querySelector('.text');
  const sections = [...course.querySelectorAll('.sc')];
  const firstOf = (view) => scenes.find((scene) => scene.view === view);

  // ---- the figure --------------------------------------------------------------------------------------------------
  const locked = () => Boolean(lock) && given[lock.id] === undefined;
  let timer = 0,
    hold = 0, // until `hold`, scrolling is the page's own and changes no scene
    led = 0; // until `led`, the page keeps to the beginning of the scene it was led to
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
  const figureRoot = () => rootOf(scenes[current].view);
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
      showWhole(false);
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
    const view = scenes[current].view;
    main.dataset.view = view;
    for (const other of data.views) rootOf(other).hidden = other !== view;
  }
  function reach(section) {
    if (page.presenting()) text.scrollTop = 0;
    else if (!narrow()) section.scrollIntoView({ block: 'center' });
    else {
      // below the picture, if it stays on top
      const stage = figureRoot().querySelector('.stage');
      const stays = stage && getComputedStyle(stage).position === 'sticky';
      section.style.scrollMarginTop = `${stays ? stage.offsetHeight : 0}px`;
      section.scrollIntoView({ block: 'start' });
    }
  }
  // On a phone only the picture stays in sight. The whole figure, with all that can be pressed, comes over the text and
  // goes again; the text stays where it is below the picture.
  let picture = 0; // its height when the figure came
  function showWhole(open) {
    if (open === main.classList.contains('over')) return;
    const height = () => figureRoot().querySelector('.stage').offsetHeight,
      top = text.getBoundingClientRect().top;
    if (open) picture = height();
    main.classList.toggle('over', open);
    main.style.paddingTop = '';
    figure().redraw();
    const moved = text.getBoundingClientRect().top - top;
    if (open) main.style.paddingTop = `${-moved}px`;
    else document.querySelector('[data-testid="stMain"]').scrollTop += moved - (height() - picture);
    hold = performance.now() + 700;
    main.querySelector('.whole').textContent = open ? W.figure_close : W.figure_open;
  }
  function toScene(index, scroll) {
    const moved = index !== current;
    current = index;
    mark();
    if (moved) {
      figure().show(scenes[index].state, false);
      page.changed();
    }
    if (scroll) {
      hold = led = performance.now() + 700;
      reach(sections[index]);
    }
  }
  const watch = new IntersectionObserver(
    (entries) => {
      if (performance.now() < hold || page.presenting() || main.classList.contains('over')) return;
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
      else if (main.classList.contains('over')) showWhole(false);
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
    hold = led = 0;
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
  if (ignored.length) {
    const more = ignored.length > 6 ? ['…'] : [];
    notice(course, fill(W.ignored, { keys: [...ignored.slice(0, 6), ...more].join('  ') }), W);
  }
  document.addEventListener('keydown', keys);
  const pointed = (event) => {
    const element = event.target.closest('.text .rq');
    figure().point(element && !locked() && !figure().busy ? +element.dataset.request : null);
  };
  text.onpointerover = pointed;
  main.querySelector('.whole').onclick = () => showWhole(!main.classList.contains('over'));
  const resize = new ResizeObserver(() => figure().redraw());
  resize.observe(course);
  // A picture on top of the text that grows after the page was led to a scene would cover its beginning.
  const pictures = new ResizeObserver(() => {
    if (current && performance.now() < led && narrow()) reach(sections[current]);
  });
  for (const stage of course.querySelectorAll('.player .stage')) pictures.observe(stage);
  hold = led = performance.now() + 1500;
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
      pictures.disconnect();
    },
  };
}
