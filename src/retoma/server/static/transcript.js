// A transcript that follows its player and whose lines seek to their time. Without this script it is plain text.

import { onShown } from "/static/shown.js";

function follow(transcript, player) {
  const lines = [...transcript.querySelectorAll("[data-start]")];
  let now = null;
  const show = (line) => {
    const { top, bottom } = line.getBoundingClientRect();
    const frame = transcript.getBoundingClientRect();
    if (top < frame.top || bottom > frame.bottom) transcript.scrollTop += top - frame.top - frame.height / 3;
  };
  const update = () => {
    const next = lines.findLast((line) => Number(line.dataset.start) <= player.currentTime) ?? null;
    if (next === now) return;
    now?.removeAttribute("aria-current");
    next?.setAttribute("aria-current", "true");
    now = next;
    if (next) show(next);
  };
  for (const line of lines) makeButton(line, player);
  player.addEventListener("timeupdate", update);
  player.addEventListener("seeked", update);
}

// A real button, so that a line needs no role of its own.
function makeButton(line, player) {
  const text = line.querySelector(".line");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "line";
  button.append(...text.childNodes);
  button.addEventListener("click", () => {
    player.currentTime = Number(line.dataset.start);
    player.play();
  });
  text.replaceWith(button);
}

onShown("[data-transcript]", (transcript) => {
  const player = document.getElementById(transcript.dataset.transcript);
  if (!player) return;
  follow(transcript, player);
  transcript.removeAttribute("tabindex"); // its lines can be reached
  for (const hint of document.querySelectorAll("[data-follows]")) hint.hidden = false;
});
onShown("[data-title-preview]", (preview) => {
  const title = document.getElementById("value.title");
  title?.addEventListener("input", () => { preview.textContent = title.value; });
});
