// The columns of a table: ticks become one parameter of the address, so that a link shows the same columns.
export function start() {
  for (const form of document.querySelectorAll("form[data-columns]")) {
    form.addEventListener("formdata", (event) => {
      const ticked = [...form.querySelectorAll('input[type="checkbox"]:checked')].map((box) => box.value);
      if (ticked.length) event.formData.set("cols", ticked.join(","));
      else event.formData.delete("cols");
    });
  }
}
