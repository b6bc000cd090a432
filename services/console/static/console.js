// The palette (Ctrl-K), texts to copy, the length of a tail, and what an open page says when the console itself does not answer.
"use strict";

const palette = document.getElementById("palette");
const text = document.getElementById("palette-text");
const named = [...palette.querySelectorAll("a[data-before]")]; // links to what the text names
const items = [...palette.querySelectorAll("li")].filter((item) => !named.includes(item.firstElementChild));

function open() {
  if (palette.open) return;
  text.value = "";
  filter();
  palette.showModal();
  text.focus();
}

function filter() {
  const wanted = text.value.trim();
  for (const item of items) item.hidden = !item.textContent.toLowerCase().includes(wanted.toLowerCase());
  for (const link of named) {
    link.parentElement.hidden = !wanted;
    link.querySelector("b").textContent = wanted;
    link.href = link.dataset.before + encodeURIComponent(wanted);
  }
}

function shown() {
  return [...palette.querySelectorAll("li:not([hidden]) a")];
}

document.getElementById("open-palette").addEventListener("click", open);
text.addEventListener("input", filter);
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    open();
  }
});
palette.addEventListener("keydown", (event) => {
  const links = shown();
  const at = links.indexOf(document.activeElement);
  if (event.key === "Enter" && document.activeElement === text) {
    event.preventDefault();
    links[0]?.click();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    const next = event.key === "ArrowDown" ? at + 1 : at - 1;
    (links[next] ?? (next < 0 ? text : links.at(-1))).focus();
  }
});
palette.addEventListener("click", (event) => {
  if (event.target === palette) palette.close();
});

const trouble = document.getElementById("trouble");
document.body.addEventListener("htmx:sseError", () => {
  trouble.textContent = "The console does not answer: this page shows the past.";
});
document.body.addEventListener("htmx:sseOpen", () => {
  trouble.textContent = "";
});
document.body.addEventListener("htmx:responseError", (event) => {
  trouble.textContent = `The page could not be loaded again (${event.detail.xhr.status}): it shows the past.`;
});

// A page that updates itself keeps its forms, in which somebody may write: until other forms or links belong to its state.
function offers(part) {
  return [...part.querySelectorAll("form, a")].map((each) => each.getAttribute("action") ?? each.href).join("\n");
}
document.body.addEventListener("htmx:beforeSwap", (event) => {
  if (event.target.id !== "found" || !event.detail.shouldSwap) return;
  const page = new DOMParser().parseFromString(event.detail.serverResponse, "text/html");
  for (const id of ["links", "last"]) {
    const [now, next] = [document.getElementById(id), page.getElementById(id)];
    if (now && next && offers(now) !== offers(next)) now.replaceWith(next);
  }
});

const MOST_ROWS = 200; // of a tail: older ones leave the page, not the topic
document.body.addEventListener("htmx:sseMessage", (event) => {
  if (event.target.id !== "records") return;
  while (event.target.rows.length > MOST_ROWS) event.target.deleteRow(-1);
});
for (const button of document.querySelectorAll("button[data-copy]")) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text); // the browser gives no clipboard here: Ctrl-C does
      button.textContent = "Selected: press Ctrl-C";
    }
    setTimeout(() => { button.textContent = label; }, 3000);
  });
}
