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
  for (const one of course.querySelectorAll('.chart')) watch.observe(one);
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
      const title = (text, y) => ({ text, x: 0, y, xref: 'paper', yref: 'paper', xanchor: 'left', yanchor: 'bottom', showarrow: false });
      const area = (low, high) => ({ ...axis, domain: [low, high], showticklabels: false, showgrid: false, rangemode: 'tozero' });
      Plotly.react(
        one.querySelector('.plot'),
        bars,
        {
          ...layout,
          height: 32 * size,
          margin: { l: 4, r: 4, t: 2 * size, b: 3.4 * size },
          bargap: 0.35,
          xaxis: { ...axis, type: 'category', showgrid: false, title: { text: B.chart_b, standoff: 6, font: { size } }, anchor: 'y3' },
          yaxis: area(0.75, 0.93),
          yaxis2: area(0.4, 0.58),
          yaxis3: area(0, 0.23),
          annotations: [title(B.chart_waste, 0.99), title(B.chart_table, 0.65), title(B.chart_lost, 0.3)],
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
