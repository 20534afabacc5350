// The card of the segment map: what is known of the layer that the pointer or the keyboard is at.
// The same is in the table below and in the names of the layers: without scripts nothing is lost.
"use strict";

{
  const card = document.createElement("div");
  card.className = "segment-card";
  card.hidden = true;
  let shown = null;

  function rowsOf(file) {
    return [...document.querySelectorAll("tr[data-file]")].filter((row) => row.dataset.file === file);
  }

  function mark(file, isOn) {
    for (const row of rowsOf(file)) row.classList.toggle("is-told", isOn);
  }

  function tell(segment) {
    hide();
    shown = segment;
    card.replaceChildren(...segment.getAttribute("aria-label").split("\n").map((line) => {
      const told = document.createElement("p");
      told.textContent = line;
      return told;
    }));
    document.body.append(card); // not into the picture: that is compared with the next one
    card.hidden = false;
    segment.classList.add("is-told");
    mark(segment.dataset.file, true);
    const place = segment.querySelector(".m-touch").getBoundingClientRect();
    const width = document.documentElement.clientWidth;
    const fits = place.bottom + 8 + card.offsetHeight <= window.innerHeight;
    const top = fits ? place.bottom + 8 : Math.max(place.top - card.offsetHeight - 8, 4);
    card.style.left = window.scrollX + Math.max(Math.min(place.left + 24, width - card.offsetWidth - 8), 4) + "px";
    card.style.top = window.scrollY + top + "px";
  }

  function hide() {
    if (!shown) return;
    shown.classList.remove("is-told");
    mark(shown.dataset.file, false);
    shown = null;
    card.hidden = true;
  }

  function segmentAt(event) {
    return event.target instanceof Element ? event.target.closest(".segment") : null;
  }

  document.addEventListener("pointerover", (event) => {
    const segment = segmentAt(event);
    if (segment) tell(segment);
    else if (shown && !shown.contains(document.activeElement)) hide();
  });
  document.addEventListener("focusin", (event) => {
    const segment = segmentAt(event);
    if (segment) tell(segment);
    else hide();
  });
  document.addEventListener("focusout", hide);
  // The picture may be another one now: then the card is of the same file in it, if that is still there.
  document.addEventListener("lamina:live", () => {
    if (!shown) return;
    if (shown.isConnected) {
      mark(shown.dataset.file, true);
      return;
    }
    const file = shown.dataset.file;
    hide();
    const again = [...document.querySelectorAll(".segment")].find((one) => one.dataset.file === file && one.getClientRects().length);
    if (again) tell(again);
  });

  // Up and down go from layer to layer; only one of them is on the way of the Tab key.
  document.addEventListener("keydown", (event) => {
    const segment = segmentAt(event);
    if (!segment) return;
    const all = [...segment.closest("svg").querySelectorAll(".segment")];
    const at = all.indexOf(segment);
    const next = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "Escape") segment.blur();
    if (next === undefined || !all[next]) return;
    event.preventDefault();
    segment.setAttribute("tabindex", "-1");
    all[next].setAttribute("tabindex", "0");
    all[next].focus();
  });
}
