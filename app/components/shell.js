// The lesson shell: theme, links, chips, scenes, predictions, quiz, code. Figure modules (swimlane.js) plug into it.
// All text arrives rendered and escaped from Python (`html` fields) or is set with textContent.
const esc = (s) => String(s).replace(/[&<>"']/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' })[c]);
const fmt = (n) => Number(n).toLocaleString('en-US');
const fill = (s, values) => s.replace(/\{(\w+)\}/g, (m, k) => (k in values ? values[k] : m));
const pct = (x) => (x * 100).toFixed(1);
const ICON = {
  play: '<svg viewBox="0 0 20 20"><path d="M6 3.5v13l11-6.5z"/></svg>',
  pause: '<svg viewBox="0 0 20 20"><path d="M5 3.5h3.6v13H5zM11.4 3.5H15v13h-3.6z"/></svg>',
  step: '<svg class=i viewBox="0 0 20 20"><path d="M5 4l8 6-8 6zM16 4v12"/></svg>',
  reset: '<svg class=i viewBox="0 0 20 20"><path d="M4 10a6 6 0 1 0 2-4.5M6 2v4h4"/></svg>',
  link: '<svg class=i viewBox="0 0 20 20"><path d="M8 12l4-4M7 9l-2.5 2.5a3.2 3.2 0 0 0 4.5 4.5L11.5 13.5M13 11l2.5-2.5a3.2 3.2 0 0 0-4.5-4.5L8.5 6.5"/></svg>',
  theme: '<svg class=i viewBox="0 0 20 20"><circle cx="10" cy="10" r="6.5"/><path d="M10 3.5v13a6.5 6.5 0 0 0 0-13z" fill="currentColor"/></svg>',
  logo: '<svg class=i viewBox="0 0 20 20" style="font-size:20px;stroke-width:3"><path d="M2 5h9M14 5h4M2 10h5M10 10h8M2 15h12M17 15h1"/></svg>',
  measured: '<svg class=i viewBox="0 0 14 14"><circle cx="7" cy="8" r="4.6"/><path d="M7 8V5.4M5.5 1.2h3"/></svg>',
  counted: '<svg class=i viewBox="0 0 14 14"><path d="M2.5 2.5v9M5.5 2.5v9M8.5 2.5v9M11.5 2.5v9M1 9.5l12-5"/></svg>',
  derived: '<svg class=i viewBox="0 0 14 14"><path d="M9.5 2.2C7.6 1.4 7 2.6 6.7 4.5L5.7 10c-.3 1.8-1 2.6-2.4 2M4 6.2h5"/></svg>',
  quoted: '<svg class=i viewBox="0 0 14 14"><path d="M5.5 3C3.4 4.2 2 6 2 8.600V11h3.6V7.5H3.4M12.5 3C10.4 4.200 9 6 9 8.600V11h3.600V7.500h-2.200"/></svg>',
};

// ---- colour -------------------------------------------------------------------------------------------------------
const luminance = (hex) => {
  const part = (i) => { const c = parseInt(hex.substr(i, 2), 16) / 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5);
};
const onHue = (hex) => { const l = luminance(hex); return 1.05 / (l + 0.05) >= (l + 0.05) / 0.056 ? '#fff' : '#0B0D10'; };
function palette(course) {
  const style = getComputedStyle(course), value = (name) => style.getPropertyValue('--' + name).trim();
  const hues = Array.from({ length: 12 }, (_, i) => value('h' + (i + 1)));
  const named = {};
  for (const name of ['paper', 'panel', 'line', 'line2', 'ink', 'ink2', 'idle']) named[name] = value(name);
  return { ...named, font: value('sans'), type: course.classList.contains('present') ? 1.7 : 1, light: course.dataset.theme !== 'dark', hue: (request) => hues[request % 12], on: (request) => onHue(hues[request % 12]) };
}

// ---- the address: everything that must survive a reload, written without a round trip --------------------------------
const query = () => new URLSearchParams(location.search);
function writeQuery(changes) {
  const params = query();
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === '') params.delete(key); else params.set(key, value);
  }
  const text = params.toString();
  const next = location.pathname + (text ? '?' + text : '');
  if (next !== location.pathname + location.search) history.replaceState(history.state, '', next);
}
const rootPath = (slug) => (slug && location.pathname.endsWith('/' + slug) ? location.pathname.slice(0, -slug.length) : location.pathname.replace(/[^/]*$/, ''));
const pageLink = (base, slug, changes = {}) => {
  const params = query(), keep = new URLSearchParams();
  for (const key of ['lang', 'theme', 'present']) if (params.has(key)) keep.set(key, params.get(key));
  for (const [key, value] of Object.entries(changes)) keep.set(key, value);
  const text = keep.toString();
  return base + slug + (text ? '?' + text : '');
};

