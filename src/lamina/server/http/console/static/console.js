// What makes a page live: the block "live" comes anew from the server and replaces the one that is shown.
// Nothing here is needed to read a page or to act on it: without scripts it is a page that stands still.
"use strict";

const live = document.querySelector("[data-live]");
const pulse = document.getElementById("pulse");

function say(text) {
  if (pulse) pulse.textContent = text;
}

// Replace what changed, keep what did not: so that an open <details> or a place that was scrolled to stays as it was.
// Parts are told apart by their id. One in which text is marked, or a field is being filled in, waits.
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
    if (isHeld(old)) continue;
    if (old.outerHTML !== part.outerHTML) {
      const opened = [...old.querySelectorAll("details[open][id]")].map((one) => one.id);
      const scrolled = [...old.querySelectorAll(".table")].map((one) => one.scrollLeft);
      const again = focusIn(old);
      old.replaceWith(part);
      for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
      part.querySelectorAll(".table").forEach((one, at) => { one.scrollLeft = scrolled[at] ?? 0; });
      again(part);
    }
  }
  document.dispatchEvent(new CustomEvent("lamina:live"));
}

function isHeld(part) {
  const marked = document.getSelection();
  if (marked && !marked.isCollapsed && (part.contains(marked.anchorNode) || part.contains(marked.focusNode))) return true;
  const active = document.activeElement;
  return part.contains(active) && active.matches("input, select, textarea");
}

// What has the focus has it afterwards, too: the same link, or what stands in its place.
function focusIn(part) {
  const active = document.activeElement;
  if (!active || active === document.body || !part.contains(active)) return () => {};
  const kind = "a[href], summary, [tabindex]";
  const same = (one) => ["href", "id", "data-file"].every((name) => one.getAttribute(name) === active.getAttribute(name));
  const alike = (within) => [...within.querySelectorAll(kind)].filter((one) => one.getClientRects().length);
  const at = alike(part).indexOf(active);
  return (next) => {
    const found = alike(next);
    const again = found.find(same) || (active.hasAttribute("href") ? null : found[at]);
    if (again?.getAttribute("tabindex") === "-1") again.setAttribute("tabindex", "0");
    again?.focus({ preventScroll: true });
  };
}

// How the server is: the word beside the name, what is broken, and a sign in the title for a tab that is far away.
const title = document.title;
function tellState(html) {
  const next = document.createElement("template");
  next.innerHTML = html;
  for (const part of next.content.querySelectorAll("#phase, #problems")) {
    const old = document.getElementById(part.id);
    if (old && old.outerHTML !== part.outerHTML) old.replaceWith(part);
  }
  warn(document.querySelector("#problems p") !== null);
}

function warn(isSo) {
  document.title = (isSo ? "(!) " : "") + title;
}

function lost() {
  say("the server does not answer");
  const phase = document.getElementById("phase");
  if (phase) {
    phase.className = "phase phase-failed";
    phase.textContent = "no answer";
  }
  warn(true);
}

// An EventSource that was refused for good does not say why: ask once more, for the reason alone.
async function whyRefused(source) {
  if (source.readyState !== EventSource.CLOSED) return null;  // it tries again by itself
  const stop = new AbortController();
  try {
    const answer = await fetch(source.url, { signal: stop.signal });
    return answer.status === 503 ? (await answer.json()).error : null;
  } catch {
    return null;
  } finally {
    stop.abort();
  }
}

function follow() {
  const source = new EventSource("/live" + location.pathname + location.search);
  source.addEventListener("live", (event) => {
    replace(live, event.data);
    say("live");
  });
  source.addEventListener("state", (event) => tellState(event.data));
  source.addEventListener("problem", (event) => say(event.data));
  source.addEventListener("gone", () => {
    source.close();
    location.reload();
  });
  source.addEventListener("error", async () => {
    const why = await whyRefused(source);
    if (why) say(`this page stands still: ${why.message}; ${why.hint}`);
    else lost();
  });
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
