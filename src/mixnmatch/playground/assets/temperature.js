// Temperature scaling: T(z; t)_l = z_l^(1/t) / sum_k z_k^(1/t), with beta = 1/t of the least log loss.

import { sum, winner } from "./numbers.js";
import { LEAST_MEAN, STEEPEST, minimiseScalar } from "./solve.js";

// Rows that a first, cheap look at the data takes.
export const LOOK = 1024;
// Inverse temperatures this many times smaller than the spread of the scores are as good as zero.
const FLOOR = 1e-6;

// Of each row: log p of the label for p = softmax(beta x), its slope in beta and minus its curvature.
export const labelRows = (x, width, labels, beta) => {
  const n = labels.length;
  const rows = { logP: new Float64Array(n), slope: new Float64Array(n), variance: new Float64Array(n) };
  (width === 2 ? labelRowsOfTwo : labelRowsOfMany)(x, width, labels, beta, rows);
  return rows;
};

// With two classes everything is a function of the lead of the other class over the label.
const labelRowsOfTwo = (x, width, labels, beta, { logP, slope, variance }) => {
  for (let row = 0; row < labels.length; row++) {
    const lead = labels[row] === 0 ? x[2 * row + 1] - x[2 * row] : x[2 * row] - x[2 * row + 1];
    const decay = Math.exp(-beta * Math.abs(lead));
    logP[row] = -(Math.max(beta * lead, 0) + Math.log1p(decay));
    slope[row] = (-(lead > 0 ? 1 : decay) / (1 + decay)) * lead;
    variance[row] = (decay / ((1 + decay) * (1 + decay))) * lead * lead;
  }
};

const labelRowsOfMany = (x, width, labels, beta, { logP, slope, variance }) => {
  for (let row = 0; row < labels.length; row++) {
    const start = row * width, top = x[start + winner(x, start, width)];
    let total = 0, first = 0, second = 0;
    for (let k = start; k < start + width; k++) {
      const u = x[k] - top, e = Math.exp(u * beta);
      total += e;
      first += e * u;
      second += e * u * u;
    }
    const mean = first / total, own = x[start + labels[row]] - top;
    logP[row] = beta * own - Math.log(total);
    slope[row] = own - mean;
    variance[row] = Math.max(second / total - mean * mean, 0);
  }
};

// Total log loss, its slope and its curvature in beta.
const nllStatistic = (table, floor) => {
  const x = table.logScores(floor);
  return (beta) => {
    const { logP, slope, variance } = labelRows(x, table.width, table.labels, beta);
    return [-sum(logP), -sum(slope), sum(variance)];
  };
};

// Inverse temperature with the least log loss; `bound` says to which end of (0, inf) the search ran, if to one.
export const fitBeta = (table, floor, tolerance = 1e-10) => {
  const statistic = nllStatistic(table, floor);
  const look = table.sampled(LOOK);
  const onLook = look === table ? statistic : nllStatistic(look, floor);
  // At beta = 0 nothing is saturated: the curvature there gives the scale of the scores, whatever it is.
  let curvature = onLook(0)[2];
  if (curvature <= 0) curvature = statistic(0)[2];
  if (curvature <= 0) return { beta: 1, loss: statistic(1)[0] / table.n, bound: null, residual: 0 }; // constant scores
  const unit = Math.min(Math.sqrt(look.n / curvature), STEEPEST); // the spread of the scores is 1 / unit
  const start = look === table ? unit : fitNll(look, onLook, unit, unit, floor, 1e-2).beta;
  return fitNll(table, statistic, start, unit, floor, tolerance);
};

// Least log loss, which is convex in beta, and its two ends: uniform and separable.
const fitNll = (table, statistic, start, unit, floor, tolerance) => {
  const n = table.n, target = certainLoss(n) * n;
  const settings = { tolerance, reach: 16, low: FLOOR * unit };
  // Time to look up whether all labels lead or tie: long steps gain nothing any more.
  const enough = (value, promised, moved) => value <= target || (promised <= 1e-6 * value && moved > 0.01);
  let found = minimiseScalar(statistic, start, { ...settings, enough });
  if (found.end === "high") {
    const separable = separableBeta(table, statistic, found.beta, floor);
    if (separable !== null) return separable;
    found = minimiseScalar(statistic, found.beta, settings);
  }
  const bound = { low: "uniform", high: "separable" }[found.end] ?? null;
  const residual = bound ? 0 : found.promised / Math.max(found.value, LEAST_MEAN * n);
  return { beta: found.beta, loss: found.value / n, bound, residual };
};

// Mean log loss of a map that may be right on all of n samples: Jeffreys' probability (n + 1/2) / (n + 1).
const certainLoss = (n) => Math.log1p(0.5 / (n + 0.5));

// Inverse temperature for samples of which every label leads or ties; null if some label is behind another class.
const separableBeta = (table, statistic, beta, floor) => {
  const x = table.logScores(floor), { width, n } = table;
  let ties = 0;
  for (let row = 0; row < n; row++) {
    const entries = x.subarray(row * width, (row + 1) * width);
    const top = entries[winner(entries, 0, width)];
    if (entries[table.labels[row]] < top) return null;
    ties += Math.log(entries.reduce((count, entry) => count + (entry === top), 0));
  }
  const target = certainLoss(n) * n, steepest = Math.log(STEEPEST);
  const excess = (logBeta) => Math.log(Math.max(statistic(Math.exp(logBeta))[0] - ties, 1e-300) / target);
  let low = Math.log(beta), high = low;
  while (excess(low) < 0) [low, high] = [low - 1, low];
  while (excess(high) > 0 && high < steepest) [low, high] = [high, high + 1];
  if (low < high && high < steepest) {
    while (high - low > 4e-16 * Math.max(Math.abs(low), Math.abs(high), 1)) {
      const middle = (low + high) / 2;
      if (middle <= low || middle >= high) break;
      if (excess(middle) > 0) low = middle;
      else high = middle;
    }
  }
  const found = Math.exp(low);
  return { beta: found, loss: statistic(found)[0] / n, bound: "separable", residual: 0 };
};
