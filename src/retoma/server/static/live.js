// Refreshes the parts marked `data-live`: fetches this page again after each event of the server, and regularly in any
// case. A part that a person is using stays as it is.

const KINDS = ["start", "result", "failure", "retry", "action", "stuck", "resume", "review", "orphan", "end"];
const MIN_REFRESH_MS = 1000;
const REFRESH_INTERVAL_MS = 20000;
const QUIET_AFTER_MS = 60000;
const indicator = document.querySelector("[data-live-dot]");
const liveText = indicator?.firstElementChild?.textContent;

let source = null;
let streamUrl = indicator?.dataset.stream ?? "";
let lastEventAt = Date.now();
let refreshedAt = new Date();
let isFresh = true;
let refreshTimer = null;
let isRefreshing = false;

function openStream() {
  if (source || !streamUrl || document.hidden) return;
  lastEventAt = Date.now();
  source = new EventSource(streamUrl);
  // Events between the rendering of this page and the opening of the stream are not sent.
  source.addEventListener("open", scheduleRefresh);
  source.addEventListener("ping", recordEvent);
  for (const kind of KINDS) source.addEventListener(kind, () => { recordEvent(); scheduleRefresh(); });
}

function closeStream() {
  source?.close();
  source = null;
}

function recordEvent() {
  lastEventAt = Date.now();
  showStatus();
}

function scheduleRefresh() {
  refreshTimer ??= setTimeout(refreshPage, MIN_REFRESH_MS);
}

// Refreshes this page like after an event: a script has changed what it shows.
export function refreshSoon() {
  if (indicator) scheduleRefresh();
}

async function refreshPage() {
  clearTimeout(refreshTimer);
  refreshTimer = null;
  if (document.hidden) return;
  if (isRefreshing) return scheduleRefresh();
  isRefreshing = true;
  isFresh = await fetchParts().then(() => true, () => false);
  isRefreshing = false;
  if (isFresh) refreshedAt = new Date();
  showStatus();
}

async function fetchParts() {
  const address = location.href;
  const answer = await fetch(address, { headers: { accept: "text/html" }, redirect: "error" });
  if (!answer.ok) throw new Error(String(answer.status));
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (location.href !== address) return; // a script has gone on, and refreshes again
  for (const part of document.querySelectorAll("[data-live], [data-live-too]")) {
    const next = fresh.getElementById(part.id);
    if (next && !isInUse(part) && serialize(next) !== serialize(part)) replacePart(part, next);
  }
  document.dispatchEvent(new CustomEvent("retoma:refreshed", { detail: fresh }));
  followStream(fresh.querySelector("[data-live-dot]")?.dataset.stream ?? "");
}

// A run that has ended has no stream; one that was resumed has one again.
function followStream(next) {
  streamUrl = next;
  if (!streamUrl) closeStream();
  else if (source?.readyState === EventSource.CLOSED) closeStream();
  openStream();
}

function isInUse(part) {
  const selection = getSelection();
  const marked = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  const used = part.querySelector("details.confirm[open], [data-pick]:checked");
  return marked || part.contains(document.activeElement) || used !== null;
}

function serialize(part) {
  const copy = part.cloneNode(true);
  for (const each of copy.querySelectorAll("details[data-opened]")) {
    each.removeAttribute("open");
    each.removeAttribute("data-opened");
  }
  // Every response has new keys and tokens: they alone are not a change.
  for (const each of copy.querySelectorAll("input[name=key], input[name=csrf]")) each.removeAttribute("value");
  return copy.innerHTML;
}

function replacePart(part, next) {
  const open = new Set([...part.querySelectorAll("details[open]")].map((each) => each.dataset.key));
  for (const each of next.querySelectorAll("details")) {
    if (open.has(each.dataset.key) && !each.open) {
      each.open = true;
      each.dataset.opened = "";
    }
  }
  part.replaceChildren(...[...next.childNodes].map((each) => document.importNode(each, true)));
}

function showStatus() {
  const isQuiet = streamUrl !== "" && Date.now() - lastEventAt > QUIET_AFTER_MS;
  const formatTime = (at) => new Date(at).toLocaleTimeString(document.documentElement.lang);
  const text = !isFresh ? `${indicator.dataset.old} ${formatTime(refreshedAt)}` : isQuiet ? `${indicator.dataset.quiet} ${formatTime(lastEventAt)}` : liveText;
  indicator.classList.toggle("off", !isFresh || isQuiet);
  if (indicator.firstElementChild.textContent !== text) indicator.firstElementChild.textContent = text;
  indicator.title = text;
}

function checkStream() {
  if (document.hidden) return;
  refreshPage();
  if (source && Date.now() - lastEventAt > QUIET_AFTER_MS) {
    const since = lastEventAt;
    closeStream();
    openStream();
    lastEventAt = since;
  }
}

function onVisibilityChange() {
  if (document.hidden) return closeStream();
  lastEventAt = Date.now();
  refreshPage();
  openStream();
}

if (indicator && document.querySelector("[data-live]")) {
  openStream();
  setInterval(checkStream, REFRESH_INTERVAL_MS);
  document.addEventListener("visibilitychange", onVisibilityChange);
  window.addEventListener("pagehide", closeStream);
}
