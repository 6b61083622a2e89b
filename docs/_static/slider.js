// The slider of the page "What is calibration?": reliability of the embedded sample at the chosen temperature.
(() => {
  const place = document.getElementById("temperature-slider");
  const { steps, fitted } = TEMPERATURES;
  const percent = (x) => `${(100 * x).toFixed(1)}%`;
  const SIZE = 300;
  const BAR = 22;

  function bars({ confidence, accuracy, share }) {
    return confidence
      .map((z, k) => {
        const opacity = share[k] < 0.005 ? 0.35 : 1; // bins of few samples say little
        const [x, top] = [SIZE * z, SIZE * (1 - accuracy[k])];
        const gap = Math.abs(accuracy[k] - z) * SIZE;
        const from = SIZE * (1 - Math.max(accuracy[k], z));
        return (
          `<rect x="${x - BAR / 2}" y="${from}" width="${BAR}" height="${gap}" class="gap" opacity="${opacity}"/>` +
          `<circle cx="${x}" cy="${top}" r="5" class="dot" opacity="${opacity}"/>`
        );
      })
      .join("");
  }

  function show(k) {
    const step = steps[k];
    const state = Math.abs(step.mean - step.right) < 0.01 ? "about right" : step.mean > step.right ? "overconfident" : "underconfident";
    place.querySelector("svg g").innerHTML = bars(step);
    place.querySelector("output").textContent =
      `Temperature ${step.temperature.toFixed(2)}: mean confidence ${percent(step.mean)}, ` +
      `accuracy ${percent(step.right)} (${state}). ECE ${percent(step.error)}, log loss ${step.loss.toFixed(3)}.`;
  }

  const nearest = (t) =>
    steps.reduce((best, step, k) => (Math.abs(step.temperature - t) < Math.abs(steps[best].temperature - t) ? k : best), 0);
  const start = nearest(1);
  place.innerHTML =
    `<svg viewBox="-45 -10 ${SIZE + 60} ${SIZE + 60}" role="img" aria-label="Accuracy against confidence in ten bins">` +
    `<rect width="${SIZE}" height="${SIZE}" class="frame"/><line y1="${SIZE}" x2="${SIZE}" class="diagonal"/><g></g>` +
    [0, 0.5, 1]
      .map(
        (t) =>
          `<text x="${SIZE * t}" y="${SIZE + 18}" text-anchor="middle">${t}</text>` +
          `<text x="-8" y="${SIZE * (1 - t) + 4}" text-anchor="end">${t}</text>`,
      )
      .join("") +
    `<text x="${SIZE / 2}" y="${SIZE + 40}" text-anchor="middle">confidence</text>` +
    `<text transform="translate(-32 ${SIZE / 2}) rotate(-90)" text-anchor="middle">accuracy</text></svg>` +
    `<label>Temperature <input type="range" min="0" max="${steps.length - 1}" value="${start}"></label>` +
    `<button type="button">Set the fitted temperature</button><output></output>`;
  const input = place.querySelector("input");
  input.addEventListener("input", () => show(Number(input.value)));
  place.querySelector("button").addEventListener("click", () => {
    input.value = nearest(fitted);
    show(Number(input.value));
  });
  show(start);
})();
