// The page: what is chosen, what is computed, and where it is shown.

import { reliabilityDiagram } from "./drawing.js";
import { METHODS, fitMap } from "./maps.js";
import { mapFile } from "./mapfile.js";
import { BINS, histogramCurve, kernelCurve, measures, outcomes } from "./measures.js";
import { InputError } from "./numbers.js";
import { checkFile, decoded, readTable } from "./reading.js";
import { tenClasses, twoClasses } from "./sample.js";
import { Session } from "./session.js";

const data = JSON.parse(document.getElementById("playground-data").textContent);
const $ = (id) => document.getElementById(id);
const chosen = (name) => document.querySelector(`input[name=${name}]:checked`).value;

// What the page shows at the moment. `text` is kept of a file, to read it again if its scores turn out to be logits.
const state = { source: "", text: null, table: null, warnings: [], session: null, result: null, temperature: null };
// Every task gets a number; a task that is no longer the last one shows nothing.
let task = 0;

const node = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

// Numbers as the report writes them.
const percent = (share, digits = share !== 0 && Math.abs(share) < 0.00995 ? 2 : 1) =>
  (Number.isFinite(share) ? `${(100 * share).toFixed(digits)}%` : "–");
const exact = (share) => percent(share, 2);
const number = (value) => (Number.isFinite(value) ? value.toFixed(4) : value === Infinity ? "infinite" : "–");
const count = (value) => value.toLocaleString("en-US").replaceAll(",", value < 10000 ? "" : "\u202f");
const signed = (value, show) => `${value > 0 ? "+" : value < 0 ? "−" : "±"}${show(Math.abs(value))}`;

const announce = (text) => { $("status").textContent = text; };

// Let the browser draw what has changed before it is kept busy.
const pause = () => new Promise((done) => { setTimeout(done, 0); });

const showError = (error, source) => {
  task++;
  const known = error instanceof InputError;
  Object.assign(state, { table: null, session: null, result: null, warnings: [] });
  for (const section of ["results", "save", "slider"]) $(section).hidden = true;
  $("data-line").textContent = "";
  $("warnings").replaceChildren();
  $("error").hidden = false;
  $("error-text").textContent = known
    ? `${source}: ${error.message}.`.replace(/\.\.$/, ".")
    : `${source}: the page failed (${error.message}). Please report it, with a few rows of the file if you can share them.`;
  announce("");
};

// Do something that may fail: the user sees why, and never a blank page.
const guarded = (source, work) => async (...given) => {
  try {
    await work(...given);
  } catch (error) {
    showError(error, source());
  }
};

const take = ({ table, warnings }, source) => {
  Object.assign(state, { table, warnings, source, session: null, temperature: null });
  $("error").hidden = true;
  $("data-line").textContent =
    `${source}: ${count(table.n)} samples, ${table.width} classes (${shortList(table.names)}), ` +
    `${table.logits ? "logits" : "probabilities"}.`;
  $("warnings").replaceChildren(...warnings.map((warning) => node("li", {}, warning)));
};

const shortList = (names) => names.slice(0, 4).join(", ") + (names.length > 4 ? ", ..." : "");

// A method that suits the number of classes: with two, one with an intercept.
const chooseMethod = (table) => { $(`method-${table.width === 2 ? "beta" : "ts"}`).checked = true; };

const takeSample = (kind) => {
  state.text = null;
  const made = (kind === "two" ? twoClasses : tenClasses)(data.sample);
  take(made, kind === "two" ? `Sample, ${data.sample.positive} or not` : "Sample, ten classes");
  chooseMethod(made.table);
  return update();
};

const takeText = (text, source) => {
  state.text = text;
  state.source = source;
  const made = readTable(text, chosen("form") === "logits");
  if (made.said !== null) $(made.said ? "form-logits" : "form-probabilities").checked = true; // the file says it itself
  const classes = state.table?.width;
  take(made, source);
  if ((classes === 2) !== (made.table.width === 2)) chooseMethod(made.table);
  return update();
};

const takeFile = async (file) => {
  state.source = file.name;
  checkFile(file.name, file.size);
  announce(`Reading ${file.name}`);
  const text = decoded(await file.arrayBuffer());
  $("file").value = ""; // so that the same file can be chosen again after it was repaired
  return takeText(text, file.name);
};

// Fit what is chosen and show it.
const update = async () => {
  if (!state.table) return;
  const mine = ++task, method = chosen("method"), how = chosen("how");
  if (state.session?.table !== state.table || state.session.how !== how) {
    announce("Computing");
    await pause();
    if (mine !== task) return;
    state.session = new Session(state.table, how);
  }
  if (method !== "ts") state.temperature = null;
  if (!state.session.fits.has(method)) announce(`Fitting: ${METHODS[method].title}`);
  await state.session.fit(method, pause);
  if (mine !== task) return;
  if (method === "ts" && state.temperature === null) resetSlider();
  show(method);
  announce(summary());
};

