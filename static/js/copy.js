// Text to the clipboard. Browsers offer their clipboard to secure addresses only, which that of an installation in a
// company's network need not be: then the old way, by a selection.
export async function copy(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = document.createElement("textarea");
  const before = document.activeElement;
  field.value = text;
  field.className = "unseen";
  (before?.closest("dialog") ?? document.body).append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  before?.focus();
}
