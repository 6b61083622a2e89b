// Small numerical tools: sums over rows, softmax, linear systems and the next floating-point number.

// No probability is read as less than this where logarithms are taken.
export const SMALLEST_PROBABILITY = 1e-37;
// The smallest normal number: probabilities that come out of a softmax are raised to it.
export const TINY = 2.2250738585072014e-308;

// What is wrong with a file or a table, in words for the user.
export class InputError extends Error {}

export const sum = (values) => {
  let total = 0;
  for (const value of values) total += value;
  return total;
};

export const dot = (a, b) => {
  let total = 0;
  for (let k = 0; k < a.length; k++) total += a[k] * b[k];
  return total;
};

// Smallest and largest number of a list of any length.
export const lowest = (values) => values.reduce((least, value) => Math.min(least, value), Infinity);
export const highest = (values) => values.reduce((most, value) => Math.max(most, value), -Infinity);

export const clip = (value, low, high) => Math.min(Math.max(value, low), high);

// Column of the largest entry in a row of a row-major table, the first one of equals.
export const winner = (values, start, width) => {
  let best = start;
  for (let k = start + 1; k < start + width; k++) if (values[k] > values[best]) best = k;
  return best - start;
};

// Sum of a part of a list in the order in which NumPy adds: eight running sums, halves of long parts on their own.
// The last digit decides whether two scores of a step function tie, and should not depend on who adds.
const sumAsNumPy = (x, start, size) => {
  if (size > 128) {
    const half = (size >> 1) - ((size >> 1) % 8);
    return sumAsNumPy(x, start, half) + sumAsNumPy(x, start + half, size - half);
  }
  let total = 0, k = start;
  const stop = start + size;
  if (size >= 8) {
    const r = [0, 0, 0, 0, 0, 0, 0, 0];
    for (; k + 8 <= stop; k += 8) for (let j = 0; j < 8; j++) r[j] += x[k + j];
    total = r[0] + r[1] + (r[2] + r[3]) + (r[4] + r[5] + (r[6] + r[7]));
  }
  for (; k < stop; k++) total += x[k];
  return total;
};

// softmax(beta x) of every row, without overflow.
export const softmaxRows = (x, width, beta = 1) => {
  const out = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += width) {
    const top = x[start + winner(x, start, width)];
    for (let k = start; k < start + width; k++) out[k] = Math.exp((x[k] - top) * beta);
    const total = sumAsNumPy(out, start, width);
    for (let k = start; k < start + width; k++) out[k] /= total;
  }
  return out;
};

// Logarithm of the softmax of every row.
export const logSoftmaxRows = (x, width) => {
  const out = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += width) {
    const top = x[start + winner(x, start, width)];
    let total = 0;
    for (let k = start; k < start + width; k++) total += Math.exp(x[k] - top);
    const shift = Math.log(total);
    for (let k = start; k < start + width; k++) out[k] = x[k] - top - shift;
  }
  return out;
};

// Solution of a small linear system by elimination with row exchanges; null if it is singular.
export const solveLinear = (matrix, right) => {
  const size = right.length;
  const a = matrix.map((row, k) => [...row, right[k]]);
  for (let column = 0; column < size; column++) {
    let pivot = column;
    for (let row = column + 1; row < size; row++) {
      if (Math.abs(a[row][column]) > Math.abs(a[pivot][column])) pivot = row;
    }
    if (!(Math.abs(a[pivot][column]) > 0)) return null;
    [a[column], a[pivot]] = [a[pivot], a[column]];
    for (let row = column + 1; row < size; row++) {
      const factor = a[row][column] / a[column][column];
      for (let k = column; k <= size; k++) a[row][k] -= factor * a[column][k];
    }
  }
  const x = new Array(size).fill(0);
  for (let row = size - 1; row >= 0; row--) {
    let rest = a[row][size];
    for (let k = row + 1; k < size; k++) rest -= a[row][k] * x[k];
    x[row] = rest / a[row][row];
  }
  return x;
};

// All subsets of a list with `size` members, in order.
export const combinations = (items, size) => {
  if (size === 0) return [[]];
  return items.flatMap((item, k) => combinations(items.slice(k + 1), size - 1).map((rest) => [item, ...rest]));
};

const bits = new DataView(new ArrayBuffer(8));

// The next floating-point number above a positive one.
export const nextFloat = (value) => {
  bits.setFloat64(0, value);
  bits.setBigInt64(0, bits.getBigInt64(0) + 1n);
  return bits.getFloat64(0);
};

// Where a sorted list has its first number above `value`.
export const firstAbove = (sorted, value, start = 0, stop = sorted.length) => {
  let low = start, high = stop;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
};