// The slider is on a logarithmic scale around the fitted temperature, with 1 inside.
const resetSlider = () => {
  const fitted = Math.log2(state.session.fits.get("ts").final.temperature), slider = $("temperature");
  slider.min = Math.min(fitted, 0) - 3;
  slider.max = Math.max(fitted, 0) + 3;
  slider.step = "any";
  slider.value = fitted;
};

const show = (method) => {
  const result = state.session.evaluate(method, state.temperature);
  state.result = result;
  for (const section of ["results", "save"]) $(section).hidden = false;
  $("slider").hidden = method !== "ts";
  $("results-title").textContent = `Before and after: ${titleOf(method)}`;
  $("split-line").textContent = splitLine();
  $("headline").textContent = headline();
  $("sure").textContent = sureLine();
  $("notes").replaceChildren(...result.notes.map((note) => node("li", {}, note)));
  showSlider();
  showDiagrams(method);
  showMeasures();
  showParameters();
};

const titleOf = (method) => (state.temperature === null ? METHODS[method].title : "temperature set by hand");

const splitLine = () => {
  const { session } = state, n = state.result.before.measures.n;
  if (session.how === "halves") {
    return `Fitted on ${count(session.calibration.n)} samples, evaluated on the other ${count(n)}: two halves, drawn by a hash ` +
      "of the row number. All numbers below are from the evaluation half.";
  }
  return `Cross-fitted in five folds: each of the ${count(n)} samples is evaluated with a map that was fitted on the other folds. ` +
    "The map in the file is fitted on all samples.";
};

const subject = () => (state.table.width === 2 ? `P(${state.table.names[1]})` : "confidence");

const headline = () => {
  const { before, after, changes } = state.result, { value, standardError } = changes.logLoss;
  const error = `The calibration error (ECE, 15 bins) is ${percent(after.measures.ece)} after calibration, ${percent(before.measures.ece)} before.`;
  if (!Number.isFinite(value)) {
    return `${error} The log loss before is infinite: a label had probability zero.`;
  }
  const size = `${number(Math.abs(value))} (standard error ${number(standardError)})`;
  if (Math.abs(value) <= 2 * standardError) return `${error} The log loss does not change significantly (${signed(value, number)}, standard error ${number(standardError)}).`;
  return value < 0 ? `${error} Log loss fell by ${size}.` : `${error} Log loss rose by ${size}: the map makes these scores worse.`;
};

const sureLine = () => {
  const { before, after } = state.result;
  if (before.sure.count < 20 || after.sure.count < 20) return "";
  const what = state.table.width === 2 ? `were ${state.table.names[1]}` : "were right";
  return `Of the ${count(before.sure.count)} samples with a ${subject()} of 90% or above, ${percent(before.sure.share)} ${what}; ` +
    `after calibration, ${percent(after.sure.share)} of ${count(after.sure.count)}.`;
};

const summary = () => `${titleOf(chosen("method"))}. ${headline()}`;

const showSlider = () => {
  if ($("slider").hidden) return;
  const fitted = state.session.fits.get("ts").final.temperature, now = state.temperature ?? fitted;
  const shown = `${+now.toPrecision(4)}`;
  $("temperature").setAttribute("aria-valuetext", `temperature ${shown}`);
  $("temperature-text").textContent = state.temperature === null ? `${shown} (fitted)` : `${shown} (by hand; fitted: ${+fitted.toPrecision(4)})`;
  $("temperature-reset").disabled = state.temperature === null;
};

const showDiagrams = (method) => {
  const two = state.table.width === 2;
  for (const which of ["before", "after"]) {
    const { curve, bins, measures: found } = state.result[which];
    const title = which === "before" ? "Before calibration" : `After: ${titleOf(method)}`;
    const predicted = two ? "mean probability" : "mean confidence", observed = two ? "frequency" : "accuracy";
    const averages = `${predicted} ${percent(found.meanConfidence)}, ${observed} ${percent(found.meanOutcome)}`;
    $(`diagram-${which}`).replaceChildren(reliabilityDiagram({
      which, title, curve, bins, binCount: BINS,
      description: `Observed frequency against ${subject()}: ` +
        bins.map((bin) => `${percent(bin.value)} at ${percent(bin.confidence)}`).join(", ") + `. On average: ${averages}.`,
      xTitle: two ? `Predicted ${subject()}` : "Confidence",
      yTitle: two ? "Observed frequency" : "Observed accuracy",
    }));
    $(`caption-${which}`).replaceChildren(node("strong", {}, title), `: ECE ${exact(found.ece)}; ${averages}.`);
    $(`numbers-${which}`).replaceChildren(...bins.map((bin) => node("tr", {},
      node("th", { scope: "row" }, percent(bin.confidence)),
      ...[percent(bin.value), `${percent(bin.low)} to ${percent(bin.high)}`, count(bin.count)].map((text) => node("td", {}, text)))));
  }
};

