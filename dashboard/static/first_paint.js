// The first words go as soon as Gradio shows the page itself; until then they have the colours it will have.
document.getElementById("first").classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
new MutationObserver((_, watch) => {
  if (!document.querySelector("gradio-app .masthead")) return;
  watch.disconnect();
  document.getElementById("first").remove();
}).observe(document.documentElement, { childList: true, subtree: true });
