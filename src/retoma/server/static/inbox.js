// The inbox without page loads: keys, the next review of the filter, decisions that can be undone, and a list whose rows stay
// where they are until a person asks for the new ones. Everything also works as plain links and forms, without this script.

import { checkApproval } from "./approval.js";
import { togglePick } from "./batch.js";
import "./claims.js";
import { forgetDraft, saveDraft } from "./drafts.js";
import { refreshSoon } from "./live.js";
import { registerKey } from "./keys.js";
import { showToast, undoLatest } from "./toasts.js";
import { applyNews, findNeighbour, findOpen, listPassed, loadAgain, loadFurther, markCurrent, markDecided, markOpen } from "./review_list.js";

const PREFETCHED_FOR_MS = 20000;
const JSON_ONLY = { accept: "application/json" };
const READING_KEYS = ["PageDown", "PageUp", "ArrowDown", "ArrowUp", "Home", "End"];
const prefetched = new Map();
let isBusy = false;
let noted = Promise.resolve(); // until the toasts of all decisions are shown, in the order of the decisions: an undo waits for it
let shown = 0; // how many reviews were asked for: only the last one is shown

const getContent = () => document.querySelector("[data-pane=content]");
const getReview = () => getContent()?.dataset.review;
const getForm = () => document.getElementById("decision");

// ---- showing a review

async function show(review, { push = true, focus = true } = {}) {
  const number = ++shown;
  await saveDraft();
  const panes = await fetchPanes(review);
  if (number !== shown) return;
  swapPanes(panes);
  if (push) history.pushState(null, "", `/reviews/${review}${location.search}`);
  document.body.classList.add("chosen");
  document.title = document.title.replace(/^.*? · /, `${getContent().dataset.title} · `);
  if (focus) document.getElementById("read")?.focus({ preventScroll: true });
  refreshSoon();
}

export function swapPanes(panes) {
  for (const pane of panes.querySelectorAll("[data-pane]")) {
    const old = document.querySelector(`[data-pane=${pane.dataset.pane}]`);
    const next = document.importNode(pane, true);
    if (old) old.replaceWith(next);
    else document.getElementById("main").append(next);
  }
  runScripts();
  markCurrent(getReview());
  prepare();
  getContent().dispatchEvent(new CustomEvent("retoma:shown", { bubbles: true }));
}

// Scripts of a fragment do not run by themselves. A module runs once: it listens to `retoma:shown`.
function runScripts() {
  for (const script of document.querySelectorAll("[data-pane] script[src]")) {
    const copy = document.createElement("script");
    copy.type = "module";
    copy.src = script.src;
    script.replaceWith(copy);
  }
}

function fetchPanes(review) {
  const known = prefetched.get(review);
  prefetched.delete(review);
  if (known && Date.now() - known.at < PREFETCHED_FOR_MS) return known.panes;
  return requestPanes(review);
}

async function requestPanes(review) {
  const answer = await fetch(`/reviews/${review}/panes${location.search}`, { redirect: "error" });
  if (!answer.ok) throw new Error(String(answer.status));
  return parse(await answer.text());
}

const parse = (text) => new DOMParser().parseFromString(text, "text/html");

function prefetch(review) {
  if (!review || prefetched.has(review)) return;
  const panes = requestPanes(review);
  panes.catch(() => prefetched.delete(review));
  prefetched.set(review, { at: Date.now(), panes });
}

async function move(direction) {
  const passed = listPassed(getReview());
  const next = findNeighbour(getReview(), direction);
  applyNews({ unlessPointed: true });
  if (next) return open(next);
  const further = direction > 0 ? findOpen(passed) ?? await loadFurther() : undefined;
  return further ? open(further) : undefined;
}

async function open(review, options) {
  if (!review) return showNothingLeft();
  try {
    await show(review, options);
  } catch {
    location.href = `/reviews/${review}${location.search}`;
  }
  return undefined;
}

function showNothingLeft() {
  const done = document.getElementById("nothing-left")?.content.cloneNode(true);
  document.querySelector("[data-pane=context]")?.replaceChildren();
  const content = getContent();
  if (!done || !content) return;
  delete content.dataset.review;
  content.replaceChildren(done);
  history.pushState(null, "", `/reviews${location.search}`);
  markCurrent();
  content.focus({ preventScroll: true });
}

// ---- the decision form

