// Refreshes an execution: fetches the rows that events name and the parts around the table. A row or a part that a
// person is using stays as it is until they leave it.

import { registerKey, registerNumbers } from "/static/keys.js";
import { showToast, undoLatest } from "/static/toasts.js";

const KINDS = ["start", "result", "failure", "retry", "action", "stuck", "resume", "end"];
const SHORTEST = 500;
const NET = 15000;
const QUIET = 60000;
const MOST = 200;
const table = document.getElementById("documents");
const silent = document.getElementById("silent");
const dot = document.querySelector("[data-live-dot]");
const word = dot?.firstElementChild?.textContent;
const query = new URLSearchParams(location.search);
const isFiltered = table.dataset.codes !== undefined;
const rows = isFiltered
  ? new Map(JSON.parse(table.dataset.codes).map((code, place) => [code, `d${place + 1}`]))
  : new Map([...table.querySelectorAll("tr[data-c]")].map((row) => [row.dataset.c, row.id]));

let source = null;
let address = document.getElementById("c-head").dataset.stream;
let last = null;
let heard = Date.now();
let alarm = null;
let waiting = null;
let isRefreshing = false;
const changed = new Set();

function listen() {
  if (source || !address || document.hidden) return;
  const [path, asked] = address.split("?");
  last ??= new URLSearchParams(asked).get("after");
  source = new EventSource(`${path}?after=${last}`);
  source.addEventListener("open", recordEvent);
  source.addEventListener("ping", (event) => { last = event.lastEventId || last; recordEvent(); });
  for (const kind of KINDS) source.addEventListener(kind, take);
}

function stop() {
  source?.close();
  source = null;
}

function take(event) {
  last = event.lastEventId || last;
  recordEvent();
  const id = rows.get(JSON.parse(event.data).item ?? "");
  if (id) changed.add(id);
  scheduleRefresh();
}

function recordEvent() {
  heard = Date.now();
  clearTimeout(alarm);
  alarm = setTimeout(showStatus, QUIET + 1);
  showStatus();
}

function scheduleRefresh() {
  waiting ??= setTimeout(refreshChanged, SHORTEST);
}

async function refreshChanged() {
  clearTimeout(waiting);
  waiting = null;
  if (document.hidden) return;
  if (isRefreshing) return scheduleRefresh();
  isRefreshing = true;
  const used = listUsedElements();
  const asked = [...changed].filter((id) => !isInUse(document.getElementById(id), used)).slice(0, MOST);
  for (const id of asked) changed.delete(id);
  try {
    await refresh(asked);
  } catch {
    for (const id of asked) changed.add(id);
  }
  isRefreshing = false;
  if (asked.length === MOST) scheduleRefresh();
}

async function refresh(ids) {
  const fresh = await fetchParts(ids);
  const seen = findVisibleElement();
  const used = listUsedElements();
  for (const part of document.querySelectorAll("[data-part]")) {
    const next = fresh.getElementById(part.id);
    if (next && !isInUse(part, used) && next.innerHTML !== part.innerHTML) part.replaceChildren(...next.childNodes);
  }
  place(fresh, used);
  if (isFiltered) leave(ids, fresh, used);
  const head = fresh.getElementById("c-head");
  table.dataset.over = head.dataset.over;
  document.title = document.title.replace(/^[^·]*/, `${head.dataset.status} `);
  draw();
  keep(seen);
  if (address && !head.dataset.stream) addUnfinishedRows();
  address = head.dataset.stream;
  if (!address || source?.readyState === EventSource.CLOSED) stop();
  listen();
  showStatus();
}

