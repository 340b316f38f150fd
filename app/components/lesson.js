// The entry of a lesson page: mount once, redraw on data or theme changes.
const mounted = new WeakMap();
export default function ({ parentElement, data }) {
  const course = parentElement.querySelector('.course'), signature = data.slug + data.lang;
  let page = mounted.get(parentElement);
  if (!page || page.signature !== signature) {
    if (page) page.view.stop();
    course.lang = data.lang === 'zh' ? 'zh-CN' : 'en';
    const base = rootPath(data.slug), W = data.words;
    course.innerHTML = topBar(data, base) + (data.slug ? `<main class=lesson><section class=hero><p class=kick>${esc(data.kicker)}</p><h1>${clauses(data.title)}</h1><p class=lede>${data.lede}</p></section><section class=fig-col aria-label="${esc(W.player)}"></section><div class=text>${data.scenes.map((s, i) => sceneHtml(s, i, W)).join('')}<p class=one>${data.sentence}</p></div></main>` : homeHtml(data, base)) + `<footer class=foot>${esc(W.foot)}</footer>`;
    applyTheme(course);
    page = { signature, view: data.slug ? swimlane(course, data) : home(course, data) }; mounted.set(parentElement, page);
    bindChrome(course, () => page.view.redraw()); paintChips(course);
    const scheme = matchMedia('(prefers-color-scheme: dark)'); scheme.onchange = () => { applyTheme(course); page.view.redraw(); };
  }
  return () => { page.view.stop(); mounted.delete(parentElement); };
}
