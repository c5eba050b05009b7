// The page of a review: claims it, counts down while a decision can be undone, inserts the player's time into a comment,
// scrolls to a rejected field, and asks before an approval discards other input. The forms work without this script.

const SECOND = 1000;
const CLAIMED = 5 * 60 * SECOND; // half of the time for which the server keeps a claim

function claim() {
  const form = document.querySelector("[data-claim]");
  if (!form || document.hidden) return;
  const given = new URLSearchParams(new FormData(form));
  given.set("quiet", "yes");
  fetch(form.action, { method: "POST", body: given, redirect: "error" }).then(() => { form.hidden = true; }, () => {});
}

// The page may be refreshed during the countdown: the current element counts.
function count() {
  const place = document.querySelector("[data-countdown]");
  if (!place) return;
  place.dataset.ends ??= String(Date.now() + Number(place.dataset.countdown) * SECOND);
  const left = Math.ceil((Number(place.dataset.ends) - Date.now()) / SECOND);
  const shown = place.querySelector("[data-left]");
  if (shown && shown.textContent !== String(Math.max(left, 0))) shown.textContent = String(Math.max(left, 0));
  if (left <= 0) {
    place.hidden = true;
    document.querySelector("[data-undo]")?.setAttribute("hidden", "");
  }
}

function clock(seconds) {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

function comment() {
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
    text.value += `${text.value && !text.value.endsWith("\n") ? "\n" : ""}${clock(player?.currentTime ?? 0)} `;
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
function holdsWork(form) {
  return Boolean(form) && (form.closest(".on") !== null || [...form.elements].some(isChanged));
}

function ask(event) {
  const others = ["edit-form", "send-back-form"].map((name) => document.getElementById(name));
  if (others.some(holdsWork) && !confirm(event.target.dataset.ask)) event.preventDefault();
}

function showWrong() {
  const wrong = document.querySelector("[aria-invalid]");
  wrong?.focus({ preventScroll: true });
  wrong?.scrollIntoView({ block: "center" });
}

claim();
window.addEventListener("load", showWrong); // after the browser has scrolled to the address's fragment
document.getElementById("approve")?.addEventListener("submit", ask);
setInterval(claim, CLAIMED);
document.addEventListener("visibilitychange", claim);
comment();
count();
setInterval(count, 250);
