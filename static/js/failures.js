// A part of the page that could not be fetched says so and can be asked for again; until then it shows what it showed. Whose
// log-in ended meanwhile is sent to the log-in page, which leads back here.
const failed = new Map(); // element → what asks for it again
let toast = null;

function build() {
  const made = Object.assign(document.createElement("div"), { className: "toast toast--bad between" });
  made.setAttribute("role", "alert");
  const again = Object.assign(document.createElement("button"), { type: "button", className: "button button--small", textContent: "Try again" });
  again.addEventListener("click", () => {
    const asked = [...failed].filter(([element]) => element.isConnected);
    failed.clear();
    show();
    for (const [, ask] of asked) ask();
  });
  made.append(document.createElement("span"), again);
  return made;
}

function show(reason = "") {
  for (const element of failed.keys()) if (!element.isConnected) failed.delete(element);
  if (!failed.size) return toast?.remove();
  toast ??= build();
  if (reason) toast.firstChild.textContent = `A part of this page could not be loaded: ${reason}.`;
  if (!toast.isConnected) document.body.append(toast);
}

function note({ detail }, reason) {
  const { elt, requestConfig: config } = detail;
  failed.set(elt, () => htmx.ajax(config.verb, config.path, { source: elt, target: config.target, values: config.parameters }));
  show(reason);
}

export function startFailures() {
  document.addEventListener("htmx:sendError", (event) => note(event, "the server did not answer"));
  document.addEventListener("htmx:timeout", (event) => note(event, "the server took too long"));
  document.addEventListener("htmx:responseError", (event) => note(event, `the server answered ${event.detail.xhr.status}`));
  // A refusal that says where it is to be shown is shown there.
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.xhr.status !== 422 || !detail.xhr.getResponseHeader("HX-Retarget")) return;
    detail.shouldSwap = true;
    detail.isError = false;
  });
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (!new URL(detail.xhr.responseURL || location.href, location.href).pathname.startsWith("/login/")) return;
    detail.shouldSwap = false;
    location.reload();
  });
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (detail.successful && failed.delete(detail.elt)) show();
  });
}
