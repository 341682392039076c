// Copy buttons on code, and a line above each table that is wider than the page.
"use strict";

/** The lines to copy: of a console session its commands alone. */
function commands(pre) {
  const lines = pre.textContent.trimEnd().split("\n");
  const typed = lines.filter((line) => line.startsWith("$ ")).map((line) => line.slice(2));
  return (typed.length ? typed : lines).join("\n");
}

function addCopyButton(pre) {
  const button = document.createElement("button");
  button.className = "copy";
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(commands(pre));
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(pre); // no clipboard, as on a page opened from a file
      button.textContent = "Press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  pre.parentElement.append(button);
}

function markWide() {
  for (const box of document.querySelectorAll("article .table-wrapper")) {
    const wide = box.scrollWidth > box.clientWidth + 1;
    let note = box.previousElementSibling;
    if (!note?.classList.contains("more")) {
      if (!wide) continue;
      note = document.createElement("p");
      note.className = "more";
      note.textContent = "This table is wider than the page: scroll it sideways \u2192";
      box.before(note);
      box.tabIndex = 0;
    }
    note.hidden = !wide;
  }
  for (const pre of document.querySelectorAll("article .highlight pre")) {
    pre.classList.toggle("cut", pre.scrollWidth > pre.clientWidth + 1);
  }
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("article .highlight pre").forEach(addCopyButton);
  markWide();
  addEventListener("resize", markWide);
});
