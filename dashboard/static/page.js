// Saves a table as CSV, without a request to the server.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-save]");
  if (button) saveTable(button.closest(".card, .section").querySelector("table"), button.dataset.save);
});

function saveTable(table, name) {
  const rows = [...table.rows].map((row) => [...row.cells].map((cell) => field(cell.dataset.value ?? cell.innerText)));
  const file = new Blob(["\ufeff" + rows.map((row) => row.join(",")).join("\r\n")], { type: "text/csv;charset=utf-8" });
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: `${name}.csv` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// A spreadsheet runs a text that starts like a formula; an apostrophe prevents it. Numbers stay numbers: the minus sign
// that pages show is none to a spreadsheet.
function field(text) {
  const trimmed = text.trim().replace(/^−(?=[\d.]+$)/, "-");
  const safe = /^[=+\-@\t\r]/.test(trimmed) && isNaN(Number(trimmed)) ? "'" + trimmed : trimmed;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// Charts. The server sends a figure (data-figure of a .chart); plotly draws it in a node of our own, which stays when
// Gradio replaces the HTML around it: a refresh neither flickers nor loses the zoom.
const SETTINGS = { displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
const NARROW = 760; // pixels, as in style.css
const charts = new Map();
let loading = null;

function loadPlotly() {
  loading ??= new Promise((resolve, reject) => {
    if (window.Plotly) return resolve();
    const script = Object.assign(document.createElement("script"), { src: "plotly-basic-4.1.1.min.js" });
    script.onload = resolve;
    script.onerror = () => {
      loading = null; // the next chart tries again
      reject(Error("The chart library could not be loaded."));
    };
    document.head.append(script);
  });
  return loading;
}

function setUp(element) {
  let chart = charts.get(element.dataset.chart);
  if (!chart) charts.set(element.dataset.chart, (chart = document.createElement("div")));
  if (chart.parentNode !== element) {
    element.replaceChildren(chart);
    widths.observe(element);
  }
  const figure = (innerWidth <= NARROW && element.dataset.narrow) || element.dataset.figure;
  if (chart.figure === figure && chart.drawn === figure) return;
  chart.figure = figure;
  loadPlotly().then(() => setTimeout(() => draw(chart))); // each in a task of its own: text is shown first
}

function draw(chart) {
  if (!chart.isConnected || chart.drawn === chart.figure) return;
  const { data, layout } = JSON.parse(chart.figure);
  if (chart.drawn) keepZoom(JSON.parse(chart.drawn).layout, chart.layout, layout);
  chart.drawn = chart.figure;
  chart.parentNode.style.height = `${layout.height}px`;
  const picture = { format: "svg", filename: chart.parentNode.dataset.chart };
  const settings = { ...SETTINGS, toImageButtonOptions: picture };
  window.Plotly.react(chart, data, { ...layout, width: chart.parentNode.clientWidth }, settings);
}

// Plotly keeps a zoom only while the figure asks for the same range; a longer history asks for another one.
function keepZoom(previous, shown, next) {
  for (const name of Object.keys(next).filter((name) => /^[xy]axis/.test(name) && next[name].range)) {
    if (!previous[name]?.range || String(shown[name].range) === String(previous[name].range)) continue;
    next[name].range = shown[name].range;
    next[name].autorange = shown[name].autorange;
  }
}

const widths = new ResizeObserver((changed) => {
  for (const { target: element } of changed) {
    const [chart, width] = [element.firstElementChild, element.clientWidth];
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
