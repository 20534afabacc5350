// Values of a chart under the pointer, or one by one with the arrow keys on a chart that has the focus.
// The server draws the charts (charts.py); what is added here stays when a live page draws them anew.
"use strict";

{
  const SVG = "http://www.w3.org/2000/svg";
  // Which chart is read, and where: by the place of the pointer (a part of the width) or by a value's number.
  let reading = null;

  function figures(value) {
    const size = Math.abs(value);
    if (size >= 100 || value === Math.round(value)) return value.toFixed(0);
    return String(Number(value.toFixed(size >= 10 ? 1 : size >= 0.1 ? 2 : 3)));
  }

  function scaled(value, steps, last) {
    const size = Math.abs(value);
    for (const [factor, name] of steps) if (size >= factor * 0.9995) return figures(value / factor) + name;
    return value === 0 ? "0" : last(value);
  }

  const THIN = "\u202f";
  const NUMBERS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const SECONDS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"]].map(([f, n]) => [f, THIN + n]);
  const BYTES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]].map(([f, n]) => [f, THIN + n]);
  const show = {
    count: (value) => scaled(value, NUMBERS, figures),
    rate: (value) => (value === 0 ? "0" : scaled(value, NUMBERS, figures) + "/s"),
    seconds: (value) => scaled(value, SECONDS, (left) => figures(left / 1e-6) + THIN + "µs"),
    bytes: (value) => scaled(value, BYTES, (left) => figures(left) + THIN + "B"),
    percent: (value) => figures(value) + THIN + "%",
  };

  function read(plot) {
    const data = plot.dataset;
    return {
      start: Number(data.start), step: Number(data.step), count: Number(data.count), top: Number(data.top),
      show: show[data.unit] || String, names: data.names.split("\n"), colours: data.colours.split(" "),
      lines: data.values.split(";").map((line) => line.split(",").map((one) => (one === "" ? null : Number(one)))),
    };
  }

  function add(parent, kind, attributes) {
    const made = document.createElementNS(SVG, kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    parent.append(made);
  }

  function clear(plot) {
    plot.querySelector("svg > .hover")?.remove();
    const told = plot.querySelector(".values");
    if (told) told.hidden = true;
  }

  function draw(plot) {
    const chart = read(plot);
    const svg = plot.querySelector("svg");
    if (reading.place === null) reading.place = Math.round(reading.across * (chart.count - 1));
    const place = Math.min(Math.max(reading.place, 0), chart.count - 1);
    clear(plot);
    const height = Number(svg.getAttribute("height"));
    const x = (100 * place) / (chart.count - 1) + "%";
    const hover = document.createElementNS(SVG, "g");
    hover.setAttribute("class", "hover");
    add(hover, "line", { x1: x, x2: x, y1: 0, y2: height });
    let told = plot.querySelector(".values");
    if (!told) {
      told = document.createElement("div");
      told.className = "values";
      told.setAttribute("role", "status");
      plot.append(told);
    }
    const moment = new Date((chart.start + place * chart.step) * 1000).toISOString();
    const head = document.createElement("strong");
    head.textContent = moment.slice(0, 10) + " " + moment.slice(11, 19);
    told.replaceChildren(head);
    chart.lines.forEach((line, at) => {
      const value = line[place] ?? null;
      if (value !== null) {
        const y = height * (1 - Math.min(Math.max(value / chart.top, 0), 1));
        add(hover, "circle", { class: chart.colours[at], cx: x, cy: y, r: 3.5 });
      }
      const row = document.createElement("span");
      row.className = "row " + chart.colours[at];
      const name = document.createElement("span");
      name.textContent = chart.names[at];
      const shown = document.createElement("b");
      shown.textContent = value === null ? "–" : chart.show(value);
      row.append(name, shown);
      told.append(row);
    });
    svg.append(hover);
    told.hidden = false;
    // Beside the line, on the side where there is room.
    const box = svg.getBoundingClientRect();
    const outer = plot.getBoundingClientRect();
    const at = box.left - outer.left + (box.width * place) / (chart.count - 1);
    const isLeft = at > outer.width / 2;
    told.style.left = isLeft ? "auto" : at + 10 + "px";
    told.style.right = isLeft ? outer.width - at + 10 + "px" : "auto";
  }

  function leave() {
    if (!reading) return;
    const plot = document.getElementById(reading.id)?.querySelector(".plot");
    reading = null;
    if (plot) clear(plot);
  }

  document.addEventListener("pointermove", (event) => {
    const plot = event.target.closest?.(".plot");
    if (!plot) {
      if (reading && !reading.byKeys) leave();
      return;
    }
    const id = plot.parentElement.id;
    if (reading && reading.id !== id) leave();
    const box = plot.querySelector("svg").getBoundingClientRect();
    const across = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    reading = { id, across, place: null, byKeys: false };
    draw(plot);
    reading.place = null; // drawn anew, it is what is then below the pointer
  });
  document.documentElement.addEventListener("pointerleave", leave);

  document.addEventListener("keydown", (event) => {
    const plot = event.target.closest?.(".plot");
    if (!plot || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return leave();
    const last = Number(plot.dataset.count) - 1;
    const page = Math.max(Math.round(last / 12), 1);
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const id = plot.parentElement.id;
    const isNew = !reading || reading.id !== id || reading.place === null;
    if (isNew) leave();
    const from = isNew ? (steps[event.key] < 0 ? last + 1 : last) : reading.place;
    reading = { id, across: 0, place: Math.min(Math.max(from + steps[event.key], 0), last), byKeys: true };
    draw(plot);
  });
  document.addEventListener("focusout", (event) => {
    if (event.target.closest?.(".plot") && reading?.byKeys) leave();
  });

  document.addEventListener("lamina:live", () => {
    if (!reading) return;
    const plot = document.getElementById(reading.id)?.querySelector(".plot");
    if (!plot) {
      reading = null;
    } else if (!plot.querySelector(".hover")) {
      draw(plot);
      if (!reading.byKeys) reading.place = null;
    }
  });
}
