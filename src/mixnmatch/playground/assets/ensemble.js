// Ensemble temperature scaling, ETS: T(z; w, t) = w1 T(z; t) + w2 z + w3 / L, temperature and weights fitted jointly.

import { clip, combinations, dot, solveLinear, sum } from "./numbers.js";
import { TOLERANCE, newton } from "./solve.js";
import { LOOK, fitBeta, labelRows } from "./temperature.js";

// Rows of the larger sample.
const SECOND_LOOK = 32768;
// Nodes of the scan over beta, as multiples of the inverse temperature that is best for temperature scaling alone.
const SCAN = [-4, -2, -1, -0.5, 0, 0.5, 1, 2, 4].map((power) => 2 ** power);
// Relative rounding of sums over many samples.
const ROUNDING = 1e-12;
// Weight that members which look at the scores keep between them, so that the order of a row survives.
const INFORMATIVE = 1e-6;

// Inverse temperature, weights, mean log loss, and the relative fall of it that another step promises.
export const fitEnsemble = (table, floor) => {
  const alone = fitBeta(table, floor, 1e-3);
  if (alone.bound === "separable") {
    // No error to learn weights from: as certain as temperature scaling, no more.
    return { ...alone, weights: [1, 0, 0] };
  }
  const best = fitJointly(table, alone.beta, floor);
  return { beta: best.beta, weights: keepInformative(best.weights), loss: best.value / table.n, residual: best.residual };
};

const keepInformative = (weights) =>
  weights[0] + weights[1] >= INFORMATIVE ? weights : [INFORMATIVE, 0, 1 - INFORMATIVE];

// The joint problem is not convex. A scan over beta on a sample of rows finds the promising valleys, each is refined on
// all rows, and the best is never above the loss of a single member.
const fitJointly = (table, betaAlone, floor) => {
  const members = memberRows(table, floor);
  let starts = scan(table.sampled(LOOK), betaAlone, floor).slice(0, 2);
  for (const sample of samples(table)) {
    const onSample = memberRows(sample, floor);
    starts = starts.map((start) => refined(onSample, start, 1e-5));
  }
  const fits = promising(starts).map((start) => refined(members, start, TOLERANCE));
  const rows = members(betaAlone);
  const corners = [rows.logP, rows.logQ].map((logs) => -sum(logs));
  corners.push(rows.n * -rows.logU);
  const k = corners.indexOf(Math.min(...corners));
  const corner = { beta: betaAlone, weights: [0, 1, 2].map((j) => (j === k ? 1 : 0)), value: corners[k] };
  let best = fits.reduce((a, b) => (b.value < a.value ? b : a));
  // Often the optimum is this corner, whose loss was added up in another way: more than rounding must tell them apart. A
  // temperature that was found roughly is refined, as is a valley that the scan has missed.
  const rounding = ROUNDING * Math.abs(best.value);
  if (corner.value < best.value - rounding) best = refined(members, corner, TOLERANCE);
  return best.value <= corner.value + rounding ? best : { ...corner, residual: best.residual };
};

// Samples of the rows to settle on first, a larger one last where there are many more rows.
const samples = (table) => {
  const first = table.sampled(LOOK), second = table.sampled(SECOND_LOOK);
  const many = second.n * 4 < table.n;
  return [...(first === table ? [] : [first]), ...(many ? [second] : [])];
};

// For each beta: logarithm of each member at the label of every row, and slope and curvature parts of the free one.
const memberRows = (table, floor) => {
  const x = table.logScores(floor), { width, labels, n } = table;
  const logQ = labelRows(x, width, labels, 1).logP;
  return (beta) => ({ ...labelRows(x, width, labels, beta), logQ, logU: -Math.log(width), n });
};

