// What makes a page live: the block "live" comes anew from the server and replaces the one that is shown.
// Nothing here is needed to read a page or to act on it: without scripts it is a page that stands still.
"use strict";

const live = document.querySelector("[data-live]");
const pulse = document.getElementById("pulse");

function say(text) {
  if (pulse) pulse.textContent = text;
}

// Replace what changed, keep what did not: so that a selection, an open <details> or a place that was scrolled to
// stays as it was. Parts are told apart by their id.
function replace(shown, html) {
  const next = document.createElement("template");
  next.innerHTML = html;
  const parts = [...next.content.querySelectorAll("[id]")].filter((part) => !part.parentElement?.closest("[id]"));
  const isSame = parts.length > 0 && parts.every((part) => document.getElementById(part.id));
  if (!isSame) {
    shown.replaceChildren(next.content);
    return;
  }
  for (const part of parts) {
    const old = document.getElementById(part.id);
    if (old.contains(document.activeElement) && document.activeElement !== document.body) continue;
    if (old.outerHTML !== part.outerHTML) {
      const opened = [...old.querySelectorAll("details[open][id]")].map((one) => one.id);
      old.replaceWith(part);
      for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    }
  }
  document.dispatchEvent(new CustomEvent("lamina:live"));
}

function follow() {
  const source = new EventSource("/live" + location.pathname + location.search);
  source.addEventListener("live", (event) => {
    replace(live, event.data);
    say("live");
  });
  source.addEventListener("problem", (event) => say(event.data));
  source.addEventListener("gone", () => {
    source.close();
    location.reload();
  });
  source.addEventListener("error", () => say("the server does not answer"));
  return source;
}

if (live && !live.hasAttribute("data-still")) {
  // A tab that nobody looks at asks for nothing.
  let source = document.hidden ? null : follow();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      source?.close();
      source = null;
    } else if (!source) {
      source = follow();
    }
  });
}

// Where the menu is a row that can be moved, what is open is in sight.
const menu = document.querySelector("nav");
const chosen = menu?.querySelector("[aria-current]");
if (chosen) menu.scrollLeft = chosen.offsetLeft - (menu.clientWidth - chosen.offsetWidth) / 2;

// Keys: g and a letter lead to a page, / to the first search field.
const places = { o: "/", l: "/log", j: "/jobs", t: "/topics", q: "/queues", s: "/store", p: "/pipeline", r: "/recovery", e: "/settings", a: "/audit" };
let began = false;
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    const field = document.querySelector("input[type=search]");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  } else if (event.key === "g") {
    began = true;
    setTimeout(() => { began = false; }, 1500);
  } else if (began && places[event.key]) {
    location.href = places[event.key];
  }
});
