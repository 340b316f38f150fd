// The first page: what the course is, its lessons, and one true swimlane in small.
function homeHtml(data, base) {
  const W = data.words;
  return `<main class=home><section class=hero><h1>${esc(W.course)}</h1><p class=lede>${esc(W.promise)}</p></section><canvas role=img aria-label="${esc(W.mini)}"></canvas><p class=note>${esc(W.mini)} <button type=button class="chip counted" data-src="${esc(W.badge_note)}">${esc(W.counted)}</button></p>
<p style="margin-top:22px"><a class="btn p" style="text-decoration:none" href="${esc(pageLink(base, data.nav[0].slug))}">${esc(W.begin)}</a></p>
<ol>${data.nav.map((n) => `<li><b>${n.number}</b>${n.slug ? `<a href="${esc(pageLink(base, n.slug))}">${esc(n.long)}</a>` : `<span class=dim>${esc(n.long)}</span><span class="soon dim">${esc(W.coming)}</span>`}</li>`).join('')}</ol></main>`;
}
function home(course, data) {
  const lanes = unpack(data.initial.lanes.continuous);
  const render = () => drawLanes(course.querySelector('canvas'), lanes, lanes.span, lanes.span, innerWidth <= 900 ? 12 : 20, palette(course), null);
  const resize = new ResizeObserver(render); resize.observe(course); render();
  (course.getRootNode().host || course).dataset.ready = '1';
  return { redraw: render, stop: () => resize.disconnect() };
}
