// Saving what a page shows: a table as CSV, a chart as a picture. Nothing is asked of the server for it.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-save]");
  if (!button) return;
  const card = (button.dataset.of && document.querySelector(button.dataset.of)) || button.closest(".card, .section");
  if (button.dataset.save === "csv") saveTable(card.querySelector("table"), button.dataset.name);
  else saveChart(card, button.dataset.save, button.dataset.name);
});

function saveTable(table, name) {
  const rows = [...table.rows].map((row) => [...row.cells].map((cell) => field(cell.dataset.value ?? cell.innerText)));
  const file = new Blob(["\ufeff" + rows.map((row) => row.join(",")).join("\r\n")], { type: "text/csv;charset=utf-8" });
  const way = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: `${name}.csv` });
  way.click();
  setTimeout(() => URL.revokeObjectURL(way.href), 1000);
}

// A spreadsheet runs what begins like a formula: an apostrophe makes it text. Numbers stay numbers.
function field(text) {
  const words = text.trim();
  const safe = /^[=+\-@\t\r]/.test(words) && isNaN(Number(words)) ? "'" + words : words;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function saveChart(card, format, name) {
  const chart = card.querySelector(".js-plotly-plot");
  if (!chart) return;
  const { width, height } = chart.getBoundingClientRect();
  const background = getComputedStyle(chart.closest(".card")).backgroundColor;
  // What is saved stands on the card's own colour: on nothing, the light words of the dark look could not be read.
  window.Plotly.relayout(chart, { paper_bgcolor: background })
    .then(() => window.Plotly.downloadImage(chart, { format, width, height, scale: 2, filename: name }))
    .then(() => window.Plotly.relayout(chart, { paper_bgcolor: "rgba(0,0,0,0)" }));
}

// Charts. The server says what to draw (data-figure of a .chart); plotly draws it in a node of our own, which outlives
// what Gradio does to the words around it: a refresh neither flickers nor loses what the reader zoomed to.
const SETTINGS = { displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
const charts = new Map();
let program = null;

function fetched() {
  program ??= new Promise((ready, failed) => {
    if (window.Plotly) return ready();
    const script = Object.assign(document.createElement("script"), { src: "plotly-basic-4.1.1.min.js" });
    script.onload = ready;
    script.onerror = () => {
      program = null; // the next chart asks again
      failed(Error("the program that draws charts could not be fetched"));
    };
    document.head.append(script);
  });
  return program;
}

function setUp(place) {
  let chart = charts.get(place.dataset.chart);
  if (!chart) charts.set(place.dataset.chart, (chart = document.createElement("div")));
  if (chart.parentNode !== place) {
    place.replaceChildren(chart);
    widths.observe(place);
  }
  if (chart.told === place.dataset.figure && chart.drawn === chart.told) return;
  chart.told = place.dataset.figure;
  fetched().then(() => setTimeout(() => draw(chart))); // each in a turn of its own: the words come before it
}

function draw(chart) {
  if (!chart.isConnected || chart.drawn === chart.told) return;
  const { data, layout } = JSON.parse(chart.told);
  if (chart.drawn) keepZoom(JSON.parse(chart.drawn).layout, chart.layout, layout);
  chart.drawn = chart.told;
  window.Plotly.react(chart, data, { ...layout, width: chart.parentNode.clientWidth }, SETTINGS);
}

// Plotly keeps a zoom only while the same range is asked for; a history that has grown asks for another.
function keepZoom(asked, now, next) {
  for (const name of Object.keys(next).filter((name) => /^[xy]axis/.test(name) && next[name].range)) {
    if (!asked[name]?.range || String(now[name].range) === String(asked[name].range)) continue;
    next[name].range = now[name].range;
    next[name].autorange = now[name].autorange;
  }
}

const widths = new ResizeObserver((changed) => {
  for (const { target: place } of changed) {
    const [chart, width] = [place.firstElementChild, place.clientWidth];
    if (chart?.drawn && width && width !== chart.layout.width) window.Plotly.relayout(chart, { width });
  }
});

const setUpAll = () => document.querySelectorAll(".chart[data-figure]").forEach(setUp);
new MutationObserver(setUpAll).observe(document.documentElement, {
  subtree: true,
  childList: true,
  attributeFilter: ["data-figure"],
});
setUpAll();