// Total log loss with gradient and curvature in (log beta, w1, w2, w3).
const derivatives = ({ logP, logQ, logU, slope, variance, n }, beta, weights) => {
  const logW = weights.map(Math.log);
  const gradient = [0, 0, 0, 0], curvature = [0, 1, 2, 3].map(() => [0, 0, 0, 0]);
  const logs = [0, 0, logU], ratio = [0, 0, 0], g = [0, 0, 0, 0];
  let value = 0;
  for (let row = 0; row < n; row++) {
    logs[0] = logP[row];
    logs[1] = logQ[row];
    const top = Math.max(logW[0] + logs[0], logW[1] + logs[1], logW[2] + logs[2]);
    let total = 0;
    for (let k = 0; k < 3; k++) total += Math.exp(logW[k] + logs[k] - top);
    const mixture = top + Math.log(total);
    for (let k = 0; k < 3; k++) ratio[k] = Math.exp(Math.min(logs[k] - mixture, 300)); // member over mixture
    const share = weights[0] * ratio[0]; // what the free member contributes to it
    g[0] = -share * slope[row];
    for (let k = 0; k < 3; k++) g[k + 1] = -ratio[k];
    value -= mixture;
    for (let j = 0; j < 4; j++) {
      gradient[j] += g[j];
      for (let k = 0; k <= j; k++) curvature[j][k] += g[j] * g[k];
    }
    curvature[0][0] -= share * (slope[row] * slope[row] - variance[row]);
    curvature[1][0] -= ratio[0] * slope[row];
  }
  for (let j = 0; j < 4; j++) for (let k = 0; k < j; k++) curvature[k][j] = curvature[j][k];
  // From beta to its logarithm.
  gradient[0] *= beta;
  for (let k = 0; k < 4; k++) curvature[0][k] *= beta;
  for (let k = 0; k < 4; k++) curvature[k][0] *= beta;
  curvature[0][0] += gradient[0];
  return { value, gradient, curvature };
};

// Damped Newton steps in (log beta, w) from a start; the value never rises.
const refined = (members, start, tolerance) => {
  const at = (theta) => {
    const beta = Math.exp(theta[0]), rows = members(beta);
    return { theta, ...derivatives(rows, beta, theta.slice(1)) };
  };
  const onSimplex = ([logBeta, ...weights]) => {
    const positive = weights.map((weight) => Math.max(weight, 0)), total = sum(positive);
    return [logBeta, ...positive.map((weight) => weight / total)];
  };
  const first = at([Math.log(start.beta), ...start.weights]);
  const weight = members(start.beta).n;
  const { point, residual } = newton(at, first, ensembleStep, { weight, project: onSimplex, tolerance });
  return { beta: Math.exp(point.theta[0]), weights: point.theta.slice(1), value: point.value, residual };
};

// Newton step in (log beta, w) that keeps the weights on the simplex, best over the faces of the simplex.
const ensembleStep = ({ theta, gradient, curvature }) => {
  const weights = theta.slice(1), h = curvature.map((row) => [...row]);
  const scale = h[1][1] + h[2][2] + h[3][3];
  for (let k = 1; k < 4; k++) h[k][k] += 1e-11 * scale;
  const inner = [1, 2, 3].map((j) => h[j].slice(1)), edge = [h[1][0], h[2][0], h[3][0]];
  const schur = h[0][0] - dot(edge, solveLinear(inner, edge));
  const least = 1e-9 * Math.max(Math.abs(h[0][0]), 1e-12 * scale);
  // Not convex in the temperature here: bend the model upwards.
  if (schur < least) h[0][0] += least + Math.abs(schur) - Math.min(schur, 0);
  const inside = stepOnFace(gradient, h, weights, [1, 2, 3]);
  if (inside !== null && weights.every((weight, k) => weight + inside[k + 1] > 0)) return inside;
  // Steps of the weights sum to 0 but for rounding. With the same number taken off all of their slopes, that rounding
  // does not hide the fall that a short step brings.
  const common = dot(gradient.slice(1), weights);
  const reduced = gradient.map((slope, k) => (k === 0 ? slope : slope - common));
  let best = [0, 0, 0, 0], lowest = 0;
  for (const size of [1, 2, 3]) {
    for (const face of combinations([1, 2, 3], size)) {
      const step = stepOnFace(gradient, h, weights, face);
      if (step === null) continue;
      const value = dot(reduced, step) + 0.5 * dot(step, h.map((row) => dot(row, step)));
      if (value < lowest) [best, lowest] = [step, value];
    }
  }
  return best;
};

