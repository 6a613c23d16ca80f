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
  const background = getComputedStyle(card).backgroundColor;
  // What is saved stands on the card's own colour: on nothing, the light words of the dark look could not be read.
  window.Plotly.relayout(chart, { paper_bgcolor: background })
    .then(() => window.Plotly.downloadImage(chart, { format, width, height, scale: 2, filename: name }))
    .then(() => window.Plotly.relayout(chart, { paper_bgcolor: "rgba(0,0,0,0)" }));
}
