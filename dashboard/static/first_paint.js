// Removes the first paint as soon as Gradio shows the page; until then it has the same colours.
document.getElementById("first").classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
new MutationObserver((_, watch) => {
  if (!document.querySelector("gradio-app .masthead")) return;
  watch.disconnect();
  document.getElementById("first").remove();
}).observe(document.documentElement, { childList: true, subtree: true });
