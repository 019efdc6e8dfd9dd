// Classic script in <head>: applies the stored theme before the first paint, so that no page flashes.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("theme");
  } catch {
    // Storage is blocked: the system's preference holds.
  }
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
})();
