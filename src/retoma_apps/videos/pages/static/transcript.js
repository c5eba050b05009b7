// A transcript that follows its player and whose lines seek to their time. Without this script it is plain text.

const transcript = document.querySelector("[data-transcript]");
const player = transcript && document.getElementById(transcript.dataset.transcript);
const lines = [...(transcript?.querySelectorAll("[data-start]") ?? [])];
let now = null;

function follow() {
  const at = player.currentTime;
  const next = lines.findLast((line) => Number(line.dataset.start) <= at) ?? null;
  if (next === now) return;
  now?.removeAttribute("aria-current");
  next?.setAttribute("aria-current", "true");
  now = next;
  if (next) show(next);
}

function show(line) {
  const { top, bottom } = line.getBoundingClientRect();
  const frame = transcript.getBoundingClientRect();
  if (top < frame.top || bottom > frame.bottom) transcript.scrollTop += top - frame.top - frame.height / 3;
}

function seek(line) {
  player.currentTime = Number(line.dataset.start);
  player.play();
}

function lead(line) {
  line.setAttribute("role", "button");
  line.tabIndex = 0;
  line.addEventListener("click", () => seek(line));
  line.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    seek(line);
  });
}

if (player) {
  lines.forEach(lead);
  player.addEventListener("timeupdate", follow);
  player.addEventListener("seeked", follow);
  for (const hint of document.querySelectorAll("[data-scripted]")) hint.hidden = false;
}