const showMeasures = () => {
  const { before, after, changes } = state.result;
  const row = (name, key, format, change = null) => node("tr", {},
    node("th", { scope: "row" }, name),
    node("td", {}, format(before.measures[key])),
    node("td", {}, format(after.measures[key])),
    node("td", {}, change && Number.isFinite(change.value) ? `${signed(change.value, format)} (${format(change.standardError)})` : "–"));
  $("measures").replaceChildren(
    row("ECE (15 bins of equal width)", "ece", exact),
    row("Expected ECE of calibrated scores", "eceByChance", exact),
    row("Log loss", "logLoss", number, changes.logLoss),
    row("Brier score (sum over classes)", "brier", number, changes.brier),
    row("Accuracy", "accuracy", exact, changes.accuracy),
    row("Samples", "n", count),
  );
};

const showParameters = () => {
  const { map } = state.result, most = 30;
  const shown = map.parameters.slice(0, most).map(([what, value]) => node("tr", {},
    node("th", { scope: "row" }, what), node("td", {}, Number.isInteger(value) ? count(value) : String(+value.toPrecision(6)))));
  if (map.parameters.length > most) {
    shown.push(node("tr", {}, node("th", { scope: "row" }, `and ${map.parameters.length - most} more, in the file`), node("td")));
  }
  $("parameters").replaceChildren(...shown);
  $("file-name").textContent = `"${fileName()}"`;
  $("file-line").textContent = `The file contains the map fitted on ${count(state.session.calibration.n)} samples` +
    (state.session.how === "halves" ? " (the calibration half), which is evaluated here." : " (all of them).");
};

// The text of the map file of what is shown.
const currentFile = () => {
  const { session, result, temperature } = state, table = session.calibration;
  const metadata = {
    made_by: "playground",
    source: state.source,
    fitted_on: session.how === "halves" ? `${table.n} of ${session.table.n} samples, a half drawn by hash` : "all samples",
    evaluated: session.how === "halves" ? "on the other half" : "cross-fitted, 5 folds",
  };
  if (temperature !== null) metadata.temperature = "set by hand";
  return mapFile(result.map, table, { version: data.version, metadata });
};

const fileName = () => `calibrator-${state.result.map.name}.json`;

const download = () => {
  const link = node("a", { download: fileName() });
  link.href = URL.createObjectURL(new Blob([currentFile()], { type: "application/json" }));
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  announce(`Saved ${link.download}`);
};

const on = (id, kind, work) => $(id).addEventListener(kind, guarded(() => state.source, work));

for (const radio of document.querySelectorAll("input[name=method], input[name=how]")) on(radio.id, "change", update);
for (const radio of document.querySelectorAll("input[name=form]")) {
  on(radio.id, "change", () => (state.text === null ? null : takeText(state.text, state.source)));
}
on("file", "change", () => ($("file").files.length ? takeFile($("file").files[0]) : null));
on("sample-ten", "click", () => takeSample("ten"));
on("sample-two", "click", () => takeSample("two"));
on("download", "click", download);
on("temperature-reset", "click", () => {
  state.temperature = null;
  return update();
});

// The slider: at most one evaluation a frame while it moves; it is announced when it stops.
let waiting = false;
on("temperature", "input", () => {
  state.temperature = 2 ** Number($("temperature").value);
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(guarded(() => state.source, () => {
    waiting = false;
    if (chosen("method") === "ts" && state.temperature !== null && state.session?.fits.has("ts")) show("ts");
  }));
});
on("temperature", "change", () => announce(summary()));

for (const what of ["band", "bins"]) {
  const box = $(`show-${what}`), apply = () => { $("pair").dataset[what] = box.checked ? "on" : "off"; };
  box.addEventListener("change", apply);
  apply();
}

// Files can be dropped anywhere.
const zone = $("drop");
addEventListener("dragover", (event) => {
  event.preventDefault();
  zone.classList.add("over");
});
addEventListener("dragleave", () => zone.classList.remove("over"));
addEventListener("drop", guarded(() => state.source, (event) => {
  event.preventDefault();
  zone.classList.remove("over");
  const { files } = event.dataTransfer;
  if (files.length > 1) {
    state.source = "Dropped files";
    throw new InputError("drop one file at a time");
  }
  return files.length ? takeFile(files[0]) : null;
}));
addEventListener("error", (event) => showError(event.error ?? new Error(event.message), "Page"));
addEventListener("unhandledrejection", (event) => showError(event.reason, "Page"));

// What the page computes with, for the console of the browser and for tests.
globalThis.playground = {
  state, currentFile, takeText: (text, source) => guarded(() => source, takeText)(text, source),
  readTable, fitMap, Session, outcomes, measures, kernelCurve, histogramCurve, mapFile, InputError,
};

document.documentElement.classList.add("scripted");
$("controls").hidden = false;
guarded(() => "Sample", takeSample)("ten");