// The step with the weights outside a face at zero; null if it leaves the simplex.
const stepOnFace = (gradient, h, weights, face) => {
  const step = [0, 0, 0, 0], outside = [1, 2, 3].filter((k) => !face.includes(k)), free = [0, ...face];
  for (const k of outside) step[k] = -weights[k - 1];
  const system = free.map((j) => [...free.map((k) => h[j][k]), j === 0 ? 0 : 1]);
  system.push([...free.map((k) => (k === 0 ? 0 : 1)), 0]);
  const right = free.map((j) => -(gradient[j] + outside.reduce((total, k) => total + h[j][k] * step[k], 0)));
  right.push(outside.reduce((total, k) => total + weights[k - 1], 0));
  const found = solveLinear(system, right);
  if (found === null) return null;
  free.forEach((j, k) => { step[j] = found[k]; });
  if (weights.some((weight, k) => weight + step[k + 1] < -1e-12)) return null;
  step[0] = clip(step[0], -1, 1);
  return step;
};

// Local optima in beta on a sample of rows, best first.
const scan = (look, betaAlone, floor) => {
  const members = memberRows(look, floor);
  const found = SCAN.map((multiple) => {
    const beta = betaAlone * multiple;
    return { beta, ...weightsAt(members(beta)) };
  });
  const below = (k, j) => found[k].value < (found[j]?.value ?? Infinity);
  const minima = found.filter((_, k) => below(k, k - 1) && !(k + 1 in found && found[k + 1].value < found[k].value));
  return minima.sort((a, b) => a.value - b.value);
};

// Weights with the least log loss for given members: EM, which always converges.
const weightsAt = ({ logP, logQ, logU, n }) => {
  const scaled = new Float64Array(3 * n), tops = new Float64Array(n);
  for (let row = 0; row < n; row++) {
    tops[row] = Math.max(logP[row], logQ[row], logU);
    scaled[3 * row] = Math.exp(logP[row] - tops[row]);
    scaled[3 * row + 1] = Math.exp(logQ[row] - tops[row]);
    scaled[3 * row + 2] = Math.exp(logU - tops[row]);
  }
  const mixture = (w, row) => w[0] * scaled[3 * row] + w[1] * scaled[3 * row + 1] + w[2] * scaled[3 * row + 2];
  let weights = [1 / 3, 1 / 3, 1 / 3];
  for (let iteration = 0; iteration < 20; iteration++) {
    const shares = [0, 0, 0];
    for (let row = 0; row < n; row++) {
      const inverse = 1 / mixture(weights, row);
      for (let k = 0; k < 3; k++) shares[k] += scaled[3 * row + k] * inverse;
    }
    const updated = weights.map((weight, k) => (weight * shares[k]) / n);
    if (Math.max(...updated.map((weight, k) => Math.abs(weight - weights[k]))) < 1e-4) break;
    weights = updated;
  }
  let value = 0;
  for (let row = 0; row < n; row++) value -= Math.log(mixture(weights, row)) + tops[row];
  return { weights, value };
};

// Starts that are neither next to a better one nor clearly worse than the best.
const promising = (starts) => {
  const least = Math.min(...starts.map((start) => start.value)), kept = [];
  for (const start of [...starts].sort((a, b) => a.value - b.value)) {
    const near = kept.some((other) =>
      Math.abs(Math.log(start.beta / other.beta)) < 0.1 &&
      start.weights.every((weight, k) => Math.abs(weight - other.weights[k]) < 0.1));
    if (!near && start.value <= least + 0.005 * Math.abs(least)) kept.push(start);
  }
  return kept;
};
