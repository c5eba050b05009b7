// Comments at a moment, at a range, or on a passage of a text. They are the lines of one text field, which is what is
// sent: this script shows them as a list, draws them on the timeline, and adds to them.

import { findPlayer, formatTime } from "./player.js";
import { onShown } from "./shown.js";

const TIME = String.raw`(?:(\d{1,3}):)?(\d{1,3}):(\d{2}(?:[.,]\d{1,3})?)`;
const LINE = new RegExp(String.raw`^\s*(?:${TIME}(?:\s*[-–]\s*${TIME})?\s+)?(?:“([^”]+)”\s+)?(\S.*)$`);
const MAX_QUOTE = 300;

function toSeconds(hours, minutes, seconds) {
  return Number(hours ?? 0) * 3600 + Number(minutes) * 60 + Number(seconds.replace(",", "."));
}

function parse(text) {
  return text.split("\n").map((line) => LINE.exec(line)).filter(Boolean).map((found) => ({
    at: found[2] ? toSeconds(found[1], found[2], found[3]) : null,
    to: found[5] ? toSeconds(found[4], found[5], found[6]) : null,
    quote: found[7] ?? "",
    text: found[8].trim(),
  }));
}

function write(comment) {
  const times = [comment.at, comment.to].filter((each) => each !== null).map(formatTime).join("-");
  const quote = cleanQuote(comment.quote);
  return [times, quote && `“${quote}”`, comment.text].filter(Boolean).join(" ");
}

// A comment is one line: what it quotes may have several, and quotation marks.
function cleanQuote(text) {
  return text.replace(/\s+/g, " ").replace(/[“”]/g, "\"").trim().slice(0, MAX_QUOTE).trim();
}

class Comments {
  constructor(panel) {
    this.panel = panel;
    this.field = panel.querySelector("textarea[name=comments]");
    this.input = panel.querySelector("[data-text-input]");
    this.takesTimes = panel.dataset.comments !== "";
    this.start = null;
    this.end = null;
    this.quote = "";
    panel.querySelector("[data-composer]").hidden = false;
    panel.querySelector("[data-plain]").classList.add("sr");
    this.field.tabIndex = -1;
    this.listen();
    this.show();
    this.showTime();
  }

  get player() {
    return this.takesTimes ? findPlayer(this.panel.dataset.comments) : null;
  }

