"use strict";
// Shows the chosen machine and case of a ladder; everything is on the page already.
for (const ladder of document.querySelectorAll("[data-ladder]")) {
  const show = (parent, kind, value) => {
    for (const part of parent.querySelectorAll(`:scope > [data-${kind}]`)) {
      part.hidden = part.dataset[kind] !== value;
    }
  };
  const machine = ladder.querySelector('[data-pick="machine"]');
  machine.addEventListener("change", () => show(ladder, "machine", machine.value));
  show(ladder, "machine", machine.value);
  for (const pick of ladder.querySelectorAll('[data-pick="case"]')) {
    const parent = pick.closest("[data-machine]");
    pick.addEventListener("change", () => show(parent, "case", pick.value));
    show(parent, "case", pick.value);
  }
}
// A link to a rung opens it.
const open = () => {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
};
addEventListener("hashchange", open);
open();
const save = document.getElementById("save");
save.hidden = false;
save.addEventListener("click", () => {
  const text = document.getElementById("figures").textContent;
  save.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
});
