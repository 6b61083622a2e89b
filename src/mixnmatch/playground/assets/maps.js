// The calibration maps: how each is fitted to a table, what it gives for another, and what a map file says of it.

import { fitEnsemble } from "./ensemble.js";
import { fitSteps, madeStrict, valueOf } from "./isotonic.js";
import { applyLogistic, fitLogistic, problemClasses } from "./logistic.js";
import { TINY, nextFloat, softmaxRows, sum, winner } from "./numbers.js";
import { CERTIFIED } from "./solve.js";
import { fitBeta } from "./temperature.js";

// A fitted map has
//   name          short name, as in the library
//   predict       from a table to calibrated probabilities, row-major
//   parameters    lines for the page: [what, value]
//   type, fitted  class of the library and its fitted attributes, for the file
//   notes         what the user should know of this fit
// Maps that keep the predicted class in floating point are marked `accuracyPreserving`.

export const METHODS = {
  ts: { title: "Temperature scaling", fit: (table) => temperatureMap(table) },
  ets: { title: "Ensemble temperature scaling (ETS)", fit: (table) => ensembleMap(table) },
  platt: { title: "Platt scaling", fit: (table) => logisticMap(table, "platt") },
  beta: { title: "Beta scaling", fit: (table) => logisticMap(table, "beta") },
  isotonic: { title: "Isotonic regression", fit: (table) => isotonicMap(table) },
  irm: { title: "Multi-class isotonic regression (IRM)", fit: (table) => pooledIsotonicMap(table) },
};

export const fitMap = (name, table) => METHODS[name].fit(table);

// Temperature scaling, fitted or with an inverse temperature set by hand.
export const temperatureMap = (table, byHand = null) => {
  const floor = table.probabilityFloor();
  const fit = byHand === null ? fitBeta(table, floor) : { beta: byHand, loss: NaN, bound: null, residual: 0 };
  const predict = (other) => keepWinners(other, lifted(softmaxRows(other.logScores(floor), other.width, fit.beta)));
  const map = {
    name: "ts",
    type: "TemperatureScaling",
    accuracyPreserving: true,
    temperature: 1 / fit.beta,
    predict,
    parameters: [["temperature", 1 / fit.beta]],
    fitted: { beta_: fit.beta, probability_floor_: floor, loss_: fit.loss, bound_: fit.bound, backend_: "browser" },
    notes: convergence(fit.residual),
  };
  if (byHand !== null) map.fitted.loss_ = meanLogLoss(map.predict(table), table);
  if (fit.bound === "separable") {
    map.notes.push(
      "No label of the calibration samples is behind another class, so log loss would fall for ever as the temperature " +
        "goes to 0. It was set to what this many samples without an error allow.",
    );
  }
  if (fit.bound === "uniform") {
    map.notes.push("The scores say nothing about the labels, or the opposite: the temperature is as good as infinite.");
  }
  return map;
};

const ensembleMap = (table) => {
  const floor = table.probabilityFloor(), fit = fitEnsemble(table, floor), [w1, w2, w3] = fit.weights;
  const predict = (other) => {
    const x = other.logScores(floor), { width } = other;
    const out = lifted(softmaxRows(x, width, fit.beta)), plain = w2 > 0 ? lifted(softmaxRows(x, width)) : null;
    for (let k = 0; k < out.length; k++) out[k] = w1 * out[k] + (plain ? w2 * plain[k] : 0) + w3 / width;
    return keepWinners(other, lifted(out));
  };
  return {
    name: "ets",
    type: "EnsembleTemperatureScaling",
    accuracyPreserving: true,
    predict,
    parameters: [
      ["temperature of the free member", 1 / fit.beta],
      ["weight of the free member", w1],
      ["weight of the scores as they are", w2],
      ["weight of the uniform prediction", w3],
    ],
    fitted: {
      beta_: fit.beta, member_weights_: [...fit.weights], probability_floor_: floor, loss_: fit.loss, backend_: "browser",
    },
    notes: convergence(fit.residual),
  };
};

const LOGISTIC = {
  platt: { type: "PlattScaling", of: ["slope", "intercept"], params: { on: "logit" } },
  beta: { type: "BetaScaling", of: ["slope of log p", "slope of -log(1 - p)", "intercept"], params: {} },
};

const logisticMap = (table, kind) => {
  const { type, of, params } = LOGISTIC[kind];
  const floor = table.probabilityFloor(), fit = fitLogistic(kind, table, floor);
  return oneVsAll(table, {
    name: kind,
    columns: (other) => applyLogistic(kind, other, floor, fit.coefficients),
    parameters: problemClasses(table.width).flatMap((k, problem) =>
      of.map((what, j) => [`${table.names[k]}: ${what}`, fit.coefficients[problem][j]])),
    inner: {
      type,
      params: { ...params, loss: "nll", smoothing: true },
      fitted: { coef_: fit.coefficients, probability_floor_: floor, loss_: fit.losses },
    },
    notes: convergence(fit.residual),
  });
};

