// How maps are fitted: a damped Newton method, a search in one dimension, and when a fit counts as finished.
//
// Starts, steps and the rule for stopping are those of the Python library (mixnmatch/maps/_solve.py), so that both end
// at the same numbers, not only near the same optimum.

import { combinations, dot, solveLinear } from "./numbers.js";

// The relative fall of the loss below which an optimum is certified.
export const CERTIFIED = 1e-8;
// A step that promises less than this part of the loss is the last one; what remains after it is about the square.
export const TOLERANCE = 1e-9;
// A mean loss below this is no longer improved upon.
export const LEAST_MEAN = 1e-6;
// Scores that only differ when multiplied by more than this are the same score.
export const STEEPEST = 1e15;

// Minimise a function that is not negative by damped Newton steps.
//
// `at(theta)` gives { theta, value, gradient, curvature }; `step(point)` the step to the minimum of the quadratic model;
// `project` brings parameters back that rounding took out of the feasible set. Returns the last point and the relative
// fall of the value that the last step promised.
export const newton = (at, start, step, { weight, project = (theta) => theta, tolerance = TOLERANCE }) => {
  const least = LEAST_MEAN * weight;
  let point = start, residual = Infinity;
  for (let iteration = 0; iteration < 100; iteration++) {
    const direction = step(point);
    const along = (length) => project(point.theta.map((value, k) => value + length * direction[k]));
    const promised = -dot(point.gradient, direction);
    residual = promised / Math.max(Math.abs(point.value), least);
    if (!(residual > tolerance)) return { point: { ...point, theta: along(1) }, residual };
    // A step that promises more than twice the value cannot be right, since the value is not negative.
    let length = Math.min(1, (2 * Math.abs(point.value)) / promised);
    let trial;
    for (let k = 0; k < 40; k++) {
      trial = at(along(length));
      if (trial.value <= point.value - 1e-4 * length * promised) break;
      length /= 3;
    }
    if (!(trial.value < point.value)) break;
    point = trial;
  }
  return { point, residual };
};

// Step to the least quadratic model over parameters not below `lower`, by trying every set of them on it.
export const boundedStep = ({ theta, gradient, curvature }, lower) => {
  const size = theta.length, all = theta.map((_, k) => k);
  // In units of the curvature in each parameter: no scale of the scores makes the system singular.
  const unit = all.map((k) => 1 / Math.sqrt(curvature[k][k] + 2.2250738585072014e-308));
  const damped = all.map((j) => all.map((k) => curvature[j][k] * unit[j] * unit[k] + (j === k ? 1e-12 : 0)));
  const slope = all.map((k) => gradient[k] * unit[k]);
  const limit = all.map((k) => (lower[k] - theta[k]) / unit[k]);
  const bounded = all.filter((k) => Number.isFinite(lower[k]));
  let best = new Array(size).fill(0), least = 0;
  for (let count = 0; count <= bounded.length; count++) {
    for (const held of combinations(bounded, count)) {
      const trial = stepHolding(slope, damped, limit, held);
      if (trial === null || trial.some((value, k) => value < limit[k] - 1e-13 * Math.abs(limit[k]))) continue;
      const value = dot(slope, trial) + 0.5 * dot(trial, damped.map((row) => dot(row, trial)));
      if (value < least) [best, least] = [trial, value];
    }
  }
  return best.map((value, k) => value * unit[k]);
};

// Minimum of the quadratic model with some parameters put on their bound.
const stepHolding = (gradient, curvature, room, held) => {
  const step = gradient.map((_, k) => (held.includes(k) ? room[k] : 0));
  const free = gradient.map((_, k) => k).filter((k) => !held.includes(k));
  if (free.length === 0) return step;
  const right = free.map((j) => -(gradient[j] + held.reduce((total, k) => total + curvature[j][k] * step[k], 0)));
  const found = solveLinear(free.map((j) => free.map((k) => curvature[j][k])), right);
  if (found === null) return null;
  free.forEach((j, k) => { step[j] = found[k]; });
  return step;
};

// Minimum of a function of beta > 0 next to `start`: the zero of its slope, by Newton steps in a bracket.
//
// `statistic(beta)` gives [value, slope, curvature]. The last step is shorter than `tolerance` times beta. `enough`,
// given the value, the promised fall and the relative length of the step, says whether to stop while the function
// still falls to the right and nothing is known of an upper end.
export const minimiseScalar = (statistic, start, { tolerance, reach = 2, low = 0, high = STEEPEST, enough = null }) => {
  let below = 0, above = Infinity, beta = Math.min(Math.max(start, low), high), value, promised;
  for (let iteration = 0; iteration < 200; iteration++) {
    const [now, slope, curvature] = statistic(beta);
    const step = curvature > 0 ? -slope / curvature : Infinity;
    value = now;
    promised = slope ? Math.abs(slope * step) : 0;
    if (slope === 0) return { beta, value, promised: 0, end: null };
    if (Math.abs(step) <= tolerance * beta) return { beta: beta + step, value, promised, end: null };
    if (slope < 0) below = beta;
    else above = beta;
    if (slope < 0 && beta >= high) return { beta, value, promised, end: "high" };
    if (slope > 0 && beta <= low) return { beta, value, promised, end: "low" };
    if (enough !== null && above === Infinity && enough(value, promised, Math.abs(step) / beta)) {
      return { beta, value, promised, end: "high" };
    }
    if (above - below <= tolerance * below) return { beta, value, promised, end: null };
    const wanted = Number.isFinite(step) ? beta + step : slope > 0 ? 0 : Infinity;
    const target = Math.min(Math.max(wanted, beta / reach), beta * reach);
    beta = below < target && target < above ? target : Math.sqrt(below * above);
    beta = Math.min(Math.max(beta, low), high);
  }
  return { beta, value, promised, end: null };
};
