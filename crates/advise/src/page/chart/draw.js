// Draws each figure of the page: what is drawn stands beside its canvas as JSON.
'use strict';
const style = getComputedStyle(document.documentElement);
const colour = name => style.getPropertyValue(name).trim();
const colours = [0, 1, 2, 3, 4, 5].map(n => colour('--c' + n));
const short = value => {
  const units = [[1e6, 'M'], [1e4, 'k']];
  const unit = units.find(([scale]) => Math.abs(value) >= scale);
  return unit ? +(value / (unit[1] === 'k' ? 1e3 : 1e6)).toPrecision(3) + unit[1] : String(+value.toPrecision(4));
};
// Of an axis of powers of ten: 1, 2 and 5 times each.
const ofPowers = value => [1, 2, 5].includes(+(value / 10 ** Math.floor(Math.log10(value) + 1e-9)).toPrecision(2)) ? short(value) : null;
// Vertical lines with a label, such as the sizes of caches; `at` counts places of the axis, fractions too.
const marks = {
  id: 'marks',
  afterDatasetsDraw(chart, _, options) {
    const {ctx, chartArea: area, scales: {x}} = chart;
    for (const mark of options.all || []) {
      const low = x.getPixelForValue(Math.floor(mark.at)), high = x.getPixelForValue(Math.ceil(mark.at));
      const at = low + (high - low) * (mark.at - Math.floor(mark.at));
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = colour('--quiet');
      ctx.setLineDash([4, 4]);
      ctx.beginPath();
      ctx.moveTo(at, area.top);
      ctx.lineTo(at, area.bottom);
      ctx.stroke();
      ctx.font = '11px system-ui,sans-serif';
      const before = at > (area.left + area.right) / 2;
      ctx.textAlign = before ? 'right' : 'left';
      ctx.fillText(mark.label, at + (before ? -4 : 4), area.bottom - 6);
      ctx.restore();
    }
  },
};
const draw = figure => {
  const curves = figure.form === 'curves', bars = figure.form === 'bars' || figure.form === 'stacked';
  const axis = (text, more) => ({
    title: {display: true, text, color: colour('--ink')},
    ticks: {color: colour('--ink')},
    grid: {color: colour('--line')},
    ...more,
  });
  const numbers = {ticks: {color: colour('--ink'), callback: short}};
  const stacked = figure.form === 'stacked';
  const datasets = figure.series.map((series, n) => ({
    label: series.name,
    data: curves ? series.values.map((y, i) => ({x: series.across[i], y})) : series.values,
    borderColor: colours[n % 6],
    backgroundColor: colours[n % 6],
    borderDash: n < 6 ? [] : [6, 3],
    borderWidth: bars ? 0 : 2,
    pointRadius: 3,
    showLine: true,
  }));
  return {
    type: bars ? 'bar' : curves ? 'scatter' : 'line',
    data: {labels: figure.places, datasets},
    plugins: [marks],
    options: {
      animation: false,
      maintainAspectRatio: false,
      interaction: {mode: curves ? 'nearest' : 'index', intersect: false},
      scales: {
        x: axis(figure.across, {stacked, ...(curves ? {min: 0, ...numbers} : {})}),
        y: axis(figure.up, {
          stacked,
          type: figure.form === 'log_lines' ? 'logarithmic' : 'linear',
          ...(figure.form === 'log_lines' ? {} : {min: 0}),
          ticks: {color: colour('--ink'), callback: figure.form === 'log_lines' ? ofPowers : short},
        }),
      },
      plugins: {
        legend: {position: 'bottom', labels: {color: colour('--ink'), boxWidth: 12}},
        tooltip: {callbacks: {label: item => {
          const at = curves ? short(item.parsed.x) + ' ' + figure.across + ': ' : '';
          return item.dataset.label + ': ' + at + short(item.parsed.y) + ' ' + figure.up;
        }}},
        marks: {all: figure.marks},
      },
    },
  };
};
for (const script of document.querySelectorAll('script[data-figure]')) {
  const canvas = script.parentElement.querySelector('canvas');
  new Chart(canvas, draw(JSON.parse(script.textContent)));
}
