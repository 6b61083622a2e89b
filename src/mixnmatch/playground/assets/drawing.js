// Reliability diagrams as SVG, in the style of the report.

const SVG = "http://www.w3.org/2000/svg";
const MAIN = { left: 46, top: 34, width: 360, height: 340 }, SHARES = { left: 46, top: 402, width: 360, height: 64 };
const TICKS = [0, 0.2, 0.4, 0.6, 0.8, 1];
// Points of a stretch of a curve that are drawn.
const MOST_POINTS = 200;

export const element = (name, attributes = {}, ...children) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

const x = (panel, value) => +(panel.left + value * panel.width).toFixed(2);
const y = (panel, value) => +(panel.top + (1 - value) * panel.height).toFixed(2);
const path = (panel, points) => points.map(([a, b], k) => `${k ? "L" : "M"}${x(panel, a)} ${y(panel, b)}`).join("");
const text = (content, at, down, attributes) => element("text", { x: at, y: down, ...attributes }, content);

const axes = (xTitle, yTitle) => {
  const made = [];
  for (const tick of TICKS) {
    const across = x(MAIN, tick), down = y(MAIN, tick), bottom = SHARES.top + SHARES.height;
    made.push(
      element("line", { x1: across, x2: across, y1: MAIN.top, y2: bottom, class: "grid" }),
      text(String(tick), across, bottom + 17, { "text-anchor": "middle", class: "tick" }),
      element("line", { x1: MAIN.left, x2: MAIN.left + MAIN.width, y1: down, y2: down, class: "grid" }),
      text(String(tick), MAIN.left - 7, down + 4.5, { "text-anchor": "end", class: "tick" }),
    );
  }
  made.push(
    text(xTitle, MAIN.left + MAIN.width / 2, SHARES.top + SHARES.height + 36, { "text-anchor": "middle", class: "axis" }),
    text(yTitle, 2, MAIN.top - 10, { class: "axis" }),
    text("Share of the samples", SHARES.left, SHARES.top - 7, { class: "tick" }),
    element("path", { d: path(MAIN, [[0, 0], [1, 1]]), class: "diagonal" }),
  );
  return made;
};

// Stretches of a curve that have samples within reach of its kernel.
const stretches = (points) => {
  const found = [[]];
  for (const point of points) {
    if (point.supported) found[found.length - 1].push(point);
    else if (found[found.length - 1].length) found.push([]);
  }
  return found.filter((stretch) => stretch.length);
};

const thinned = (points) => {
  const step = Math.max(1, Math.ceil(points.length / MOST_POINTS));
  return points.filter((_, k) => k % step === 0 || k === points.length - 1);
};

const curveParts = (points, which) => stretches(points).flatMap((stretch) => {
  const kept = thinned(stretch);
  const line = kept.map((point) => [point.confidence, point.value]);
  const upper = kept.map((point) => [point.confidence, point.high]);
  const lower = kept.map((point) => [point.confidence, point.low]).reverse();
  return [
    element("path", { d: `${path(MAIN, [...upper, ...lower])}Z`, class: `band fill-${which}` }),
    element("path", { d: path(MAIN, line), class: `curve line-${which}` }),
  ];
});

const binParts = (bins, which) => bins.flatMap((bin) => {
  const at = x(MAIN, bin.confidence);
  return [
    element("line", { x1: at, x2: at, y1: y(MAIN, bin.low), y2: y(MAIN, bin.high), class: `whisker line-${which}` }),
    element("circle", { cx: at, cy: y(MAIN, bin.value), r: 3.6, class: `bin line-${which}` }),
  ];
});

// Bars of the share of the samples in each bin, on a square-root scale: bins at the ends hold many times more.
const shareParts = (bins, which, binCount) => {
  const top = Math.sqrt(Math.max(...bins.map((bin) => bin.share)));
  const bars = bins.map((bin) => {
    const first = bin.index / binCount, height = (Math.sqrt(bin.share) / top) * SHARES.height;
    return element("rect", {
      x: x(SHARES, first) + 0.5, width: SHARES.width / binCount - 1, class: `density fill-${which}`,
      y: (SHARES.top + SHARES.height - height).toFixed(2), height: height.toFixed(2),
    });
  });
  const base = SHARES.top + SHARES.height;
  return [...bars, element("line", { x1: SHARES.left, x2: SHARES.left + SHARES.width, y1: base, y2: base, class: "baseline" })];
};

// A reliability diagram: kernel curve with its band, bins with intervals, and the shares of the samples.
export const reliabilityDiagram = ({ which, title, description, xTitle, yTitle, curve, bins, binCount }) => {
  const name = `reliability-${which}`;
  return element(
    "svg",
    { viewBox: "0 0 420 516", role: "img", id: name, class: "figure square", "aria-labelledby": `${name}-title ${name}-desc` },
    element("title", { id: `${name}-title` }, title),
    element("desc", { id: `${name}-desc` }, description),
    ...axes(xTitle, yTitle),
    ...curveParts(curve.points, which),
    element("g", { class: "bins" }, ...binParts(bins, which)),
    ...shareParts(bins, which, binCount),
  );
};
