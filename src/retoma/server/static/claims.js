// Shows colleagues who is reviewing what: from the first input on, or after some seconds on a review. A review that is left
// without input is released.

const CLAIM_AFTER_MS = 8000; // longer than somebody who only passes by stays
const CLAIM_INTERVAL_MS = 5 * 60 * 1000; // half of the time for which the server keeps a claim

let form = null; // of the review that is shown
let isClaimed = false;
let isNew = false; // it was claimed by nobody before: only then it is released
let hasInput = false;
let timer = null;

function send(fields, options) {
  const body = new URLSearchParams(new FormData(form));
  for (const [name, value] of Object.entries({ quiet: "yes", ...fields })) body.set(name, value);
  return fetch(form.action, { method: "POST", body, redirect: "error", ...options });
}

function isVisible() {
  return !document.hidden && document.querySelector("[data-pane=content]")?.offsetParent !== null;
}

function claim() {
  if (!form || !isVisible()) return;
  const claimed = form;
  isNew ||= !form.hidden;
  isClaimed = true;
  send({}).then(() => { claimed.hidden = true; }, () => {});
}

function release() {
  if (form && isClaimed && isNew && !hasInput) send({ release: "yes" }, { keepalive: true }).catch(() => {});
  clearTimeout(timer);
  form = null;
}

function start() {
  release();
  form = document.querySelector("[data-claim]");
  isClaimed = isNew = false;
  hasInput = Boolean(document.querySelector("[data-pane=content]")?.dataset.typed);
  timer = setTimeout(claim, CLAIM_AFTER_MS);
}

function onInput(event) {
  const isDecision = event.target.form?.id === "decision" || event.target.id === "decision" || event.target.matches("[data-text-input]");
  if (!isDecision || hasInput) return;
  hasInput = true;
  if (event.type !== "submit") claim();
}

for (const kind of ["input", "change", "submit"]) document.addEventListener(kind, onInput);
document.addEventListener("retoma:shown", start);
document.addEventListener("visibilitychange", () => { if (isClaimed || hasInput) claim(); else if (!document.hidden) start(); });
window.addEventListener("pagehide", release);
window.addEventListener("pageshow", (event) => { if (event.persisted) start(); });
setInterval(() => { if (isClaimed || hasInput) claim(); }, CLAIM_INTERVAL_MS);
start();
