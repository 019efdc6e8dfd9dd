// Forms and buttons with data-confirm ask first, in a dialog that names the action; Escape and Cancel do nothing.
function build() {
  const dialog = document.createElement("dialog");
  dialog.className = "confirm";
  const text = Object.assign(document.createElement("p"), { id: "confirm-text" });
  dialog.setAttribute("aria-labelledby", text.id);
  const form = Object.assign(document.createElement("form"), { method: "dialog", className: "row" });
  const go = Object.assign(document.createElement("button"), { value: "go" });
  const cancel = Object.assign(document.createElement("button"), { value: "", className: "button", textContent: "Cancel" });
  form.append(go, cancel);
  dialog.append(text, form);
  document.body.append(dialog);
  return { dialog, text, go };
}

let parts = null;

export function startConfirm() {
  document.addEventListener("submit", (event) => {
    const { target: form, submitter } = event;
    // {policy} in a question is what the field of that name holds now.
    const question = (submitter?.dataset.confirm ?? form.dataset.confirm)?.replace(/\{(\w+)\}/g, (same, name) => form.elements[name]?.value ?? same);
    if (!question || form.dataset.confirmed !== undefined) {
      delete form.dataset.confirmed;
      return;
    }
    event.preventDefault();
    parts ??= build();
    const { dialog, text, go } = parts;
    text.textContent = question;
    go.textContent = submitter?.textContent.trim() || "Go on";
    go.className = submitter?.className || "button button--primary";
    dialog.returnValue = "";
    dialog.addEventListener(
      "close",
      () => {
        if (dialog.returnValue !== "go") return;
        // A live part may have been fetched anew while the dialog was open: then the same form is another element.
        const same = form.id ? `#${CSS.escape(form.id)}` : `form[action="${form.getAttribute("action")}"]`;
        const now = form.isConnected ? form : document.querySelector(same);
        if (!now) return;
        now.dataset.confirmed = "";
        now.requestSubmit(submitter?.isConnected ? submitter : undefined);
      },
      { once: true },
    );
    dialog.showModal();
  });
}
