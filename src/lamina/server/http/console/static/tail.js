// A live tail: messages of a topic as they come, the newest on top. What messages hold is put in as text, never as HTML.
"use strict";

(() => {
  const MOST = 500;
  const table = document.getElementById("tail");
  const rows = document.getElementById("tail-rows");
  const state = document.getElementById("tail-state");
  const pause = document.getElementById("tail-pause");
  const clear = document.getElementById("tail-clear");
  const filter = document.getElementById("tail-filter");
  if (!table || !rows) return;

  const name = table.dataset.name;
  let source = null;
  let cursor = table.dataset.after;
  let since = table.dataset.since;
  let isPaused = false;
  let seen = null; // the batch before: when it came, and how many had been published then

  const count = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
  const number = (value) => count.format(value).replaceAll(",", "\u202f");

  function made(tag, text, kind) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  }

  function size(bytes) {
    if (bytes < 1024) return `${bytes} B`;
    const units = ["KiB", "MiB", "GiB"];
    let at = -1;
    do { bytes /= 1024; at += 1; } while (bytes >= 1024 && at < units.length - 1);
    return `${bytes.toFixed(1)} ${units[at]}`;
  }

  function time(ns) {
    if (ns === null) return "–";
    // Rounded: a number is not fine enough for nanoseconds here, and ids are of whole milliseconds.
    return new Date(Math.round(ns / 1e6)).toISOString().replace("T", " ").replace("Z", " UTC");
  }

  function fields(entry) {
    const cell = made("td", undefined, "name");
    const all = cell.appendChild(made("div", undefined, "fields"));
    for (const field of entry.fields) {
      const one = all.appendChild(made("span", undefined, "field"));
      one.append(made("b", field.name), " ");
      one.append(made("span", field.value.text ?? field.value.base64 ?? "", "mono"));
      if (field.value.is_cut) one.append(made("small", `… of ${size(field.value.size)}`));
      if (field.value.text === null) one.append(" ", made("small", "base 64"));
    }
    if (entry.more_fields) all.append(made("small", `and ${number(entry.more_fields)} more fields`));
    return cell;
  }

  function row(entry) {
    const line = made("tr");
    line.append(made("td", time(entry.time_ns), "moment"));
    const id = line.appendChild(made("td", undefined, "mono"));
    const link = id.appendChild(made("a", entry.id));
    link.href = "/topics/entry?" + new URLSearchParams({ name, id: entry.id });
    line.append(fields(entry), made("td", size(entry.size), "number"));
    line.hidden = !fits(line);
    return line;
  }

  function note(text) {
    const line = made("tr", undefined, "skipped");
    const cell = line.appendChild(made("td", text, "faint"));
    cell.colSpan = 4;
    return line;
  }

  const fits = (line) => !filter.value || line.textContent.toLowerCase().includes(filter.value.toLowerCase());

  function show(batch) {
    document.getElementById("tail-none")?.remove();
    const now = performance.now();
    if (batch.is_anew) rows.prepend(note("The topic was deleted, or made anew."));
    if (batch.skipped === null) rows.prepend(note("There are more before these: look at the messages of that time."));
    else if (batch.skipped) rows.prepend(note(`${number(batch.skipped)} more came and are not shown.`));
    for (const entry of batch.rows) rows.prepend(row(entry));
    while (rows.childElementCount > MOST) rows.lastElementChild.remove();
    const rate = seen && now > seen.at ? ((batch.added - seen.added) * 1000) / (now - seen.at) : 0;
    seen = { at: now, added: batch.added };
    say(`${number(batch.length)} messages there${rate > 0 ? `, ${number(rate < 10 ? rate : Math.round(rate))} a second` : ""}`);
  }

  function say(text) {
    state.textContent = text;
  }

  function follow() {
    const asked = new URLSearchParams({ name });
    if (cursor) asked.set("after", cursor);
    else if (since) asked.set("since", since);
    source = new EventSource("/live/tail?" + asked);
    source.addEventListener("open", () => say("live"));
    source.addEventListener("rows", (event) => {
      cursor = event.lastEventId;
      show(JSON.parse(event.data));
    });
    source.addEventListener("problem", (event) => say(event.data));
    source.addEventListener("gone", (event) => {
      stop();
      say(event.data);
      pause.disabled = true;
    });
    source.addEventListener("error", async () => {
      const why = await whyRefused(source);
      say(why ? `${why.message}; ${why.hint}` : "the server does not answer; it is tried again");
    });
  }

  function stop() {
    source?.close();
    source = null;
    seen = null;
  }

  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause";
    if (isPaused) {
      stop();
      say("paused");
    } else follow();
  });
  clear.addEventListener("click", () => rows.replaceChildren());
  filter.addEventListener("input", () => {
    for (const line of rows.children) if (!line.classList.contains("skipped")) line.hidden = !fits(line);
  });
  // A tab that nobody looks at asks for nothing, and goes on where it was.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stop();
    else if (!source && !isPaused && !pause.disabled) follow();
  });
  if (!document.hidden) follow();
})();
