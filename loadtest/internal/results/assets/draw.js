// Draws every chart of the page. window.drawn lists those that are.
const colours = ['#2f6fde', '#e07b28', '#1f9d6b', '#a74bc4', '#c8a415', '#d1495b', '#4fb3c8', '#7a8699'];
const ink = getComputedStyle(document.documentElement).getPropertyValue('--ink');
Chart.defaults.color = ink;
Chart.defaults.animation = false;
Chart.defaults.maintainAspectRatio = false;
window.drawn = [];

function axis(title, log) {
  return { type: log ? 'logarithmic' : 'linear', title: { display: !!title, text: title }, beginAtZero: !log, grid: { color: '#8883' } };
}

for (const [id, chart] of Object.entries(charts)) {
  const bars = chart.kind === 'bar';
  const datasets = (chart.series || []).map((s, i) => {
    const colour = colours[i % colours.length];
    return {
      label: s.name,
      data: bars ? (s.values || []) : (s.points || []),
      backgroundColor: bars ? colour : colour + '33',
      borderColor: colour,
      borderWidth: bars ? 0 : 2,
      borderDash: s.dashed ? [6, 4] : [],
      pointRadius: 3,
    };
  });
  new Chart(document.getElementById(id), {
    type: bars ? 'bar' : 'line',
    data: { labels: bars ? chart.labels : undefined, datasets },
    options: {
      plugins: { title: { display: true, text: chart.title }, legend: { display: datasets.length > 1 } },
      scales: {
        x: bars ? { title: { display: !!chart.x, text: chart.x }, grid: { display: false } } : axis(chart.x, chart.log_x),
        y: axis(chart.y, chart.log_y),
      },
    },
  });
  window.drawn.push(id);
}
