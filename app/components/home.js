// The first page: what the course is, one true run in small, the lessons.

function createHome(course, data, base) {
  const W = data.words,
    lanes = unpackLanes(data.first.lanes.continuous);
  const open = data.nav.find((n) => n.slug);
  const link = (n) => `data-page="${n.slug}" href="${esc(pageLink(base, n.slug))}"`;
  const lesson = (n) => {
    if (!n.slug)
      return `<li><span class="later"><b>${n.number}</b><span>${esc(n.question)}</span><small>${esc(W.coming)}</small></span></li>`;
    const small = `${n.title} · ${fill(W.minutes, { n: n.minutes })}`;
    return `<li><a ${link(n)}><b>${n.number}</b><strong>${esc(n.question)}</strong><small>${esc(small)}</small></a></li>`;
  };
  course.insertAdjacentHTML(
    'beforeend',
    `<main class="home">
      <section class="hero"><h1>${headingHtml(W.course)}</h1><p class="lede">${esc(W.promise)}</p>
        <p class="go"><a class="btn p" ${link(open)}>${esc(W.begin)}</a><span class="dim">${esc(W.takes)}</span></p></section>
      <div class="mini"><canvas role="img" tabindex="0" aria-label="${esc(W.mini)}"></canvas>
        <canvas class="axis" aria-hidden="true"></canvas>
        <p class="under"><span>${esc(W.mini)}</span>${chip(W, 'counted', esc(W.badge_note))}</p></div>
      <ol class="list">${each(data.nav, lesson)}</ol>
    </main>`,
  );
  const [canvas, axis] = course.querySelectorAll('.mini canvas');
  let t = still.matches ? lanes.span : 0,
    last = 0;
  const redraw = () => {
    const k = readTokens(course);
    drawLanes(canvas, lanes, k, { t, steps: lanes.span, laneHeight: narrow() ? 11 : 19, numbers: true });
    drawAxis(axis, k, lanes.span, t, W.zero_step, null);
  };
  const frame = (now) => {
    // one pass, five seconds, then it rests
    if (!canvas.isConnected || t >= lanes.span) return;
    t = Math.min(lanes.span, t + (Math.min(0.1, (now - last) / 1000) * lanes.span) / 5);
    last = now;
    redraw();
    requestAnimationFrame(frame);
  };
  const play = () => {
    if (still.matches) return;
    if (t >= lanes.span) t = 0;
    last = performance.now();
    requestAnimationFrame(frame);
  };
  canvas.onclick = play;
  const resize = new ResizeObserver(redraw);
  resize.observe(canvas);
  play();
  (course.getRootNode().host || course).dataset.ready = '1';
  return { redraw, stop: () => resize.disconnect() };
}

// Break a Chinese title behind its comma rather than inside a phrase.
const headingHtml = (text) =>
  text
    .split(/(?<=[，：])/)
    .map((piece) => `<span class="nb">${esc(piece)}</span>`)
    .join('');
