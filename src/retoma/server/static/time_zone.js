// Tells the server the viewer's time zone with a cookie, for the next pages, and rewrites the times of this page if the
// server rendered them in another zone. The formats are those of pages/formats.py.

const YEAR = 365 * 86400;
const root = document.documentElement;
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

function format(at, name) {
  const options = { timeZone: zone, hourCycle: "h23", year: "numeric" };
  for (const part of ["month", "day", "hour", "minute", "second"]) options[part] = "2-digit";
  const parts = new Intl.DateTimeFormat("en-US", options).formatToParts(new Date(at));
  const { year, month, day, hour, minute, second } = Object.fromEntries(parts.map(({ type, value }) => [type, value]));
  const date = root.lang === "pt-BR" ? `${day}/${month}/${year}` : `${year}-${month}-${day}`;
  if (name === "clock") return `${hour}:${minute}:${second}`;
  return name === "minute" ? `${date} ${hour}:${minute}` : `${date} ${hour}:${minute}:${second}`;
}

function rewrite() {
  for (const each of document.querySelectorAll("[data-format]")) {
    const text = format(each.getAttribute("datetime") ?? each.dataset.at, each.dataset.format);
    if (each.textContent !== text) each.textContent = text;
  }
}

if (zone && zone !== root.dataset.timeZone) {
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `retoma-time-zone=${zone}; path=/; max-age=${YEAR}; samesite=lax${secure}`;
  rewrite();
  const note = document.querySelector("[data-zone-text]");
  if (note) note.textContent = note.dataset.zoneText.replace("{zone}", zone);
  // Parts that are updated later come in UTC again if the server does not know this zone.
  new MutationObserver(rewrite).observe(document.body, { childList: true, subtree: true });
}
