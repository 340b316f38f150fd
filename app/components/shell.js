// The shell of every page: theme, top bar, popovers of chips, notices. A page is `course` (the root element), `data`
// (what Python sent) and `view` with redraw() and stop().

function applyTheme(course) {
  const asked = addressOf().get('theme');
  const system = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  course.dataset.theme = asked === 'dark' || asked === 'light' ? asked : system;
  course.classList.toggle('present', addressOf().get('present') === 'true');
  // The ground outside the component: one sheet in the document's head.
  let sheet = document.getElementById('course-ground');
  if (!sheet) {
    sheet = document.createElement('style');
    sheet.id = 'course-ground';
    document.head.append(sheet);
  }
  const style = getComputedStyle(course);
  const ground = `background:${style.getPropertyValue('--paper')};color-scheme:${course.dataset.theme}`;
  const rule = `html,body,.stApp,[data-testid="stMain"]{${ground}}`;
  if (sheet.textContent !== rule) sheet.textContent = rule;
}

function topBar(data, base) {
  const W = data.words,
    other = data.lang === 'zh' ? 'en' : 'zh';
  const items = data.nav.map((n) => {
    if (!n.slug) return `<span title="${esc(n.title)} · ${esc(W.coming)}">${n.number}</span>`;
    const current = n.slug === data.slug ? ' aria-current="page"' : '';
    return `<a data-page="${n.slug}" href="${esc(pageLink(base, n.slug))}"${current}>${n.number}<span class="t"> ${esc(n.title)}</span></a>`;
  });
  return `<header class="top">
    <a class="nm" data-page="" href="${esc(pageLink(base, ''))}" aria-label="${esc(W.home)}">
      ${ICON.logo}<span>${esc(W.course)}</span></a>
    <nav aria-label="${esc(W.lessons)}">${items.join('')}</nav>
    <span class="place"></span>
    <button type="button" class="ib lang" data-lang="${other}" lang="${other}" aria-label="${esc(W.language)}">
      ${other === 'en' ? 'EN' : '中文'}</button>
    <button type="button" class="ib theme" aria-label="${esc(W.theme)}">${ICON.theme}</button>
    ${data.slug ? `<button type="button" class="ib hm present-on">${esc(W.present)}</button>` : ''}
    <button type="button" class="ib exit">${ICON.close}${esc(W.present_exit)}</button>
  </header>`;
}

function bindShell(course, data, base, view, changeLanguage) {
  const $ = (selector) => course.querySelector(selector);
  const present = (on) => {
    writeAddress({ present: on ? 'true' : null });
    applyTheme(course);
    view.redraw();
  };
  $('.lang').onclick = (event) => {
    writeAddress({ lang: event.currentTarget.dataset.lang === 'zh' ? null : 'en' });
    changeLanguage();
  };
  $('.theme').onclick = () => {
    writeAddress({ theme: course.dataset.theme === 'dark' ? 'light' : 'dark' });
    applyTheme(course);
    view.redraw();
  };
  if ($('.present-on')) $('.present-on').onclick = () => present(true);
  $('.exit').onclick = () => present(false);
  for (const link of course.querySelectorAll('[data-page]')) {
    link.onpointerdown = link.onfocus = () => {
      link.href = pageLink(base, link.dataset.page);
    }; // the address as it is now
  }
  course.onclick = (event) => popover(course, event.target.closest('[data-src]'), event);
}

// A chip opens where its number comes from; the next click anywhere closes it.
function popover(course, chipElement, event) {
  const open = course.querySelector('.pop');
  if (open && event && event.target.closest('.pop')) return;
  if (open) open.remove();
  if (!chipElement || (open && open.owner === chipElement)) return;
  const box = chipElement.getBoundingClientRect(),
    pop = document.createElement('div');
  pop.className = 'pop';
  pop.owner = chipElement;
  pop.setAttribute('role', 'status');
  pop.innerHTML = chipElement.dataset.src;
  course.append(pop);
  pop.style.left = clamp(box.left, 12, Math.max(12, innerWidth - pop.offsetWidth - 12)) + 'px';
  const below = box.bottom + 8;
  pop.style.top =
    (below + pop.offsetHeight > innerHeight - 8 ? Math.max(8, box.top - pop.offsetHeight - 8) : below) + 'px';
}

// Icons for the chips inside rendered text.
function decorate(root) {
  for (const element of root.querySelectorAll('.chip')) {
    const label = LABELS.find((name) => element.classList.contains(name));
    if (label && !element.querySelector('svg')) element.insertAdjacentHTML('afterbegin', ICON[label]);
  }
}

function notice(course, text, words) {
  const box = document.createElement('div');
  box.className = 'notice';
  box.setAttribute('role', 'status');
  box.append(text);
  box.insertAdjacentHTML(
    'beforeend',
    `<button type="button" class="ib" aria-label="${esc(words.close)}">${ICON.close}</button>`,
  );
  box.lastElementChild.onclick = () => box.remove();
  course.querySelector('.top').after(box);
}
