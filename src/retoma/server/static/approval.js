// Approve is off, and says why, while an answer of the review's own form is missing or does not fit.

const getForm = () => document.getElementById("decision");
const getButton = () => document.querySelector("[data-do=approve]");

// An edit has such fields too, but an approval does not take them.
function findInvalid() {
  if (!getForm()?.hasAttribute("data-answers")) return undefined;
  return [...getForm().elements].find((each) => each.name.startsWith("value.") && each.willValidate && !each.validity.valid);
}

function getName(control) {
  const group = control.type === "radio" ? document.getElementById(control.closest("[role=radiogroup]")?.getAttribute("aria-labelledby")) : null;
  return (group ?? control.labels?.[0])?.textContent.trim() ?? "";
}

// Turns Approve on or off. The button stays reachable: it leads to the answer.
export function checkApproval() {
  const [button, why] = [getButton(), document.getElementById("approve-why")];
  if (!button || !why) return;
  const invalid = findInvalid();
  if (invalid) button.setAttribute("aria-disabled", "true");
  else if (!why.hidden) button.removeAttribute("aria-disabled");
  const text = invalid ? why.dataset.text.replace("{field}", getName(invalid)) : "";
  if (why.lastElementChild.textContent !== text) why.lastElementChild.textContent = text;
  why.hidden = !invalid;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-do=approve][aria-disabled=true]");
  if (!button) return;
  event.preventDefault();
  const invalid = findInvalid();
  invalid?.focus({ preventScroll: true });
  (invalid?.closest("label, .field") ?? invalid)?.scrollIntoView({ block: "center" });
});
for (const kind of ["input", "change"]) document.addEventListener(kind, (event) => { if (event.target.form === getForm()) checkApproval(); });
