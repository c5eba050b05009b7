// Choosing several reviews: all of the list, a range with Shift, and how many the button approves. Counts down the time in which
// a batch can be undone.

const getPicks = () => [...document.querySelectorAll("#list [data-pick]")];
let last = null;

function showPicked() {
  const button = document.getElementById("approve-picked");
  if (!button) return;
  const picks = getPicks();
  const picked = picks.filter((each) => each.checked).length;
  button.lastElementChild.textContent = picked ? button.dataset.one.replace("{count}", String(picked)) : button.dataset.none;
  button.disabled = picked === 0;
  button.classList.toggle("primary", picked > 0);
  const all = document.getElementById("pick-all");
  all.checked = picked > 0 && picked === picks.length;
  all.indeterminate = picked > 0 && picked < picks.length;
}

function onClick(event) {
  if (event.target.id === "pick-all") {
    for (const each of getPicks()) each.checked = event.target.checked;
  } else if (event.target.matches("#list [data-pick]")) {
    const picks = getPicks();
    const [from, to] = [picks.indexOf(last), picks.indexOf(event.target)].sort((one, other) => one - other);
    if (event.shiftKey && from >= 0) for (const each of picks.slice(from, to + 1)) each.checked = event.target.checked;
    last = event.target;
  } else {
    return;
  }
  showPicked();
}

// Checks or unchecks the current review.
export function togglePick() {
  const pick = document.querySelector("#list li:has([aria-current]) [data-pick]");
  if (!pick) return false;
  pick.checked = !pick.checked;
  last = pick;
  showPicked();
  return true;
}

function tick() {
  for (const each of document.querySelectorAll("[data-undo-until]")) {
    each.dataset.ends ??= String(Date.now() + Number(each.dataset.undoUntil) * 1000);
    const left = Math.ceil((Number(each.dataset.ends) - Date.now()) / 1000);
    const number = each.querySelector("[data-left]");
    if (number) number.textContent = String(Math.max(left, 0));
    if (left <= 0) each.hidden = true;
  }
}

document.addEventListener("click", onClick);
document.addEventListener("retoma:picked", showPicked);
for (const each of document.querySelectorAll("#batch-bar [data-scripted]")) each.hidden = false;
showPicked();
tick();
setInterval(tick, 250);