const isotonicMap = (table) => {
  const scale = table.logits && table.width === 2 ? "log-odds" : "probability";
  const functions = problemClasses(table.width).map((k) => {
    const scores = table.labels.length ? sortedBy(table, k, scale) : new Float64Array(0);
    return fitSteps(scores, Array.from(table.labels, (label) => label === k), isComputed(table));
  });
  return oneVsAll(table, {
    name: "isotonic",
    columns: (other) => problemClasses(other.width).map((k, problem) =>
      sortedBy(other, k, scale).map((score) => valueOf(functions[problem], score))),
    parameters: problemClasses(table.width).map((k, problem) => [
      `${table.names[k]}: number of steps`, functions[problem].knots.length,
    ]),
    inner: piecewise(functions, false, scale),
    notes: [],
  });
};

// One binary map for each class against the rest (or for the positive class of two), normalised and smoothed.
const oneVsAll = (table, { name, columns, parameters, inner, notes }) => {
  const mixing = Math.min(1, 1 / (table.n + 1));
  const predict = (other) => {
    const { n, width } = other, found = columns(other), out = new Float64Array(n * width);
    if (width === 2) {
      for (let row = 0; row < n; row++) out.set([1 - found[0][row], found[0][row]], 2 * row);
    } else {
      found.forEach((column, k) => column.forEach((value, row) => { out[row * width + k] = value; }));
      normalise(out, other);
    }
    return mixed(out, width, mixing);
  };
  return { name, type: "OneVsAll", accuracyPreserving: false, predict, parameters, inner, fitted: { mixing_: mixing }, notes };
};

// IRM: one strictly increasing function for the entries of all classes, normalised and smoothed.
const pooledIsotonicMap = (table) => {
  const { width } = table, p = table.probabilities, mixing = Math.min(1, 1 / (table.n + 1));
  const positive = Array.from(p, (_, at) => table.labels[Math.floor(at / width)] === at % width);
  const shared = madeStrict(fitSteps(p, positive, isComputed(table)));
  const predict = (other) => {
    const out = other.probabilities.map((score) => valueOf(shared, score));
    normalise(out, other);
    return keepWinners(other, mixed(out, other.width, mixing));
  };
  return {
    name: "irm",
    type: "Pooled",
    accuracyPreserving: true,
    predict,
    parameters: [["number of steps", shared.knots.length]],
    inner: piecewise([shared], true, "probability"),
    fitted: { mixing_: mixing },
    notes: [],
  };
};

const piecewise = (functions, strict, scale) => {
  const joined = (part) => functions.flatMap((one) => one[part]);
  const offsets = [0];
  for (const { knots } of functions) offsets.push(offsets[offsets.length - 1] + knots.length);
  return {
    type: "Isotonic",
    params: { shape: "step", strict, smoothing: 1 },
    fitted: {
      knots_: joined("knots"), values_: joined("values"), slopes_: joined("slopes"),
      left_: functions.map((one) => one.left), offsets_: offsets, scale_: scale,
    },
  };
};

// Whether probabilities were computed here: others may round them differently.
const isComputed = (table) => table.logits || table.offSimplex;

// What steps sort the samples by, for class k: its probability, or the log-odds of two classes, of which large ones still
// differ where probabilities are equal to 1. They are brought to [0, 1], as in mixnmatch/maps/columns.py.
const sortedBy = (table, k, scale) => {
  if (scale === "probability") return columnOf(table.probabilities, table.width, k);
  const lead = columnOf(table.scores, 2, 1), other = columnOf(table.scores, 2, 0);
  return lead.map((score, row) => {
    const odds = score - other[row], s = 0.5 / Math.sqrt(Math.abs(odds) + 1);
    return odds < 0 ? s : 1 - s;
  });
};

const columnOf = (values, width, k) =>
  Float64Array.from({ length: values.length / width }, (_, row) => values[row * width + k]);

// Divide rows by their sum, in place. Where that is zero nothing is known of a row: it stays as it came.
const normalise = (out, table) => {
  const { width } = table;
  for (let start = 0; start < out.length; start += width) {
    const row = out.subarray(start, start + width);
    if (!(sum(row) > 0)) row.set(table.probabilities.subarray(start, start + width));
    const total = sum(row);
    for (let k = 0; k < width; k++) row[k] /= total;
  }
};

// Laplace smoothing, in place: (1 - share) p + share / L.
const mixed = (p, width, share) => {
  for (let k = 0; k < p.length; k++) p[k] = p[k] * (1 - share) + share / width;
  return p;
};

// Raise what is below the smallest normal number to it, in place.
const lifted = (p) => {
  for (let k = 0; k < p.length; k++) if (p[k] < TINY) p[k] = TINY;
  return p;
};

// Repair rounding, in place: where the largest entry is not that of the scores, raise the winner just above it.
const keepWinners = (table, p) => {
  const { width } = table;
  for (let row = 0; row < table.n; row++) {
    const start = row * width, before = table.winnerOf(row), after = winner(p, start, width);
    if (before !== after) p[start + before] = nextFloat(p[start + after]);
  }
  return p;
};

const meanLogLoss = (p, table) => {
  let total = 0;
  table.labels.forEach((label, row) => { total -= Math.log(p[row * table.width + label]); });
  return total / table.n;
};

const convergence = (residual) =>
  residual <= CERTIFIED ? [] : [
    `The fit stopped before it reached its optimum; another step promises to lower the loss by ${residual.toExponential(1)} ` +
      "of it. Check the scores for extreme values, or use a map with fewer parameters.",
  ];
