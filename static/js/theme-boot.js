// Classic script in <head>: applies the stored theme and whether the sidebar is folded before the first paint, so that no page
// flashes or jumps.
(() => {
  let theme = null;
  let sidebar = null;
  try {
    theme = localStorage.getItem("theme");
    sidebar = localStorage.getItem("sidebar");
  } catch {
    // Storage is blocked: the system's preference holds.
  }
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  if (sidebar === "collapsed") document.documentElement.dataset.sidebar = sidebar;
})();
