// Notes about decisions, which stay while the reviewer continues: each counts down the time in which it can be undone.

const TICK_MS = 200;
const NOTE_MS = 8000;
const getToasts = () => document.getElementById("toasts");

export function showToast(toast) {
  if (!toast) return; // of a decision that cannot be undone
  getToasts().prepend(toast);
  tick();
}

export function undoLatest() {
  const form = getToasts().querySelector("[data-undo]");
  if (!form) return false;
  form.requestSubmit();
  return true;
}

function tick() {
  for (const toast of getToasts().children) {
    const seconds = Number(toast.dataset.seconds ?? NOTE_MS / 1000);
    toast.dataset.ends ??= String(Date.now() + seconds * 1000);
    const left = (Number(toast.dataset.ends) - Date.now()) / 1000;
    toast.dataset.total ??= String(Math.max(seconds, 1));
    const ring = toast.querySelector("[data-ring]");
    ring?.setAttribute("stroke-dashoffset", String(100 - 100 * Math.max(left, 0) / Number(toast.dataset.total)));
    const number = toast.querySelector("[data-left]");
    if (number) number.textContent = String(Math.max(Math.ceil(left), 0));
    if (left <= 0 && !toast.contains(document.activeElement)) toast.remove();
    else if (left <= 0) toast.querySelector("[data-undo]")?.setAttribute("hidden", "");
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  const toast = form.closest("#toasts > *");
  if (!toast || !form.matches("[data-undo]") || !toast.dataset.review) return;
  event.preventDefault();
  toast.remove();
  document.dispatchEvent(new CustomEvent("retoma:undo", { detail: { form, review: toast.dataset.review } }));
});
setInterval(tick, TICK_MS);
tick();
