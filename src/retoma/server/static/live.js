// Refreshes the parts marked `data-live`: fetches this page again after each event of the server, and regularly in any
// case. A part that a person is using stays as it is.

const KINDS = ["start", "result", "failure", "retry", "action", "stuck", "resume", "review", "end"];
const SHORTEST = 1000;
const NET = 20000;
const QUIET = 60000;
const dot = document.querySelector("[data-live-dot]");
const word = dot?.firstElementChild?.textContent;

let source = null;
let address = dot?.dataset.stream ?? "";
let heard = Date.now();
let shown = new Date();
let isFresh = true;
let waiting = null;
let turning = false;

function listen() {
  if (source || !address || document.hidden) return;
  heard = Date.now();
  source = new EventSource(address);
  // Events between the rendering of this page and the opening of the stream are not sent.
  source.addEventListener("open", soon);
  source.addEventListener("ping", hear);
  for (const kind of KINDS) source.addEventListener(kind, () => { hear(); soon(); });
}

function stop() {
  source?.close();
  source = null;
}

function hear() {
  heard = Date.now();
  tell();
}

function soon() {
  waiting ??= setTimeout(turn, SHORTEST);
}

async function turn() {
  clearTimeout(waiting);
  waiting = null;
  if (document.hidden) return;
  if (turning) return soon();
  turning = true;
  isFresh = await refresh().then(() => true, () => false);
  turning = false;
  if (isFresh) shown = new Date();
  tell();
}

async function refresh() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "error" });
  if (!answer.ok) throw new Error(String(answer.status));
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live], [data-live-too]")) {
    const next = fresh.getElementById(part.id);
    if (next && !isInUse(part) && plain(next) !== plain(part)) replace(part, next);
  }
  follow(fresh.querySelector("[data-live-dot]")?.dataset.stream ?? "");
}

// A run that has ended has no stream; one that was resumed has one again.
function follow(next) {
  address = next;
  if (!address) stop();
  else if (source?.readyState === EventSource.CLOSED) stop();
  listen();
}

function isInUse(part) {
  const chosen = getSelection();
  const marked = chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode);
  const used = part.querySelector("details.confirm[open], [data-pick]:checked");
  return marked || part.contains(document.activeElement) || used !== null;
}

function plain(part) {
  const copy = part.cloneNode(true);
  for (const each of copy.querySelectorAll("details[data-opened]")) {
    each.removeAttribute("open");
    each.removeAttribute("data-opened");
  }
  // Every response has new keys: they alone are not a change.
  for (const each of copy.querySelectorAll("input[name=key]")) each.removeAttribute("value");
  return copy.innerHTML;
}

function replace(part, next) {
  const open = new Set([...part.querySelectorAll("details[open]")].map((each) => each.dataset.key));
  for (const each of next.querySelectorAll("details")) {
    if (open.has(each.dataset.key) && !each.open) {
      each.open = true;
      each.dataset.opened = "";
    }
  }
  part.replaceChildren(...[...next.childNodes].map((each) => document.importNode(each, true)));
}

function tell() {
  const isQuiet = address !== "" && Date.now() - heard > QUIET;
  const clock = (at) => new Date(at).toLocaleTimeString(document.documentElement.lang);
  const said = !isFresh ? `${dot.dataset.old} ${clock(shown)}` : isQuiet ? `${dot.dataset.quiet} ${clock(heard)}` : word;
  dot.classList.toggle("off", !isFresh || isQuiet);
  if (dot.firstElementChild.textContent !== said) dot.firstElementChild.textContent = said;
  dot.title = said;
}

function look() {
  if (document.hidden) return;
  turn();
  if (source && Date.now() - heard > QUIET) {
    const since = heard;
    stop();
    listen();
    heard = since;
  }
}

function change() {
  if (document.hidden) return stop();
  heard = Date.now();
  turn();
  listen();
}

if (dot && document.querySelector("[data-live]")) {
  listen();
  setInterval(look, NET);
  document.addEventListener("visibilitychange", change);
  window.addEventListener("pagehide", stop);
}