// ---- theme, top bar, popovers -------------------------------------------------------------------------------------
function applyTheme(course) {
  const asked = query().get('theme');
  const theme = asked === 'dark' || asked === 'light' ? asked : matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  course.dataset.theme = theme;
  let sheet = document.getElementById('course-page');
  if (!sheet) { sheet = document.createElement('style'); sheet.id = 'course-page'; document.head.append(sheet); }
  const rules = `.stApp,[data-testid=stMain]{background:${getComputedStyle(course).getPropertyValue('--paper').trim()}}`;
  if (sheet.textContent !== rules) sheet.textContent = rules;
  course.classList.toggle('present', query().get('present') === 'true');
}
function topBar(data, base) {
  const W = data.words, slugs = data.nav;
  const items = slugs.map((n) => (n.slug ? `<a href="${esc(pageLink(base, n.slug))}"${n.slug === data.slug ? ' aria-current="page"' : ''}>${n.number} ${esc(n.title)}</a>` : `<span title="${esc(n.title)}">${n.number}</span>`)).join('');
  const other = data.lang === 'zh' ? 'en' : 'zh';
  return `<header class=top><a class=nm href="${esc(pageLink(base, ''))}">${ICON.logo}<span>${esc(W.course)}</span></a><nav aria-label="${esc(W.lessons)}">${items}</nav>
<a class="ib" data-lang="${other}" href="#" hreflang="${other}">${other === 'en' ? 'EN' : '中文'}</a><button type=button class=ib data-theme-btn aria-label="${esc(W.theme)}">${ICON.theme}</button><button type=button class="ib hm" data-present>${esc(W.present)}</button></header>`;
}
function bindChrome(course, redraw) {
  course.querySelector('[data-lang]').onclick = (e) => {
    e.preventDefault(); const params = query(); params.set('lang', e.currentTarget.dataset.lang); location.search = params.toString();
  };
  course.querySelector('[data-theme-btn]').onclick = () => { writeQuery({ theme: course.dataset.theme === 'dark' ? 'light' : 'dark' }); applyTheme(course); paintChips(course); redraw(); };
  course.querySelector('[data-present]').onclick = () => { writeQuery({ present: course.classList.contains('present') ? null : 'true' }); applyTheme(course); redraw(); };
  course.onclick = (e) => {
    const open = course.querySelector('#pop'); if (open) open.remove();
    const chip = e.target.closest('[data-src]'); if (!chip || chip.dataset.src === (open && open.textContent)) return;
    const box = chip.getBoundingClientRect(), pop = document.createElement('div');
    pop.id = 'pop'; pop.setAttribute('role', 'status'); pop.textContent = chip.dataset.src; course.append(pop);
    pop.style.left = Math.max(12, Math.min(box.left, innerWidth - pop.offsetWidth - 12)) + 'px'; pop.style.top = Math.min(box.bottom + 8, innerHeight - pop.offsetHeight - 8) + 'px';
  };
}
function paintChips(course) {
  const colours = palette(course);
  for (const chip of course.querySelectorAll('.chip')) {
    const kind = ['measured', 'counted', 'derived', 'quoted'].find((k) => chip.classList.contains(k));
    if (kind && !chip.querySelector('svg')) chip.insertAdjacentHTML('afterbegin', ICON[kind]);
  }
  for (const badge of course.querySelectorAll('.rq')) { const m = /--h(\d+)/.exec(badge.getAttribute('style') || ''); if (m) badge.style.setProperty('--t', colours.on(m[1] - 1)); }
}
// Headings break at the colon and the comma, as Chinese ones should.
const clauses = (html) => html.split(/(?<=[：，？])/).map((part) => `<span class=cl>${part}</span>`).join('');
const requestBadge = (request) => `<span class=rq style="--c:var(--h${(request % 12) + 1})">${request + 1}</span>`;

