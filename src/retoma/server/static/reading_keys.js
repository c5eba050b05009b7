// The keys of what is read: the recording, comments and choices.

import { findComments } from "./comments.js";
import { registerKey, registerNumbers } from "./keys.js";
import { findPlayer } from "./player.js";
import "./targets.js";

function comment() {
  const comments = findComments();
  if (!comments) return false;
  const marked = getSelection();
  const text = marked && !marked.isCollapsed ? marked.anchorNode.parentElement?.closest("[data-quotable]") : null;
  if (text) comments.quotePassage(marked.toString());
  else comments.input.focus();
}

function choose(_, number) {
  const choice = document.querySelectorAll("[data-choices] input[type=radio]:not(:disabled)")[number - 1];
  if (!choice) return false;
  choice.checked = true;
  for (const kind of ["input", "change"]) choice.dispatchEvent(new Event(kind, { bubbles: true }));
  choice.closest("label")?.scrollIntoView({ block: "nearest" });
}

function mark(which) {
  const comments = findPlayer() && findComments();
  if (!comments) return false;
  comments.mark(which);
}

function withPlayer(action) {
  const player = findPlayer();
  if (!player) return false;
  action(player);
}

registerKey("comment", comment);
registerKey("mark_start", () => mark("start"));
registerKey("mark_end", () => mark("end"));
registerKey("play", () => withPlayer((player) => player.toggle()));
registerKey("slower", () => withPlayer((player) => player.perform("j")));
registerKey("pause", () => withPlayer((player) => player.perform("k")));
registerKey("faster", () => withPlayer((player) => player.perform("l")));
registerNumbers(choose);
