// Fit on some samples and evaluate on others, so that no map is judged by the samples it was fitted on.

import { fitMap, temperatureMap } from "./maps.js";
import { change, histogramCurve, joined, kernelCurve, measures, outcomes } from "./measures.js";
import { highest, sum } from "./numbers.js";
import { foldOf } from "./table.js";

const FOLDS = 5;
// A gap between mean probability and class frequency is reported if chance makes one with this probability, and if it is
// at least this share of the frequency.
const LEVEL = 0.001, SHARE = 0.2;

// The parts of a table by the fold of each row: [{ calibration, evaluation }], one for halves, one a fold otherwise.
export const parts = (table, how) => {
  const count = how === "halves" ? 2 : FOLDS;
  const folds = Array.from({ length: table.n }, (_, row) => foldOf(row, count));
  const rows = (wanted) => table.rows([...folds.keys()].filter((row) => wanted(folds[row])));
  const held = how === "halves" ? [1] : [...Array(FOLDS).keys()].filter((fold) => folds.includes(fold));
  return held.map((fold) => ({ calibration: rows((own) => own !== fold), evaluation: rows((own) => own === fold) }));
};

// Fits a method to a table once; `evaluate` is then cheap enough to follow a slider.
export class Session {
  constructor(table, how) {
    this.table = table;
    this.how = how;
    this.parts = parts(table, how);
    this.before = joined(this.parts.map(({ evaluation }) => outcomes(evaluation, evaluation.probabilities, { before: true })));
    this.fits = new Map();
  }

  // Samples that the map of the file is fitted on: the calibration half, or all of them after cross-fitting.
  get calibration() {
    return this.how === "halves" ? this.parts[0].calibration : this.table;
  }

  // Fit a method to each calibration part. `pause` lets the browser breathe between fits.
  async fit(method, pause = async () => {}) {
    if (this.fits.has(method)) return;
    const maps = [];
    for (const { calibration } of this.parts) {
      await pause();
      maps.push(fitMap(method, calibration));
    }
    await pause();
    this.fits.set(method, { maps, final: this.how === "halves" ? maps[0] : fitMap(method, this.table) });
  }

  // What a method that was fitted does, or temperature scaling with a temperature set by hand.
  evaluate(method, temperature = null) {
    const { maps, final } = temperature === null ? this.fits.get(method) : this.byHand(1 / temperature);
    const after = joined(this.parts.map(({ evaluation }, k) => outcomes(evaluation, maps[k].predict(evaluation))));
    const { before } = this;
    return {
      map: final,
      before: { measures: measures(before), curve: kernelCurve(before), bins: histogramCurve(before), sure: sureShare(before) },
      after: { measures: measures(after), curve: kernelCurve(after), bins: histogramCurve(after), sure: sureShare(after) },
      changes: {
        accuracy: change(before.right, after.right),
        logLoss: change(before.logLoss, after.logLoss),
        brier: change(before.brier, after.brier),
      },
      notes: [...final.notes, ...oneClass(this.calibration), ...baseRate(final, this.calibration)],
    };
  }

  byHand(beta) {
    const maps = this.parts.map(({ calibration }) => temperatureMap(calibration, beta));
    return { maps, final: this.how === "halves" ? maps[0] : temperatureMap(this.table, beta) };
  }
}

// Of samples with a probability of at least 90%: how many there are, and for how many it came true.
const sureShare = ({ z, y }) => {
  let count = 0, right = 0;
  z.forEach((confidence, k) => {
    if (confidence < 0.9) return;
    count++;
    right += y[k];
  });
  return { count, share: right / count };
};

const oneClass = (table) => {
  const present = [...table.classCounts()].flatMap((count, k) => (count > 0 ? [k] : []));
  if (present.length > 1) return [];
  return [`All labels of the calibration samples are of class ${table.names[present[0]]}: nothing can be learned about the others.`];
};

const percent = (share) => `${+(100 * share).toPrecision(3)}%`;

// Upper quantile of the standard normal distribution (Abramowitz and Stegun 26.2.23), for a small probability.
const upperNormal = (probability) => {
  const t = Math.sqrt(-2 * Math.log(probability));
  return t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
};

// Do the calibrated probabilities have the class frequencies of the calibration samples as their mean?
const baseRate = (map, table) => {
  const { n, width } = table, p = map.predict(table), seen = table.classCounts();
  if (seen.filter((count) => count > 0).length < 2) return [];
  const expected = new Array(width).fill(0);
  p.forEach((value, k) => { expected[k % width] += value; });
  const total = sum(expected), far = upperNormal(LEVEL / 2 / width);
  const clear = expected.map((count, k) => {
    const mean = count / total, error = Math.sqrt(Math.max(n * mean * (1 - mean), 1)), gap = Math.abs(n * mean - seen[k]);
    return gap - 1 - far * error > 0 && gap >= SHARE * Math.min(seen[k], n - seen[k]) ? gap / error : 0;
  });
  if (!clear.some((size) => size > 0)) return [];
  const worst = width === 2 ? 1 : clear.indexOf(highest(clear));
  const why = map.accuracyPreserving ? "it keeps the predicted classes" : "it does not fit these data";
  return [
    `After calibration the mean probability of class ${table.names[worst]} is ${percent(expected[worst] / total)}, but ` +
      `${percent(seen[worst] / n)} of the calibration samples are of that class: the map cannot follow the class ` +
      `frequencies because ${why}. Use one with an intercept for each class, such as Platt or beta scaling.`,
  ];
};
