// The default export: mounts a page once, and again only when page or language change.

const mounted = new WeakMap();

export default function ({ parentElement, data, setStateValue }) {
  const course = parentElement.querySelector('.course'),
    signature = `${data.slug}|${data.lang}`;
  let page = mounted.get(parentElement);
  if (!page || page.signature !== signature) {
    if (page) page.view.stop();
    page = { signature, view: mount(course, data, () => page.changeLanguage()) };
    mounted.set(parentElement, page);
  }
  page.changeLanguage = () => setStateValue('language', addressOf().get('lang') || 'zh');
  return () => {
    page.view.stop();
    mounted.delete(parentElement);
  };
}

function mount(course, data, changeLanguage) {
  const W = data.words,
    base = basePath(data.slug),
    scheme = matchMedia('(prefers-color-scheme: dark)');
  course.lang = data.lang === 'zh' ? 'zh-CN' : 'en';
  document.documentElement.lang = course.lang;
  course.innerHTML = topBar(data, base);
  applyTheme(course);
  try {
    const view = data.slug ? createLesson(course, data, base) : createHome(course, data, base);
    course.insertAdjacentHTML('beforeend', `<footer class="foot">${esc(W.foot)}</footer>`);
    bindShell(course, data, base, view, changeLanguage);
    decorate(course);
    scheme.onchange = () => {
      applyTheme(course);
      view.redraw();
    };
    return {
      redraw: view.redraw,
      stop: () => {
        scheme.onchange = null;
        view.stop();
      },
    };
  } catch (error) {
    console.error(error);
    const home = `<a href="${esc(base)}">${esc(W.home)}</a>`;
    course.innerHTML = `<div class="broken"><p>${esc(W.error)}</p><p>${home}</p></div>`;
    return { redraw() {}, stop() {} };
  }
}
