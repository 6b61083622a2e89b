// The embedded sample: logits of a small network, as whole numbers in base64, and a problem of two classes made of it.

import { logSoftmaxRows } from "./numbers.js";
import { checkedTable } from "./table.js";

const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

// Ten classes: the logits as they are.
export const tenClasses = (sample) => {
  const view = new DataView(bytesOf(sample.logits).buffer), width = sample.classes.length;
  const scores = Float64Array.from({ length: view.byteLength / 2 }, (_, k) => view.getInt16(2 * k, true) / sample.scale);
  const labels = Int32Array.from(bytesOf(sample.labels));
  return checkedTable({ scores, width, logits: true, labels, names: sample.classes });
};

// Two classes: is it a cat? The score is the probability of that class.
export const twoClasses = (sample) => {
  const { table } = tenClasses(sample), { width, n } = table, k = sample.classes.indexOf(sample.positive);
  const logs = logSoftmaxRows(table.scores, width);
  const scores = Float64Array.from({ length: n }, (_, row) => Math.exp(logs[row * width + k]));
  const labels = table.labels.map((label) => (label === k ? 1 : 0));
  return checkedTable({ scores, width: 1, logits: false, labels, names: [`not ${sample.positive}`, sample.positive] });
};
