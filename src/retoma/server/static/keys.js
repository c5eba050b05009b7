// Keys of one character, while nobody is typing: `registerKey("approve", handler)`. The page says which key an action has
// (`data-keys` of its body), so a person can change them. A handler that returns false did nothing, and the key
// keeps its usual effect. The last handler that was registered for an action counts.

const REPEATABLE = ["next", "previous"];
const FIELDS = "input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]:not([contenteditable=false])";
const PRESSED_BY_SPACE = "button, summary, input, audio, video, [role=button]";
const handlers = new Map();

export function registerKey(action, handler) {
  handlers.set(action, handler);
}

// Calls `handler(event, number)` for the keys 1 to 9.
export function registerNumbers(handler) {
  handlers.set("number", handler);
}

export function readKeys() {
  return JSON.parse(document.body.dataset.keys ?? "{}");
}

function findAction(key) {
  if (/^[1-9]$/.test(key)) return "number";
  return Object.entries(readKeys()).find(([, own]) => own === key)?.[0];
}

function isTaken(target, key) {
  if (!(target instanceof Element)) return false;
  return target.closest(FIELDS) !== null || target.closest("dialog[open]") !== null || key === " " && target.closest(PRESSED_BY_SPACE) !== null;
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (isTaken(event.target, event.key)) return;
  const action = findAction(event.key);
  const handler = handlers.get(action);
  if (!handler || event.repeat && !REPEATABLE.includes(action)) return;
  if (handler(event, action === "number" ? Number(event.key) : undefined) !== false) event.preventDefault();
});
