// The list of reviews. Rows never move under the pointer: what is new or gone is announced, and shown on request or when a
// key moves on.

const getList = () => document.getElementById("list");
const getNews = () => document.getElementById("news");
const DECIDED_FOR_MS = 30000;
const decidedHere = new Map(); // a list that was loaded before a decision still has the review
let pending = null;

export const listRows = () => [...getList().querySelectorAll("li[data-id]")];
const findRow = (review) => listRows().find((row) => row.dataset.id === review);
const isOpen = (row) => row.dataset.gone === undefined;

// Returns the next review in this direction that is still open.
export function findNeighbour(review, direction) {
  const rows = listRows();
  const here = rows.findIndex((row) => row.dataset.id === review);
  const ahead = direction > 0 ? rows.slice(here + 1) : rows.slice(0, Math.max(here, 0)).reverse();
  return ahead.find(isOpen)?.dataset.id;
}

// Returns the reviews up to this one.
export function listPassed(review) {
  const ids = listRows().map((row) => row.dataset.id);
  return new Set(ids.slice(0, ids.indexOf(review) + 1));
}

// Returns the first open review that is not one of these.
export function findOpen(passed = new Set()) {
  return listRows().find((row) => isOpen(row) && !passed.has(row.dataset.id))?.dataset.id;
}

export function markCurrent(review) {
  for (const row of listRows()) {
    const link = row.querySelector("a");
    if (row.dataset.id === review) {
      link.setAttribute("aria-current", "true");
      row.scrollIntoView({ block: "nearest" });
    } else {
      link.removeAttribute("aria-current");
    }
  }
  showPlace(review);
}

export function markDecided(review, decided) {
  decidedHere.set(review, Date.now());
  const row = findRow(review);
  if (!row) return;
  row.dataset.gone = decided.state;
  const pick = row.querySelector("[data-pick]");
  if (pick) pick.checked = false;
  changeTotal(-1);
}

export function markOpen(review) {
  decidedHere.delete(review);
  const row = findRow(review);
  if (row?.dataset.gone === undefined) return;
  delete row.dataset.gone;
  changeTotal(1);
}

// The numbers in the list and in the navigation change with the decision, not with the next refresh.
function changeTotal(by, where = "#total, .nav .count.you, .tabs-phone .count.you") {
  for (const each of document.querySelectorAll(where)) {
    const number = Number(each.textContent.replace(/\D/g, "")) + by;
    each.textContent = number.toLocaleString(document.documentElement.lang);
  }
}

function showPlace(review) {
  const place = document.querySelector("[data-place]");
  if (!place) return;
  const open = listRows().filter((row) => isOpen(row) || row.dataset.id === review);
  const number = open.findIndex((row) => row.dataset.id === review) + 1 + Number(getList().dataset.offset ?? 0);
  const position = place.querySelector("[data-position]");
  const total = document.getElementById("total").textContent;
  position.textContent = number ? position.dataset.text.replace("{number}", String(number)).replace("{total}", total) : "";
  for (const [name, direction] of [["previous", -1], ["next", 1]]) {
    const link = place.querySelector(`[data-${name}]`);
    const neighbour = findNeighbour(review, direction);
    if (neighbour) {
      link.href = `/reviews/${neighbour}${location.search}`;
      link.removeAttribute("aria-disabled");
    } else {
      link.removeAttribute("href");
      link.setAttribute("aria-disabled", "true");
    }
  }
}

const isDecidedHere = (review) => Date.now() - (decidedHere.get(review) ?? 0) < DECIDED_FOR_MS;

// ---- changes that others made

function receive(fresh) {
  const list = fresh.getElementById("list");
  if (!list || !getList()) return;
  const now = new Map([...list.querySelectorAll("li[data-id]")].map((row) => [row.dataset.id, row]));
  const known = new Set(listRows().map((row) => row.dataset.id));
  for (const row of listRows()) updateRow(row, now.get(row.dataset.id));
  const added = [...now.keys()].filter((review) => !known.has(review)).length;
  const gone = listRows().filter((row) => !now.has(row.dataset.id) && row.dataset.gone === "").length;
  pending = added || gone || listRows().some((row) => !isOpen(row)) ? fresh : null;
  announce(added, gone);
}

function updateRow(row, next) {
  if (!next) row.dataset.gone ??= "";
  if (!next || isDecidedHere(row.dataset.id)) return;
  delete row.dataset.gone;
  for (const part of [".d", ".m"]) {
    const [old, now] = [row.querySelector(part), next.querySelector(part)];
    if (old && now && old.outerHTML !== now.outerHTML) old.replaceWith(document.importNode(now, true));
  }
}

function announce(added, gone) {
  const news = getNews();
  const texts = [[added, news.dataset.added], [gone, news.dataset.gone]].filter(([number]) => number);
  const text = texts.map(([number, each]) => each.replace("{number}", String(number))).join(" · ");
  if (news.textContent !== text) news.textContent = text;
  news.hidden = text === "";
}

export function applyNews({ unlessPointed = false } = {}) {
  if (!pending || unlessPointed && getList().matches(":hover")) return;
  replaceList(pending);
  pending = null;
  announce(0, 0);
}

function replaceList(fresh) {
  const current = document.querySelector("[data-pane=content]")?.dataset.review;
  const picked = new Set([...document.querySelectorAll("[data-pick]:checked")].map((each) => each.value));
  const next = document.importNode(fresh.getElementById("list"), true);
  for (const each of next.querySelectorAll("[data-pick]")) each.checked = picked.has(each.value);
  getList().replaceWith(next);
  for (const id of ["total", "pager", "approve-all"]) {
    const part = fresh.getElementById(id);
    if (part) document.getElementById(id)?.replaceWith(document.importNode(part, true));
  }
  for (const row of listRows().filter((each) => isDecidedHere(each.dataset.id))) {
    row.dataset.gone = "";
    changeTotal(-1, "#total");
  }
  markCurrent(current);
  document.dispatchEvent(new CustomEvent("retoma:picked"));
}

// Replaces the list by the part that follows its last row, which may be decided meanwhile. Returns the first open review of it.
export async function loadFurther() {
  const later = document.querySelector("#pager [data-later]");
  const last = listRows().at(-1);
  if (!later || !last) return undefined;
  return loadPart({ after: last.dataset.id, offset: String(Number(getList().dataset.offset ?? 0) + listRows().filter(isOpen).length) });
}

// Replaces the list by its beginning. Returns the first open review of it.
export const loadAgain = () => loadPart({});

async function loadPart(place) {
  const query = new URLSearchParams(location.search);
  for (const name of ["after", "offset"]) query.delete(name);
  for (const [name, value] of Object.entries(place)) query.set(name, value);
  const address = `/reviews?${query}`;
  const answer = await fetch(address, { redirect: "error" });
  if (!answer.ok) throw new Error(String(answer.status));
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const found = [...fresh.querySelectorAll("#list li[data-id]")].some((row) => !isDecidedHere(row.dataset.id));
  if (!found && place.after) return undefined;
  history.replaceState(null, "", address);
  pending = null;
  announce(0, 0);
  replaceList(fresh);
  return findOpen();
}

document.addEventListener("retoma:refreshed", (event) => receive(event.detail));
document.addEventListener("click", (event) => { if (event.target.closest("#news")) applyNews(); });
