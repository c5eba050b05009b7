// A recording with a timeline: waveform, pins of comments, what has been watched, and keys. Also plays two revisions at
// the same place. Without this script, the browser's own controls remain.

import { onShown } from "./shown.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 1000;
const HEIGHT = 60;
const RATES = [1, 1.25, 1.5, 2, 0.75];
const STEP_SECONDS = 5;
const FASTEST = 4;

export function formatTime(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const minutes = Math.floor(whole / 60);
  const two = (number) => String(number).padStart(2, "0");
  return minutes >= 60 ? `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

class Player {
  constructor(place) {
    this.place = place;
    this.media = place.querySelector("video, audio");
    this.length = Number(place.dataset.seconds) || 0;
    this.scrub = place.querySelector("[data-scrub]");
    this.watched = new Set(); // whole seconds
    this.media.controls = false;
    for (const part of place.querySelectorAll("[data-scripted]")) part.hidden = false;
    this.listen();
    this.draw([]);
    if (this.media.readyState) this.showLength(); // it was loaded before this script
    this.loadPeaks();
  }

  get seconds() {
    return Number.isFinite(this.media.duration) && this.media.duration > 0 ? this.media.duration : this.length;
  }

  listen() {
    const { media, place, scrub } = this;
    media.addEventListener("timeupdate", () => this.follow());
    media.addEventListener("seeked", () => this.follow());
    media.addEventListener("loadedmetadata", () => { scrub.max = String(this.seconds); this.showLength(); });
    for (const kind of ["play", "pause", "ended"]) {
      media.addEventListener(kind, () => place.classList.toggle("playing", !media.paused && !media.ended));
    }
    media.addEventListener("click", () => this.toggle());
    scrub.addEventListener("input", () => { media.currentTime = Number(scrub.value); });
    place.querySelector("[data-play]").addEventListener("click", () => this.toggle());
    place.querySelector("[data-rate]").addEventListener("click", (event) => this.changeRate(event.currentTarget));
    place.querySelector("[data-mute]").addEventListener("click", (event) => {
      media.muted = !media.muted;
      event.currentTarget.setAttribute("aria-pressed", String(media.muted));
    });
    place.querySelector("[data-full]")?.addEventListener("click", () => media.requestFullscreen());
    place.addEventListener("keydown", (event) => this.shuttle(event));
  }

  toggle() {
    if (this.media.paused) this.media.play();
    else this.media.pause();
  }

  seek(seconds, { play = false } = {}) {
    this.media.currentTime = Math.min(Math.max(0, seconds), this.seconds || seconds);
    if (play) this.media.play();
  }

  changeRate(button) {
    this.media.playbackRate = RATES[(RATES.indexOf(this.media.playbackRate) + 1) % RATES.length];
    button.textContent = `${this.media.playbackRate.toLocaleString(document.documentElement.lang)}×`;
  }

  // J K L while the player has focus: back, pause, forward and faster.
  shuttle(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("textarea, input[type=text]")) return;
    const key = event.key.toLowerCase();
    if (!["j", "k", "l"].includes(key)) return;
    event.preventDefault();
    event.stopPropagation();
    this.perform(key);
  }

  perform(key) {
    const { media } = this;
    if (key === "j") this.seek(media.currentTime - STEP_SECONDS);
    else if (key === "k") { media.playbackRate = 1; this.toggle(); }
    else if (media.paused) media.play();
    else media.playbackRate = Math.min(FASTEST, media.playbackRate * 2);
  }

  showLength() {
    this.place.querySelector("[data-total]").textContent = formatTime(this.seconds);
    this.follow();
    this.media.dispatchEvent(new CustomEvent("retoma:length", { bubbles: true })); // pins depend on it
  }

  follow() {
    const at = this.media.currentTime;
    this.place.querySelector("[data-now]").textContent = formatTime(at);
    this.scrub.value = String(at);
    this.scrub.setAttribute("aria-valuetext", formatTime(at));
    if (!this.media.paused && !this.watched.has(Math.floor(at))) this.watched.add(Math.floor(at)), this.drawWatched();
    this.place.querySelector("[data-head]")?.setAttribute("x", String((at / (this.seconds || 1)) * WIDTH - 1));
    this.media.dispatchEvent(new CustomEvent("retoma:at", { bubbles: true, detail: at }));
  }

  async loadPeaks() {
    if (!this.place.dataset.peaks) return;
    const answer = await fetch(this.place.dataset.peaks, { headers: { accept: "application/json" } }).catch(() => null);
    if (answer?.ok) this.draw((await answer.json()).peaks);
  }

  draw(peaks) {
    const track = this.place.querySelector("[data-track]");
    const middle = HEIGHT / 2 - 4;
    const wide = WIDTH / Math.max(1, peaks.length);
    const path = peaks
      .map((peak, number) => [number * wide, Math.max(1, peak * (middle - 2))])
      .map(([x, half]) => `M${x.toFixed(1)} ${(middle - half).toFixed(1)}h${(wide * 0.62).toFixed(2)}v${(half * 2).toFixed(1)}h-${(wide * 0.62).toFixed(2)}z`);
    const ranges = track.querySelector("[data-ranges]") ?? make("g", { "data-ranges": "" });
    track.replaceChildren(
      make("path", { class: "wave", d: path.join("") }),
      make("rect", { class: "unseen", x: "0", y: String(HEIGHT - 5), width: String(WIDTH), height: "4" }),
      make("path", { class: "seenbar", "data-seen": "", d: "" }),
      ranges,
      make("rect", { class: "head-l", "data-head": "", x: "0", y: "0", width: "2", height: String(HEIGHT - 6) }),
    );
    this.drawWatched();
  }

  drawWatched() {
    const whole = Math.max(1, Math.ceil(this.seconds));
    const wide = WIDTH / whole;
    const parts = [...this.watched].map((second) => `M${(second * wide).toFixed(2)} ${HEIGHT - 5}h${(wide + 0.3).toFixed(2)}v4h-${(wide + 0.3).toFixed(2)}z`);
    this.place.querySelector("[data-seen]").setAttribute("d", parts.join(""));
    const say = this.place.querySelector("[data-watched]");
    const share = Math.min(1, this.watched.size / whole);
    const shown = share.toLocaleString(document.documentElement.lang, { style: "percent" });
    say.textContent = this.watched.size ? say.dataset.say.replace("{share}", shown) : "";
  }

  // `comments` have `at`, perhaps `to`, a `name` for people who cannot see, and `isEarlier`.
  showComments(comments, onChoose) {
    const timed = comments.filter((each) => each.at !== null);
    const place = (seconds) => Math.min(100, (seconds / (this.seconds || 1)) * 100);
    const pins = timed.map((comment, number) => {
      const pin = document.createElement("button");
      pin.type = "button";
      pin.className = comment.isEarlier ? "pin earlier" : "pin";
      pin.textContent = comment.label ?? String(number + 1);
      pin.setAttribute("aria-label", `${formatTime(comment.at)} ${comment.name}`);
      pin.title = comment.name;
      pin.style.left = `${place(comment.at)}%`;
      pin.addEventListener("click", () => { this.seek(comment.at); onChoose?.(comment); });
      return pin;
    });
    this.place.querySelector("[data-pins]").replaceChildren(...pins);
    const ranges = timed.filter((each) => each.to !== null).map((each) => make("rect", {
      class: each.isEarlier ? "range earlier" : "range", x: String(place(each.at) * 10), y: "0",
      width: String(Math.max(2, (place(each.to) - place(each.at)) * 10)), height: String(HEIGHT - 6),
    }));
    this.place.querySelector("[data-ranges]").replaceChildren(...ranges);
  }
}

function make(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const players = new WeakMap();

// The player of this recording, or the first one of the page.
export function findPlayer(id) {
  const media = id ? document.getElementById(id) : null;
  const place = media?.closest("[data-player]") ?? document.querySelector("[data-player]");
  return place ? players.get(place) ?? null : null;
}

// Two revisions, one of them heard; the other follows at the same share of its length.
function enableComparison(place) {
  const [before, now] = ["before", "now"].map((side) => place.querySelector(`[data-side=${side}]`));
  const follow = (from, to) => {
    if (!from.duration || !to.duration) return;
    const target = (from.currentTime / from.duration) * to.duration;
    if (Math.abs(to.currentTime - target) > 0.3) to.currentTime = target;
  };
  const leader = () => (place.querySelector("input[value=before]").checked ? before : now);
  const choose = () => { before.muted = leader() !== before; now.muted = leader() !== now; };
  for (const media of [before, now]) {
    const other = media === before ? now : before;
    media.addEventListener("seeking", () => { if (leader() === media) follow(media, other); });
    media.addEventListener("pause", () => { if (leader() === media) other.pause(); });
    media.addEventListener("timeupdate", () => { if (leader() === media && !media.paused) follow(media, other); });
  }
  for (const part of place.querySelectorAll("[data-scripted]")) part.hidden = false;
  place.addEventListener("change", choose);
  place.addEventListener("toggle", () => { if (place.open) for (const media of [before, now]) media.preload = "metadata"; });
  place.querySelector("[data-both]").addEventListener("click", () => {
    if (!leader().paused) return leader().pause();
    choose();
    for (const media of [before, now]) media.play();
  });
  choose();
}

onShown("[data-player]", (place) => players.set(place, new Player(place)));
onShown("[data-beside]", enableComparison);
