// The page of a review: claims it, counts down while a decision can be undone, inserts the player's time into a comment,
// scrolls to a rejected field, and asks before an approval discards other input. The forms work without this script.

const SECOND = 1000;
const CLAIM_INTERVAL = 5 * 60 * SECOND; // half of the time for which the server keeps a claim

function claimReview() {
  const form = document.querySelector("[data-claim]");
  if (!form || document.hidden) return;
  const fields = new URLSearchParams(new FormData(form));
  fields.set("quiet", "yes");
  fetch(form.action, { method: "POST", body: fields, redirect: "error" }).then(() => { form.hidden = true; }, () => {});
}

// The page may be refreshed during the countdown: the current element counts.
function updateCountdown() {
  const countdown = document.querySelector("[data-countdown]");
  if (!countdown) return;
  countdown.dataset.ends ??= String(Date.now() + Number(countdown.dataset.countdown) * SECOND);
  const left = Math.ceil((Number(countdown.dataset.ends) - Date.now()) / SECOND);
  const number = countdown.querySelector("[data-left]");
  if (number && number.textContent !== String(Math.max(left, 0))) number.textContent = String(Math.max(left, 0));
  if (left <= 0) {
    countdown.hidden = true;
    document.querySelector("[data-undo]")?.setAttribute("hidden", "");
  }
}

function formatTime(seconds) {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

function enableTimedComments() {
  const button = document.querySelector("[data-comment]");
  const text = document.getElementById("comments");
  if (!button || !text) return;
  let player = document.querySelector("[data-played]");
  for (const each of document.querySelectorAll("[data-played]")) {
    each.addEventListener("timeupdate", () => { player = each; });
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    player?.pause();
    text.value += `${text.value && !text.value.endsWith("\n") ? "\n" : ""}${formatTime(player?.currentTime ?? 0)} `;
    text.focus();
  });
}

function isChanged(control) {
  if (control.options) {
    const first = [...control.options].findIndex((each) => each.defaultSelected);
    return control.selectedIndex !== Math.max(first, 0);
  }
  if (["checkbox", "radio"].includes(control.type)) return control.checked !== control.defaultChecked;
  return control.matches("input, textarea") && control.value !== control.defaultValue;
}

// A rejected form comes back with its input as content, which counts as input too.
function hasInput(form) {
  return Boolean(form) && (form.closest(".on") !== null || [...form.elements].some(isChanged));
}

function confirmApproval(event) {
  const others = ["edit-form", "send-back-form"].map((name) => document.getElementById(name));
  if (others.some(hasInput) && !confirm(event.target.dataset.ask)) event.preventDefault();
}

function focusInvalidField() {
  const field = document.querySelector("[aria-invalid]");
  field?.focus({ preventScroll: true });
  field?.scrollIntoView({ block: "center" });
}

claimReview();
window.addEventListener("load", focusInvalidField); // after the browser has scrolled to the address's fragment
document.getElementById("approve")?.addEventListener("submit", confirmApproval);
setInterval(claimReview, CLAIM_INTERVAL);
document.addEventListener("visibilitychange", claimReview);
enableTimedComments();
updateCountdown();
setInterval(updateCountdown, 250);