// ---- scenes ---------------------------------------------------------------------------------------------------------
const KEYWORDS = /^(False|None|True|and|as|break|class|continue|def|elif|else|for|from|if|import|in|is|lambda|not|or|pass|raise|return|self|while|with|yield)$/;
function highlight(text) {
  return text.split(/("""[\s\S]*?"""|#[^\n]*|"[^"\n]*"|'[^'\n]*'|\b[A-Za-z_]\w*\b)/).map((part) => (part.startsWith('#') ? `<span class=c>${esc(part)}</span>` : /^["']/.test(part) ? `<span class=s>${esc(part)}</span>` : KEYWORDS.test(part) ? `<span class=k>${esc(part)}</span>` : esc(part))).join('');
}
function sceneHtml(scene, index, W) {
  const parts = [scene.html];
  if (scene.route.length) {
    parts.push(`<ol class=route>${scene.route.map((s, i) => `<li class="${s.by ? 'by' : ''}"><button type=button data-stop="${i}" aria-pressed="${i === 0}">${s.name}</button></li>`).join('')}</ol><div class=stop role=status>${scene.route[0].html}</div>`);
  }
  for (const guess of scene.predictions) parts.push(`<div class=box data-guess="${esc(guess.id)}"></div>`);
  if (scene.tries.length) parts.push(`<ol class=try>${scene.tries.map((t, i) => `<li data-i="${i}"><span>${t.html}</span><button type=button class=btn data-try="${i}">${esc(W.take_me)}</button></li>`).join('')}</ol>`);
  for (const goal of scene.goals) parts.push(`<div class=box data-goal="${esc(goal.id)}"><span class=q>${goal.html}</span><span class="dim g" role=status></span></div>`);
  for (const code of scene.code) parts.push(`<details class=code><summary>${code.caption} <code>${esc(code.file)}:${code.line}</code></summary><pre tabindex=0>${highlight(code.text)}</pre></details>`);
  for (const [i, m] of scene.misconceptions.entries()) parts.push(`<div class=mis><p class=claim>${m.claim}</p><p>${m.truth}</p><p>${m.experiment} <button type=button class=btn data-mis="${i}">${esc(W.take_me)}</button></p></div>`);
  if (scene.quiz.length) parts.push(`<div class=quiz>${scene.quiz.map((q, i) => `<fieldset><legend>${q.html}</legend>${q.choices.map((c, j) => `<button type=button data-q="${i}" data-c="${j}" aria-pressed=false>${c.html}</button>`).join('')}<div class=fb hidden role=status></div></fieldset>`).join('')}</div>`);
  return `<section class=sc id="s-${esc(scene.id)}" data-n="${index + 1}"><h2>${clauses(scene.title)}${scene.core ? '' : `<span class=deep>${esc(W.deeper)}</span>`}</h2>${parts.join('')}</section>`;
}
function bindScenes(course, data, go) {
  data.scenes.forEach((scene, index) => {
    const box = course.querySelector(`#s-${CSS.escape(scene.id)}`);
    for (const b of box.querySelectorAll('[data-stop]')) b.onclick = () => {
      box.querySelectorAll('[data-stop]').forEach((o) => o.setAttribute('aria-pressed', o === b)); box.querySelector('.stop').innerHTML = scene.route[b.dataset.stop].html; paintChips(course);
    };
    for (const b of box.querySelectorAll('[data-try]')) b.onclick = () => {
      const t = scene.tries[b.dataset.try], li = b.closest('li'); li.classList.add('ok');
      if (!li.querySelector('.ans')) li.insertAdjacentHTML('beforeend', `<div class=ans>${t.answer}</div>`);
      paintChips(course); go(t.state, true);
    };
    for (const b of box.querySelectorAll('[data-mis]')) b.onclick = () => go(scene.misconceptions[b.dataset.mis].state, true);
    for (const b of box.querySelectorAll('[data-q]')) b.onclick = () => {
      const field = b.closest('fieldset'), choice = scene.quiz[b.dataset.q].choices[b.dataset.c], fb = field.querySelector('.fb');
      field.querySelectorAll('[data-q]').forEach((o) => o.setAttribute('aria-pressed', o === b));
      fb.hidden = false; fb.innerHTML = `<b>${choice.right ? '✓' : '✗'}</b> ${choice.feedback}`; paintChips(course);
    };
  });
}
