// Saves what a person types into the decision form, while they type. The server shows it again on every device.

const WAIT_MS = 400;
let timer = null;

const getForm = () => document.getElementById("decision");

function schedule(event) {
  const form = getForm();
  if (!form || event.target.form !== form || !event.target.name) return;
  clearTimeout(timer);
  timer = setTimeout(saveDraft, WAIT_MS);
}

// Saves now what is not saved yet. Resolves when the server has it.
export async function saveDraft({ keepalive = false } = {}) {
  if (timer === null) return;
  clearTimeout(timer);
  timer = null;
  const form = getForm();
  if (!form) return;
  const content = form.closest("[data-pane]");
  const status = content.querySelector("[data-draft-status]");
  const fields = new URLSearchParams(new FormData(form));
  fields.set("mode", content.dataset.mode ?? "");
  const address = `/reviews/${content.dataset.review}/draft`;
  const isSaved = await fetch(address, { method: "POST", body: fields, redirect: "error", keepalive }).then((answer) => answer.ok, () => false);
  if (status) status.textContent = isSaved ? status.dataset.saved : status.dataset.failed;
}

// The form was sent: what it has is with the server.
export function forgetDraft() {
  clearTimeout(timer);
  timer = null;
}

document.addEventListener("input", schedule);
document.addEventListener("change", schedule);
document.addEventListener("visibilitychange", () => { if (document.hidden) saveDraft({ keepalive: true }); });
window.addEventListener("pagehide", () => { saveDraft({ keepalive: true }); });
