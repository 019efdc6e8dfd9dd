// Basic or Advanced: a choice of this browser. The style sheet hides what the Basic view leaves out.
const KEY = "run-form-view";

export function startView(form) {
  const [basic, advanced] = ["basic", "advanced"].map((name) => form.querySelector(`#view-${name}`));

  function keep() {
    try {
      localStorage.setItem(KEY, advanced.checked ? "advanced" : "basic");
    } catch {
      // Storage is blocked: the choice lasts for this page.
    }
  }

  let kept = null;
  try {
    kept = localStorage.getItem(KEY);
  } catch {
    // as above
  }
  if (kept === "advanced") advanced.checked = true;
  for (const input of [basic, advanced]) input.addEventListener("change", keep);

  return {
    showAll() {
      advanced.checked = true;
    },
    // Shows everything when this control is hidden.
    reveal(input) {
      if (!input.checkVisibility()) advanced.checked = true;
    },
  };
}