async function fetchParts(ids, edit) {
  const asked = new URLSearchParams(query);
  asked.delete("corrigir");
  if (ids.length) asked.set("n", ids.map((id) => id.slice(1)).join(","));
  if (edit) asked.set("corrigir", edit);
  const answer = await fetch(`${table.dataset.parts}?${asked}`, { headers: { accept: "text/html" }, redirect: "error" });
  if (!answer.ok) throw new Error(String(answer.status));
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// The stream ends with the execution; fetch the rows whose events were not sent by then.
function addUnfinishedRows() {
  if (isFiltered) for (const id of rows.values()) changed.add(id);
  for (const row of table.querySelectorAll("tr[data-s=PENDENTE], tr[data-s=PROCESSANDO]")) changed.add(row.id);
  if (changed.size) scheduleRefresh();
}

// The element in view, to keep its position after everything above it has changed.
function findVisibleElement() {
  if (scrollY === 0) return null;
  const under = document.elementFromPoint(innerWidth / 2, innerHeight / 2);
  const found = under?.closest("tr[id], [data-part][id], #documents");
  return found ? { id: found.id, top: found.getBoundingClientRect().top } : null;
}

function keep(seen) {
  const now = seen && document.getElementById(seen.id);
  if (now) scrollBy({ top: now.getBoundingClientRect().top - seen.top, behavior: "instant" });
}

function place(fresh, used) {
  for (const next of [...fresh.querySelectorAll("tr[data-c]")]) {
    const row = document.getElementById(next.id);
    if (isInUse(row, used)) changed.add(next.id);
    else if (!row) { if (isFiltered && table.querySelectorAll("tr[data-c]").length < Number(table.dataset.size)) insert(document.importNode(next, true)); }
    else if (row.outerHTML !== next.outerHTML) row.replaceWith(document.importNode(next, true));
  }
}

// In the order of the upload; the row for an empty list is the last.
function insert(row) {
  const body = table.querySelector("tbody");
  const number = Number(row.id.slice(1));
  body.insertBefore(row, [...body.rows].find((each) => !each.id || Number(each.id.slice(1)) > number) ?? null);
}

// A row that was requested and is not in the response no longer matches the filters.
function leave(ids, fresh, used) {
  for (const id of ids.filter((each) => !fresh.getElementById(each))) {
    const row = document.getElementById(id);
    if (isInUse(row, used)) changed.add(id);
    else row?.remove();
  }
}

// What a person has selected, focused or opened. Read once before changes: each read makes the browser lay out the whole
// page.
function listUsedElements() {
  const chosen = getSelection();
  const open = [...document.querySelectorAll("#main details[open], form.relabel")];
  return [document.activeElement, ...(chosen && !chosen.isCollapsed ? [chosen.anchorNode] : []), ...open];
}

function isInUse(part, used) {
  if (part?.querySelector("[data-pick]:checked")) return true;
  return used.some((each) => each !== document.body && part?.contains(each));
}

function showStatus() {
  const isQuiet = address !== "" && Date.now() - heard >= QUIET;
  silent.hidden = !isQuiet;
  dot?.classList.toggle("off", isQuiet);
  if (!isQuiet) {
    if (dot) dot.firstElementChild.textContent = word;
    return;
  }
  const clock = new Date(heard).toLocaleTimeString(document.documentElement.lang);
  const said = silent.dataset.said.replace("{time}", clock);
  if (silent.querySelector("b").textContent !== said) silent.querySelector("b").textContent = said;
  if (dot) dot.firstElementChild.textContent = said;
}

function checkStream() {
  showStatus();
  if (document.hidden) return;
  if (source && Date.now() - heard > QUIET) {
    stop();
    listen();
  }
  refreshChanged();
}

function change() {
  if (document.hidden) return leavePage();
  recordEvent();
  refreshChanged();
  listen();
}

// Shows the form for a label in its row, without leaving the page.
async function edit(event) {
  const link = event.target.closest("[data-edit], [data-leave]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const number = link.dataset.edit ?? link.dataset.leave;
  const fresh = await fetchParts([`d${number}`], link.dataset.edit).catch(() => null);
  const next = fresh?.getElementById(`d${number}`);
  const row = document.getElementById(`d${number}`);
  if (!next || !row) return location.assign(link.href);
  row.replaceWith(document.importNode(next, true));
  const place = document.getElementById(`d${number}`);
  (place.querySelector("select") ?? place.querySelector("[data-edit]"))?.focus({ preventScroll: true });
}

// The batch as a map in upload order: adjacent errors are visible as groups. A cell leads to its document.
const FILLS = { C: "lo", V: "f-human", E: "f-fail", S: "f-skip", R: "f-run3", P: "f-wait" };
const FEWEST = 40;
const ACROSS = 100;
const MAP_INTERVAL = 5000;
let mapAt = -MAP_INTERVAL;

async function draw() {
  const place = document.getElementById("c-map");
  if (!place || Date.now() - mapAt < MAP_INTERVAL) return;
  mapAt = Date.now();
  const answer = await fetch(table.dataset.map).catch(() => null);
  if (!answer?.ok) return;
  const { statuses } = await answer.json();
  place.hidden = statuses.length < FEWEST;
  if (place.hidden) return;
  const across = Math.min(ACROSS, Math.ceil(Math.sqrt(statuses.length * 8)));
  const paths = {};
  [...statuses].forEach((status, number) => {
    const x = (number % across) * 10, y = Math.floor(number / across) * 8;
    paths[status] = `${paths[status] ?? ""}M${x} ${y}h9v7h-9z`;
  });
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  made.setAttribute("class", "map");
  made.setAttribute("viewBox", `0 0 ${across * 10 - 1} ${Math.ceil(statuses.length / across) * 8 - 1}`);
  made.setAttribute("aria-hidden", "true");
  for (const [status, path] of Object.entries(paths)) {
    const part = document.createElementNS("http://www.w3.org/2000/svg", "path");
    part.setAttribute("class", FILLS[status] ?? "f-wait");
    part.setAttribute("d", path);
    made.append(part);
  }
  const numberAt = (event) => {
    const box = made.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / box.width * across);
    const line = Math.floor((event.clientY - box.top) / box.height * Math.ceil(statuses.length / across));
    return line * across + column + 1;
  };
  made.addEventListener("pointermove", (event) => { place.querySelector(".pad").title = place.dataset.hint.replace("{number}", numberAt(event)); });
  made.addEventListener("click", (event) => openAt(Math.min(numberAt(event), statuses.length)));
  place.querySelector(".pad").replaceChildren(made);
}

function openAt(number) {
  const wanted = new URLSearchParams({ doc: String(number) });
  if (number > 1) wanted.set("depois", String(number - 1));
  location.assign(`${location.pathname}?${wanted}#leitor`);
}

// Reads a document beside the table, without leaving the page.
async function read(number) {
  if (!number) return false;
  const wanted = new URLSearchParams(location.search);
  wanted.set("doc", number);
  const answer = await fetch(`${table.dataset.reader}?${wanted}`).catch(() => null);
  const fresh = answer?.ok ? new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("leitor") : null;
  if (!fresh) return location.assign(`?${wanted}#leitor`);
  showReader(fresh, number);
  history.replaceState(null, "", `?${wanted}`);
}

function showReader(fresh, number) {
  document.getElementById("leitor").replaceWith(document.importNode(fresh, true));
  for (const row of document.querySelectorAll("tr.reading")) row.classList.remove("reading");
  const row = document.getElementById(`d${number}`);
  row?.classList.add("reading");
  row?.scrollIntoView({ block: "nearest" });
  if (matchMedia("(max-width: 1240px)").matches) document.getElementById("leitor").scrollIntoView({ block: "start" });
}

// The last decision is held for some seconds, in which it can be undone. It is sent after that time, or as soon as the next
// document is decided or the page is left. Decisions are sent one at a time: each starts a summary that the next one waits for.
const DECIDED = ["confirmado", "corrigido", "pulado"];
const unsent = [];
let held = null;
let sending = null;

// Decides the open document, and opens the next one.
async function decide(form) {
  const { number, next } = document.getElementById("leitor").dataset;
  if (held?.number === number) takeBack();
  releaseHeld();
  hold(form, number);
  if (next) await read(next);
  document.querySelector("#leitor .paper")?.focus({ preventScroll: true });
}

function hold(form, number) {
  const fields = new URLSearchParams(new FormData(form));
  fields.delete("doc");
  const name = document.querySelector("#leitor h2").textContent;
  const toast = copyToast("held");
  toast.dataset.review = number;
  toast.querySelector("span").prepend(`${name}: `);
  toast.querySelector("b").textContent = form.dataset.said ?? fields.get("rotulo");
  showToast(toast);
  held = { number, name, fields, address: form.action, toast, timer: setTimeout(releaseHeld, Number(toast.dataset.seconds) * 1000) };
}

function takeBack() {
  clearTimeout(held.timer);
  held.toast.remove();
  held = null;
}

function releaseHeld() {
  if (!held) return;
  unsent.push(held);
  takeBack();
  sending ??= sendUnsent();
}

async function sendUnsent() {
  while (unsent.length) await send(unsent.shift());
  sending = null;
}

// The answer is this page, whose address says whether the decision was stored.
async function send({ number, name, fields, address }) {
  const answer = await fetch(address, { method: "POST", body: fields, headers: { accept: "text/html" }, keepalive: true }).catch(() => null);
  if (!answer?.ok || !DECIDED.includes(new URL(answer.url).searchParams.get("notice"))) return showNotSaved(number, name);
  changed.add(`d${number}`);
  scheduleRefresh();
  if (document.getElementById("leitor").dataset.number === number) read(number);
}

function showNotSaved(number, name) {
  const toast = copyToast("not-saved");
  const link = toast.querySelector("a");
  link.dataset.read = number;
  link.textContent = name;
  showToast(toast);
}

function copyToast(id) {
  return document.getElementById(id).content.firstElementChild.cloneNode(true);
}

function leavePage() {
  stop();
  releaseHeld();
  while (unsent.length) send(unsent.shift()); // there may be no time to wait
}

function findForm(name) {
  return document.querySelector(`#leitor form[data-decide=${name}]`);
}

function pick() {
  const reader = document.getElementById("leitor");
  const box = document.querySelector(`#d${reader.dataset.number} [data-pick]`);
  if (!box) return false;
  box.checked = !box.checked;
  countPicked();
}

function countPicked() {
  const say = document.querySelector("[data-picked]");
  if (!say) return; // a viewer decides nothing
  const count = table.querySelectorAll("[data-pick]:checked").length;
  say.textContent = count ? say.dataset.text.replace("{count}", count) : "";
}

function registerKeys() {
  const reader = () => document.getElementById("leitor").dataset;
  const first = () => table.querySelector("tr[data-c]")?.id.slice(1);
  registerKey("next", () => { const number = reader().number ? reader().next : first(); if (!number) return false; read(number); });
  registerKey("previous", () => { if (!reader().previous) return false; read(reader().previous); });
  registerKey("approve", () => { const form = findForm("approve"); if (!form) return false; decide(form); });
  registerKey("reject", () => { const form = findForm("reject"); if (!form) return false; decide(form); });
  registerKey("edit", () => { const form = findForm("edit"); if (!form) return false; form.querySelector("select").focus(); });
  registerKey("select", pick);
  registerKey("undo", undoLatest);
  registerKey("help", () => { document.getElementById("keys").showModal(); });
  registerNumbers((_, number) => {
    const form = findForm("edit");
    const option = form?.querySelector("select").options[number];
    if (!option) return false;
    form.querySelector("select").value = option.value;
    decide(form);
  });
}

async function submit(event) {
  const { target: form, submitter } = event;
  if (event.defaultPrevented) return;
  if (form.matches("#leitor form[data-decide]")) {
    event.preventDefault();
    decide(form);
  } else if (form.method === "post" && (held || sending)) {
    event.preventDefault();
    releaseHeld();
    await sending;
    form.requestSubmit(submitter);
  }
}

function openLink(event) {
  const link = event.target.closest("[data-read]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  read(link.dataset.read);
}

draw();
recordEvent();
listen();
setInterval(checkStream, NET);
document.addEventListener("visibilitychange", change);
window.addEventListener("pagehide", stop);
table.addEventListener("click", edit);
document.addEventListener("click", openLink);
document.addEventListener("submit", submit);
document.addEventListener("retoma:undo", (event) => {
  takeBack();
  read(event.detail.review);
});
table.addEventListener("change", (event) => {
  if (event.target.matches("[data-pick-all]")) for (const box of table.querySelectorAll("[data-pick]")) box.checked = event.target.checked;
  countPicked();
});
registerKeys();
