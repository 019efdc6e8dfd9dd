// Security keys: the button of a form[data-key] asks the browser for one; its answer travels in the hidden `credential`.
const REMEDIES = {
  NotAllowedError: "No key confirmed it in time. Press the button and try again.",
  InvalidStateError: "This key is on your list already. Use another one.",
  SecurityError: "Keys do not work at this address: open the product by a host name and HTTPS (or as localhost), not by a number.",
};

async function answer(form) {
  const options = JSON.parse(document.getElementById(form.dataset.options).textContent);
  const make = form.dataset.key === "create";
  const { publicKey } = make ? options.creation_options : options.request_options;
  const credential = make
    ? await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(publicKey) })
    : await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(publicKey) });
  return JSON.stringify(credential);
}

export function start() {
  for (const form of document.querySelectorAll("form[data-key]")) {
    const button = form.querySelector("button");
    const problem = form.querySelector("[data-key-problem]");
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      problem.hidden = true;
      try {
        form.elements.credential.value = await answer(form);
        form.submit();
      } catch (error) {
        const able = window.isSecureContext && globalThis.PublicKeyCredential?.parseRequestOptionsFromJSON;
        problem.textContent = able ? REMEDIES[error.name] ?? `The key was not read: ${error.message}`
          : window.isSecureContext ? "This browser is too old for security keys: update it." : REMEDIES.SecurityError;
        problem.hidden = false;
        button.disabled = false;
      }
    });
    button.disabled = false; // until here a press would send the form without a key
  }
}