function setMode(mode) {
  const content = getContent();
  content.dataset.mode = mode;
  for (const each of content.querySelectorAll("[data-do][aria-controls]")) {
    each.setAttribute("aria-expanded", String(each.dataset.do === mode));
  }
  if (!mode) return document.getElementById("read")?.focus({ preventScroll: true });
  if (mode === "edit") document.getElementById("read").scrollTo({ top: 0 });
  const first = mode === "edit" ? content.querySelector("#edit-fields :is(input, textarea, select)") : document.getElementById("notes");
  return first?.focus({ preventScroll: mode !== "edit" });
}

function act(action) {
  const control = document.querySelector(`[data-do=${action}]`);
  if (!control) return false;
  control.click();
  return true;
}

function send() {
  const mode = getContent()?.dataset.mode;
  const button = mode ? document.querySelector(`#sheet [name=action][value=${mode}]`) : document.querySelector("[data-do=approve]");
  if (button) getForm().requestSubmit(button);
}

async function decide(event) {
  const form = event.target;
  const action = event.submitter?.value;
  if (form.id !== "decision" || !action) return;
  event.preventDefault();
  if (isBusy || event.submitter.getAttribute("aria-disabled") === "true" || action === "approve" && !confirmApproval(form)) return;
  isBusy = true;
  document.getElementById("decide")?.setAttribute("aria-busy", "true");
  try {
    await (canGoOn(action) ? approveAndGoOn(form) : sendAndWait(form, action));
  } catch {
    showToast(document.getElementById("not-sent").content.cloneNode(true));
  } finally {
    isBusy = false;
    document.getElementById("decide")?.removeAttribute("aria-busy");
  }
}

// An approval without answers is refused only if a colleague was faster: the next review is shown at once.
const canGoOn = (action) => action === "approve" && !getForm().hasAttribute("data-answers");

async function approveAndGoOn(form) {
  const review = getReview();
  const title = getContent().dataset.title;
  const answered = post(form, "approve").then(readDecided).catch(() => null);
  noteInOrder(async () => {
    const decided = await answered;
    if (decided) showToast(decided.toast);
    else comeBack(review, title);
  });
  await goOn(review, "approved");
}

// Returns the decision and its toast, or null if it was refused.
async function readDecided(answer) {
  if (!isJson(answer)) return null;
  const decided = await answer.json();
  return { ...decided, toast: parse(decided.toast).body.firstElementChild };
}

function noteInOrder(note) {
  noted = noted.then(note).catch(() => {});
  return noted;
}

// The approval did not work: its review is open again, or shows who decided it.
function comeBack(review, title) {
  markOpen(review);
  const toast = document.getElementById("refused").content.cloneNode(true);
  const link = toast.querySelector("a");
  link.href = `/reviews/${review}${location.search}`;
  link.textContent = title;
  showToast(toast);
  refreshSoon();
}

async function sendAndWait(form, action) {
  const review = getReview();
  const answered = post(form, action);
  const reading = answered.then(readDecided);
  noteInOrder(async () => { showToast((await reading)?.toast); });
  const decided = await reading;
  if (decided) return goOn(review, decided.state);
  const answer = await answered;
  if (![409, 422].includes(answer.status)) throw new Error(String(answer.status));
  swapPanes(parse(await answer.text()));
  focusInvalid();
  return refreshSoon();
}

function post(form, action) {
  const fields = new URLSearchParams(new FormData(form));
  fields.set("action", action);
  forgetDraft();
  // `form.action` would be one of its buttons.
  return fetch(form.getAttribute("action"), { method: "POST", body: fields, headers: JSON_ONLY, redirect: "error" });
}

const isJson = (answer) => answer.ok && answer.headers.get("content-type")?.startsWith("application/json");

// Opens the next review of the list; then to what follows the list, to what was skipped in it, and to all that is left.
async function goOn(review, state) {
  const number = ++shown;
  const passed = listPassed(review);
  const [next, skipped] = [findNeighbour(review, 1), findNeighbour(review, -1)];
  markDecided(review, { state });
  applyNews({ unlessPointed: true });
  const found = next ?? findOpen(passed) ?? await loadFurther() ?? skipped ?? await loadAgain();
  if (number === shown) await open(found); // an undo may have been faster
}

function focusInvalid() {
  const field = document.querySelector("[data-pane] [aria-invalid]");
  field?.focus({ preventScroll: true });
  field?.scrollIntoView({ block: "center" });
}

function isChanged(control) {
  if (control.options) {
    const first = [...control.options].findIndex((each) => each.defaultSelected);
    return control.selectedIndex !== Math.max(first, 0);
  }
  if (["checkbox", "radio"].includes(control.type)) return control.checked !== control.defaultChecked;
  return control.matches("input, textarea") && control.value !== control.defaultValue;
}

