// Shows only the reasons and fields that the step can follow to which the work is sent back. Others are not sent.

import { onShown } from "./shown.js";

function showFor(form, step) {
  for (const part of document.querySelectorAll("[data-steps]")) {
    const control = part.querySelector("input, textarea, select");
    if (control?.form !== form) continue;
    const isUseful = part.dataset.steps.split(" ").includes(step);
    part.hidden = !isUseful;
    for (const each of part.querySelectorAll("input, textarea, select")) each.disabled = !isUseful;
  }
}

onShown("input[name=to]", (target) => {
  const update = () => { if (target.checked || target.type === "hidden") showFor(target.form, target.value); };
  target.addEventListener("change", update);
  update();
});
