// Charts beside the text. Rows come from the engine over HTTP, Plotly from this server, both only when a chart comes
// near; the same rows stand below it as a table.

let plotlyScript = null;
function loadPlotly(base) {
  plotlyScript ??= new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = `${base}plotly.js`;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      plotlyScript = null;
      reject(new Error('offline'));
    };
    document.head.append(script);
  });
  return plotlyScript;
}

const chartHtml = (one, W) => `<figure class="chart" data-chart="${esc(one.name)}">
    <figcaption>${one.caption} ${chip(W, 'counted', esc(W.board.chart_counted))} ${chip(W, 'derived', esc(W.board.chart_derived))}</figcaption><div class="plot"></div><p class="err" role="alert"></p>
    <details class="twin"><summary>${esc(W.twin.title)}</summary><div class="scroll"></div></details></figure>`;

function loadCharts(course, data, base) {
  const watch = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting || target.dataset.state) continue;
        target.dataset.state = 'loading';
        const name = target.dataset.chart;
        const rows = fetch(`${base}chart?name=${encodeURIComponent(name)}&v=${data.version}`).then((r) => r.json());
        Promise.all([rows, loadPlotly(base)]).then(
          ([table]) => {
            if (!target.isConnected) return;
            target.rows = table;
            target.words = data.words;
            setHtml(target.querySelector('.twin .scroll'), CHARTS[name].twin(table, data.words));
            drawCharts(course);
            target.dataset.state = 'drawn';
          },
          () => {
            target.dataset.state = '';
            target.querySelector('.err').textContent = data.words.errors.offline;
          },
        );
      }
    },
    { rootMargin: '400px' },
  );
  const resize = new ResizeObserver(() => drawCharts(course)); // titles break where the width ends
  for (const one of course.querySelectorAll('.chart')) {
    watch.observe(one);
    resize.observe(one.querySelector('.plot'));
  }
}

function drawCharts(course) {
  for (const one of course.querySelectorAll('.chart'))
    if (one.rows && window.Plotly) CHARTS[one.dataset.chart].draw(one, one.rows, one.words, course);
}

// Plotly in the colours and sizes of the page.
function chartLook(course) {
  const style = getComputedStyle(course),
    value = (name) => style.getPropertyValue(`--${name}`).trim();
  const axis = { color: value('ink2'), gridcolor: value('line'), zeroline: false, fixedrange: true };
  return {
    value,
    axis,
    size: parseFloat(value('fs-small')),
    layout: {
      paper_bgcolor: 'rgba(0,0,0,0)',
      plot_bgcolor: 'rgba(0,0,0,0)',
      font: { family: value('sans'), size: parseFloat(value('fs-small')), color: value('ink') },
      margin: { l: 44, r: 8, t: 8, b: 40 },
      showlegend: false,
    },
    config: { displayModeBar: false, responsive: true },
  };
}

// A text in lines no wider than `width`: broken between words, and after any character of a script that has no spaces.
function wrapped(text, width, font) {
  const pen = document.createElement('canvas').getContext('2d');
  pen.font = font;
  const lines = [''];
  for (const piece of text.match(/\p{Script=Han}\p{P}*|[^\s\p{Script=Han}]+\s*|\s+/gu) ?? []) {
    const longer = lines[lines.length - 1] + piece;
    if (lines[lines.length - 1] && pen.measureText(longer.trimEnd()).width > width) lines.push(piece);
    else lines[lines.length - 1] = longer;
  }
  return lines.map((one) => one.trimEnd());
}

const CHARTS = {
  // Three prices of a block size, one above the other on one axis of sizes.
  block_sizes: {
    draw(one, { rows }, W, course) {
      const { value, axis, size, layout, config } = chartLook(course),
        B = W.board,
        x = rows.map((row) => String(row.b));
      const bars = ['waste', 'table', 'lost'].map((key, i) => ({
        type: 'bar',
        x,
        y: rows.map((row) => row[key]),
        text: rows.map((row) => (key === 'waste' ? row[key].toFixed(1) : String(row[key]))),
        textposition: 'outside',
        cliponaxis: false,
        hoverinfo: 'none',
        marker: { color: rows.map((row) => (row.b === 16 ? value('ink') : value('line2'))) },
        yaxis: i ? `y${i + 1}` : 'y',
      }));
      const plot = one.querySelector('.plot'),
        lines = (text) => wrapped(text, plot.clientWidth - 2 * size, `${size}px ${layout.font.family}`);
      const title = (text, y) => ({
        ...{ text: lines(text).join('<br>'), align: 'left', showarrow: false },
        ...{ x: 0, y, xref: 'paper', yref: 'paper', xanchor: 'left', yanchor: 'bottom' },
      });
      const area = (low, high) => ({ ...axis, domain: [low, high], showticklabels: false, showgrid: false, rangemode: 'tozero' });
      Plotly.react(
        plot,
        bars,
        {
          ...layout,
          height: 33 * size,
          margin: { l: 4, r: 4, t: 3 * size, b: 3.4 * size },
          bargap: 0.35,
          xaxis: { ...axis, type: 'category', showgrid: false, title: { text: B.chart_b, standoff: 6, font: { size } }, anchor: 'y3' },
          yaxis: area(0.77, 0.93),
          yaxis2: area(0.43, 0.59),
          yaxis3: area(0, 0.22),
          annotations: [title(B.chart_waste, 0.99), title(B.chart_table, 0.66), title(B.chart_lost, 0.29)],
        },
        config,
      );
    },
    twin({ rows }, W) {
      const B = W.board,
        heads = [B.chart_b, B.chart_waste, B.chart_table, B.chart_lost];
      return `<table><thead><tr>${each(heads, (h) => `<th>${esc(h)}</th>`)}</tr></thead><tbody>${each(
        rows,
        (row) => `<tr><td>${row.b}</td><td>${row.waste.toFixed(1)}</td><td>${row.table}</td><td>${row.lost}</td></tr>`,
      )}</tbody></table>`;
    },
  },
};