  listen() {
    const on = (selector, action) => this.panel.querySelector(selector)?.addEventListener("click", action);
    for (const kind of ["input", "change"]) this.field.addEventListener(kind, () => this.show());
    this.input.addEventListener("focus", () => this.begin());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        event.stopPropagation();
        this.add();
      } else if (event.key === "Escape") this.leave();
    });
    on("[data-add]", () => this.add());
    on("[data-mark-in]", () => this.mark("start"));
    on("[data-mark-out]", () => this.mark("end"));
    document.addEventListener("retoma:length", () => { if (this.panel.isConnected) this.show(); });
    document.addEventListener("retoma:at", () => { if (this.panel.isConnected) this.showTime(); });
  }

  // The moment is that of the first letter: the recording pauses there.
  begin() {
    this.panel.querySelector("[data-composer]").scrollIntoView({ block: "nearest" }); // all of it, not only the field
    const media = this.player?.media ?? findPlayed();
    media?.pause();
    if (this.takesTimes && this.start === null && !this.quote) this.start = media?.currentTime ?? 0;
    this.showTime();
  }

  mark(which) {
    const at = (this.player?.media ?? findPlayed())?.currentTime ?? 0;
    if (which === "start") this.start = at;
    else this.end = at;
    if (this.start !== null && this.end !== null && this.end < this.start) [this.start, this.end] = [this.end, this.start];
    this.showTime();
  }

  leave() {
    if (!this.input.value.trim()) this.clear();
    this.input.blur();
  }

  clear() {
    this.input.value = "";
    this.start = this.end = null;
    this.quote = "";
    this.showTime();
  }

  // Comments on a passage of the text that somebody marked.
  quotePassage(text) {
    this.quote = cleanQuote(text);
    this.showTime();
    this.input.focus();
  }

  showTime() {
    const at = this.start ?? (this.takesTimes ? (this.player?.media ?? findPlayed())?.currentTime ?? 0 : null);
    const when = this.panel.querySelector("[data-when]");
    when.hidden = at === null || Boolean(this.quote && this.start === null);
    when.textContent = at === null ? "" : formatTime(at) + (this.end !== null ? `–${formatTime(this.end)}` : "");
    const quoted = this.panel.querySelector("[data-quoted]");
    quoted.hidden = !this.quote;
    quoted.textContent = this.quote ? `“${this.quote}”` : "";
    this.panel.querySelector("[data-hint]").hidden = !this.takesTimes;
  }

  add() {
    const text = this.input.value.replace(/\s+/g, " ").trim();
    if (!text) return this.input.focus();
    const at = this.quote ? this.start : this.start ?? (this.takesTimes ? 0 : null);
    const spoken = this.quote || (at === null ? "" : findSpoken(at, this.end));
    this.save([...parse(this.field.value), { at, to: this.end, quote: spoken, text }]);
    this.clear();
    this.input.focus();
    this.start = null;
  }

  save(comments) {
    const sorted = [...comments].sort((one, other) => (one.at ?? -1) - (other.at ?? -1));
    this.field.value = sorted.map(write).join("\n");
    this.field.dispatchEvent(new Event("input", { bubbles: true })); // for the draft, and for the list below
  }

  show() {
    const comments = parse(this.field.value);
    const list = this.panel.querySelector("[data-list]");
    list.hidden = comments.length === 0;
    list.replaceChildren(...comments.map((comment, number) => this.makeEntry(comment, number, comments)));
    const count = this.panel.querySelector("[data-count]");
    count.hidden = comments.length === 0;
    count.textContent = String(comments.length);
    this.player?.showComments([...listEarlier(), ...comments.map((each, number) => ({ ...each, label: String(number + 1), name: each.text }))]);
  }

  makeEntry(comment, number, all) {
    const entry = this.panel.querySelector("template[data-entry]").content.firstElementChild.cloneNode(true);
    const find = (selector) => entry.querySelector(selector);
    const times = [comment.at, comment.to].filter((each) => each !== null).map(formatTime).join("–");
    find("[data-seek-button]").textContent = times || String(number + 1);
    find("[data-seek-button]").addEventListener("click", () => this.player?.seek(comment.at ?? 0));
    find("[data-quote]").textContent = comment.quote ? `“${comment.quote}”` : "";
    find("[data-quote]").hidden = !comment.quote;
    find("[data-text]").textContent = comment.text;
    find("[data-remove]").addEventListener("click", () => this.save(all.filter((each) => each !== comment)));
    find("[data-edit]").addEventListener("click", () => {
      this.save(all.filter((each) => each !== comment));
      Object.assign(this, { start: comment.at, end: comment.to, quote: comment.quote });
      this.input.value = comment.text;
      this.showTime();
      this.input.focus();
    });
    return entry;
  }
}

// A review without a player of its own: the recording that was played last.
let played = null;
document.addEventListener("timeupdate", (event) => { if (event.target.matches?.("[data-played]")) played = event.target; }, true);

function findPlayed() {
  return played?.isConnected ? played : document.querySelector("[data-played]");
}

// What is said there, so that the comment makes sense without the recording.
function findSpoken(at, end) {
  const lines = [...document.querySelectorAll("[data-transcript] [data-start]")];
  const said = lines.filter((line) => Number(line.dataset.start) <= (end ?? at) && Number(line.dataset.end) >= at);
  return said.map((line) => line.dataset.said ?? "").join(" ");
}

function listEarlier() {
  return [...document.querySelectorAll("#carried li[data-at]")].filter((each) => each.dataset.at && each.dataset.resolved === "no").map((each) => ({
    at: Number(each.dataset.at), to: each.dataset.to ? Number(each.dataset.to) : null, isEarlier: true, label: "!", name: each.querySelector("p:last-of-type")?.textContent ?? "",
  }));
}

// Resolves an earlier comment without leaving the page, so that nothing typed is lost.
async function resolve(event) {
  const form = event.target.closest?.("form[data-resolve]");
  if (!form) return;
  event.preventDefault();
  const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { accept: "text/html" } }).catch(() => null);
  const fresh = answer?.ok ? new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("carried") : null;
  if (!fresh) return form.submit();
  document.getElementById("carried").replaceWith(document.importNode(fresh, true));
  current?.show();
}

let current = null;

// The composer of the review that is shown, for keys and for passages that are marked in a text.
export function findComments() {
  return current?.panel.isConnected ? current : null;
}

document.addEventListener("submit", resolve);
onShown("[data-comments]", (panel) => { current = new Comments(panel); });
document.addEventListener("click", (event) => {
  const place = event.target.closest?.("[data-seek]");
  if (place) findPlayer()?.seek(Number(place.dataset.seek));
});
