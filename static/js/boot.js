// Classic script in <head>: applies the stored theme and whether the sidebar is folded before the first paint, so that no page
// flashes or jumps, and remembers a Ctrl K that comes before the modules.
(() => {
  const root = document.documentElement;
  let theme = null;
  let sidebar = null;
  try {
    theme = localStorage.getItem("theme");
    sidebar = localStorage.getItem("sidebar");
  } catch {
    // Storage is blocked: the system's preference holds.
  }
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;
  if (sidebar === "collapsed") root.dataset.sidebar = sidebar;
  // The browser would open its own search; shortcuts.js opens the palette when it starts.
  document.addEventListener("keydown", (event) => {
    if (document.readyState === "complete" || event.key.toLowerCase() !== "k") return;
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    root.dataset.palette = "asked";
  });
})();
