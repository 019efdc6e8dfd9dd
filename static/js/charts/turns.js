// Charts are drawn one after the other, each in a task of its own after a frame: the first is there soon, and the page answers
// meanwhile. What a push needs for all panels together is done before, in the task of its message.
const frame = () => new Promise((go) => (document.hidden ? setTimeout(go) : requestAnimationFrame(() => setTimeout(go))));
let queue = Promise.resolve();

export function inTurn(draw) {
  const drawn = queue.then(frame).then(draw);
  queue = drawn.catch(() => {});
  return drawn;
}

export const allDrawn = () => queue;