// What somebody wrote to send it back must not become a note of the approval without their knowledge.
function confirmApproval(form) {
  const notes = form.elements.notes.value.trim();
  return (!isAnythingLost(form) || confirm(form.dataset.ask)) && (!notes || confirm(`${form.dataset.askNotes}\n\n${notes}`));
}

// An approval takes the notes, and the answers to the review's own form, but no edits, marks or comments.
function isAnythingLost(form) {
  const hasForm = form.hasAttribute("data-answers");
  const isTaken = (name) => ["", "notes", "to", "csrf", "key", "seen", "action"].includes(name) || hasForm && name.startsWith("value.");
  const restored = new Set((getContent().dataset.typed ?? "").split(" "));
  const isTyped = (control) => restored.has(control.name) ? control.value !== "" : isChanged(control);
  return [...form.elements].some((each) => !isTaken(each.name) && isTyped(each));
}

// A colleague has decided: the form stays as it is, with what was typed, and can no longer be sent.
function closeForm(fresh) {
  const isDecided = fresh.getElementById("content")?.dataset.review === getReview() && fresh.getElementById("decided") !== null;
  for (const each of getContent()?.querySelectorAll("#decide .btn, #sheet button[name=action]") ?? []) {
    if (isDecided) each.setAttribute("aria-disabled", "true");
    else each.removeAttribute("aria-disabled");
  }
  if (!isDecided) checkApproval();
}

// ---- undo

async function undo(toastForm, review) {
  const answer = await fetch(toastForm.action, {
    method: "POST", body: new URLSearchParams(new FormData(toastForm)), headers: JSON_ONLY, redirect: "error",
  });
  if (answer.ok) {
    markOpen(review);
    prefetched.delete(review);
    await open(review);
  }
  return answer.json();
}

// ---- start

function prepare() {
  const content = getContent();
  if (!content?.dataset.review) return;
  content.dataset.mode ??= "";
  for (const each of content.querySelectorAll("[data-scripted]")) each.hidden = false;
  checkApproval();
  setTimeout(() => prefetch(findNeighbour(getReview(), 1)), 100);
}

function onClick(event) {
  const link = event.target.closest("a, button");
  if (!link || link.getAttribute("aria-disabled") === "true" || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  const row = link.closest("#list li[data-id]");
  if (row && link.matches("a")) {
    event.preventDefault();
    open(row.dataset.id);
  } else if (link.matches("[data-do][aria-controls]")) {
    event.preventDefault();
    setMode(getContent().dataset.mode === link.dataset.do ? "" : link.dataset.do);
  } else if (link.matches("[data-close]")) {
    event.preventDefault();
    setMode("");
  } else if (link.matches("[data-do=help]")) {
    document.getElementById("keys").showModal();
  } else if (link.matches("[data-close-dialog]")) {
    link.closest("dialog").close();
  } else if (link.matches("[data-previous], [data-next]")) {
    event.preventDefault();
    move(link.matches("[data-next]") ? 1 : -1);
  }
}

function onKeyDown(event) {
  // On a new page nothing has focus yet, and these keys would scroll nothing.
  if (READING_KEYS.includes(event.key) && document.activeElement === document.body) document.getElementById("read")?.focus({ preventScroll: true });
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && getForm()) {
    event.preventDefault();
    send();
  } else if (event.key === "Escape" && getContent()?.dataset.mode && !document.querySelector("dialog[open]")) {
    setMode("");
  }
}

registerKey("next", () => { move(1); });
registerKey("previous", () => { move(-1); });
for (const action of ["approve", "send_back", "reject", "edit"]) registerKey(action, () => act(action));
registerKey("help", () => { document.getElementById("keys").showModal(); });
registerKey("select", togglePick);
registerKey("undo", () => { noted.then(undoLatest); });
registerKey("search", () => {
  const search = document.querySelector("#filter [type=search]");
  search.closest("details").open = true;
  search.focus();
});
document.addEventListener("click", onClick);
document.addEventListener("submit", decide);
document.addEventListener("keydown", onKeyDown);
document.addEventListener("retoma:refreshed", (event) => closeForm(event.detail));
document.addEventListener("retoma:undo", (event) => undo(event.detail.form, event.detail.review));
window.addEventListener("popstate", () => {
  const review = location.pathname.match(/^\/reviews\/([^/]+)$/)?.[1];
  if (review) open(review, { push: false });
  else location.reload();
});
prepare();
if (["#edit", "#send-back", "#reject"].includes(location.hash) && document.getElementById("sheet")) setMode(location.hash.slice(1).replace("-", "_"));
focusInvalid();
