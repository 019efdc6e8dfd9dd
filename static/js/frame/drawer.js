// The help drawer: the documentation of this screen beside it. The site's pages are fetched and their article is shown; links
// between them stay in the drawer. Without this module the button leads to the same page.
let shown = "";

const dialog = () => document.getElementById("help");

function say(text) {
  const place = dialog().querySelector("[data-help-body]");
  place.replaceChildren(Object.assign(document.createElement("p"), { textContent: text }));
}

function adapt(article, address) {
  for (const gone of article.querySelectorAll("script, style, .headerlink, .md-clipboard, .md-source-file")) gone.remove();
  for (const link of article.querySelectorAll("a[href]")) link.href = new URL(link.getAttribute("href"), address).href;
  for (const image of article.querySelectorAll("img[src]")) image.src = new URL(image.getAttribute("src"), address).href;
  for (const element of article.querySelectorAll("[style]")) element.removeAttribute("style");
  for (const element of article.querySelectorAll("[id]")) element.id = `help-${element.id}`; // the page has ids of its own
}

async function show(address) {
  const target = new URL(address, location.href);
  dialog().querySelector("[data-help-full]").href = target.href;
  const body = dialog().querySelector("[data-help-body]");
  if (shown !== target.pathname) {
    say("Loading …");
    try {
      const answer = await fetch(target, { headers: { Accept: "text/html" } });
      if (answer.status === 404) return say("The help pages are not built. Run `make docs` on the server.");
      if (!answer.ok) return say(`The help page could not be loaded: the server answered ${answer.status}.`);
      const article = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("article");
      if (!article) return say("This page has no text of its own. Open it in a tab.");
      adapt(article, answer.url);
      shown = target.pathname;
      body.replaceChildren(...article.childNodes);
    } catch {
      return say("The help page could not be loaded: the server did not answer.");
    }
  }
  const place = target.hash && document.getElementById(`help-${decodeURIComponent(target.hash.slice(1))}`);
  if (place) place.scrollIntoView();
  else body.scrollTop = 0;
}

export function openHelp(address = document.querySelector("[data-help]")?.href) {
  if (!address || !dialog()) return;
  if (!dialog().open) dialog().showModal();
  dialog().querySelector("[data-help-body]").focus(); // so that arrows scroll the text
  show(address);
}

export function startDrawer() {
  document.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    const asks = event.target.closest("a[data-help]");
    const inside = event.target.closest("[data-help-body] a[href]");
    const address = asks?.href ?? (inside && new URL(inside.href).pathname.startsWith("/help/") ? inside.href : null);
    if (address && dialog()) {
      event.preventDefault();
      openHelp(address);
    }
    if (event.target.closest("[data-drawer-close]") || event.target === dialog()) dialog().close();
  });
}
