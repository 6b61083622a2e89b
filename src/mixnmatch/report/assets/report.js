"use strict";
(() => {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const tip = document.getElementById("tip");
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Controls only work with this script, so it is the script that shows them.
  for (const controls of all(".controls")) controls.hidden = false;
  document.documentElement.classList.add("scripted");

  // Tables that are wider than the screen say so.
  const cue = (region) => {
    const wide = region.scrollWidth > region.clientWidth + 1;
    region.classList.toggle("scrolls", wide);
    const before = region.previousElementSibling;
    const there = before?.classList.contains("more") ? before : null;
    if (wide && !there) {
      const note = document.createElement("p");
      note.className = "more";
      note.textContent = "Scroll sideways for more columns →";
      region.before(note);
    } else if (!wide && there) there.remove();
  };
  const cues = new ResizeObserver((entries) => entries.forEach((entry) => cue(entry.target)));
  for (const region of all(".scroll")) {
    cue(region);
    cues.observe(region);
  }

  // Values under the pointer.
  const hiddenSeries = new Set();
  const place = (svg, event) => {
    const box = svg.getBoundingClientRect();
    const view = svg.viewBox.baseVal;
    const scale = view.width / box.width;
    return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale, box, scale };
  };
  const clear = (svg) => {
    svg.querySelector(".cursor").replaceChildren();
    tip.hidden = true;
  };
  const draw = (svg, name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    svg.querySelector(".cursor").append(made);
  };
  const show = (svg, figure, event) => {
    const at = place(svg, event);
    let best = null, distance = Infinity;
    for (const point of figure.points) {
      if (hiddenSeries.has(point[2])) continue;
      const d = figure.hair ? Math.abs(point[0] - at.x) : Math.hypot(point[0] - at.x, point[1] - at.y);
      if (d < distance) { best = point; distance = d; }
    }
    if (!best || distance > (figure.hair ? 24 : 40)) { clear(svg); return; }
    const [x, y, series, text] = best;
    svg.querySelector(".cursor").replaceChildren();
    if (figure.hair) draw(svg, "line", { x1: x, x2: x, y1: figure.hair[0], y2: figure.hair[1], class: "hair" });
    draw(svg, "circle", { cx: x, cy: y, r: 6, class: `ring ${series}` });
    tip.replaceChildren();
    text.split("|").forEach((part, k) => {
      const row = document.createElement(k === 0 ? "strong" : "span");
      row.textContent = part;
      tip.append(row);
    });
    tip.hidden = false;
    const left = at.box.left + x / at.scale, top = at.box.top + y / at.scale;
    const width = tip.offsetWidth, height = tip.offsetHeight;
    const over = top - height - 14 > 4 ? top - height - 14 : top + 18;
    tip.style.left = `${Math.max(6, Math.min(left - width / 2, document.documentElement.clientWidth - width - 6))}px`;
    tip.style.top = `${over}px`;
  };
  for (const [name, figure] of Object.entries(data.hover)) {
    const svg = document.getElementById(name);
    if (!svg) continue;
    for (const kind of ["pointermove", "pointerdown"]) svg.addEventListener(kind, (event) => show(svg, figure, event));
    svg.addEventListener("pointerleave", () => clear(svg));
  }
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // What the reliability diagrams show.
  for (const box of all("input[id^=show-]")) {
    const apply = () => {
      for (const pair of all(".pair")) pair.dataset[box.id.slice("show-".length)] = box.checked ? "on" : "off";
    };
    box.addEventListener("change", apply);
    apply();
  }

  // Which methods are listed.
  for (const only of all("#preserving-only")) {
    const apply = () => {
      for (const row of all("#methods-table tbody tr")) row.hidden = only.checked && row.dataset.preserving !== "yes";
    };
    only.addEventListener("change", apply);
    apply();
  }

  // Columns that sort.
  const key = (row, column, kind) => {
    const cell = row.cells[column];
    if (!cell) return null;
    if (kind === "text") return cell.textContent.trim().toLowerCase();
    return cell.dataset.value ? Number(cell.dataset.value) : null;
  };
  for (const table of all("table[id]")) {
    const heads = all("th[data-sort]", table);
    for (const head of heads) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      const arrow = document.createElement("span");
      arrow.className = "arrow";
      arrow.setAttribute("aria-hidden", "true");
      button.append(arrow);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0], kind = head.dataset.sort, column = head.cellIndex;
        const rows = [...body.rows].map((row) => [key(row, column, kind), row]);
        rows.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);
          return (a < b ? -1 : a > b ? 1 : 0) * (up ? 1 : -1);
        });
        body.append(...rows.map(([, row]) => row));
      });
    }
  }

  // The learning curve: which measure, which methods.
  for (const radio of all("input[name=measure]")) {
    const apply = () => {
      if (!radio.checked) return;
      for (const part of all(".measure")) part.hidden = part.dataset.measure !== radio.value;
    };
    radio.addEventListener("change", apply);
    apply();
  }
  for (const box of all("input[id^=series-]")) {
    const apply = () => {
      hiddenSeries[box.checked ? "delete" : "add"](box.value);
      for (const group of all(`.series[data-series=${box.value}]`)) group.toggleAttribute("hidden", !box.checked);
    };
    box.addEventListener("change", apply);
    apply();
  }
})();
