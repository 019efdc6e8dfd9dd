// The legend below a chart: one button a line, with its value at the cursor or its last one. A press hides its line.
export function legend(room, lines, { hidden, toggled }) {
  const names = lines.map((line) => `${line.name}|${line.css}`).join("\n");
  if (room.dataset.names === names) return;
  room.dataset.names = names;
  room.replaceChildren(...lines.map((line) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "chart__key";
    button.setAttribute("aria-pressed", String(!hidden.has(line.name)));
    button.title = `Show or hide ${line.name}`;
    const swatch = document.createElement("i");
    swatch.className = line.css;
    const name = document.createElement("span");
    name.textContent = line.name;
    const value = document.createElement("b");
    button.append(swatch, name, value);
    // The browser leaves a key that is partly in sight where it is.
    button.addEventListener("focus", () => button.scrollIntoView({ block: "nearest", inline: "nearest" }));
    button.addEventListener("click", () => {
      if (!hidden.delete(line.name)) hidden.add(line.name);
      button.setAttribute("aria-pressed", String(!hidden.has(line.name)));
      toggled();
    });
    return button;
  }));
}

export function values(room, texts) {
  for (const [index, element] of [...room.querySelectorAll("b")].entries()) {
    if (element.textContent !== texts[index]) element.textContent = texts[index] ?? "";
  }
}
