// Runs a function for each element that comes to the page: on load, and whenever another part of the page was swapped in.

export function onShown(selector, start) {
  const run = (root) => {
    for (const place of root.querySelectorAll(selector)) {
      const mark = `started${selector.replace(/\W/g, "")}`;
      if (place.dataset[mark]) continue;
      place.dataset[mark] = "yes";
      start(place);
    }
  };
  run(document);
  document.addEventListener("retoma:shown", (event) => run(event.target.parentElement ?? document));
}
