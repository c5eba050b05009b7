// Keeps what is marked `data-live` up to date by asking for this same page again. What a person is using stays as it is.

const EVERY = 3000;
const dot = document.querySelector("[data-live-dot]");
const word = dot?.firstElementChild?.textContent;
let since = new Date();

async function refresh() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "error" });
  if (!answer.ok) throw new Error(String(answer.status));
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    if (next && !isInUse(part) && next.innerHTML !== plain(part)) replace(part, next);
  }
}

function isInUse(part) {
  const chosen = getSelection();
  const marked = chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode);
  return marked || part.contains(document.activeElement) || part.querySelector("details.confirm[open]") !== null;
}

function plain(part) {
  const copy = part.cloneNode(true);
  for (const each of copy.querySelectorAll("details[data-opened]")) {
    each.removeAttribute("open");
    each.removeAttribute("data-opened");
  }
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

function tell(isFresh) {
  if (isFresh) since = new Date();
  dot.classList.toggle("off", !isFresh);
  dot.firstElementChild.textContent = isFresh ? word : `${dot.dataset.old} ${since.toLocaleTimeString(document.documentElement.lang)}`;
}

async function turn() {
  if (!document.hidden) await refresh().then(() => tell(true), () => tell(false));
  setTimeout(turn, EVERY);
}

if (dot && document.querySelector("[data-live]")) setTimeout(turn, EVERY);
