const fixed = (n, digits = 3) => n === null || n === undefined ? "–" : n.toFixed(digits);
const range = (s) => s.mcc_low === null ? "–" : `${fixed(s.mcc_low, 2)} … ${fixed(s.mcc_high, 2)}`;
const [MODEL, TURNS] = [style(0), style(1)];

// Round values between two, and the axis with them.
function between(from, to, digits, title) {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5].find((one) => (to - from) / one <= 6) ?? to - from;
  const first = Math.ceil(from / step - 1e-9), last = Math.floor(to / step + 1e-9);
  const marks = Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
  return { from, to, marks, show: (value) => value.toFixed(digits), title };
}

function reliability() {
  const points = (scores) => {
    const bins = scores.bins.filter((bin) => bin.count > 0);
    const all = bins.reduce((sum, bin) => sum + bin.count, 0);
    return bins.map((bin) => ({ x: bin.mean_p, y: bin.share, size: 0.6 + 2.2 * Math.sqrt(bin.count / all),
      title: `${grouped(bin.count)} samples: predicted ${percent(bin.mean_p)}, continued ${percent(bin.share)}` }));
  };
  const ideal = { colour: "var(--soft)", dash: "2 4", mark: "" };
  const series = [{ look: ideal, points: [{ x: 0, y: 0 }, { x: 1, y: 1 }] },
    { look: TURNS, has_marks: true, points: points(data.turn_only) },
    { look: MODEL, has_marks: true, points: points(data.test) }];
  chart($("reliability"), 320, "Continued share by predicted probability.", () => ({ series,
    x: between(0, 1, 1, "predicted probability"), y: between(0, 1, 1) }));
  key($("reliability-caption"), "Key of the reliability chart", [[MODEL, "model"], [TURNS, "turn count only"]]);
  element($("reliability-caption"), "span", {},
    "Vertical: the share that continued. Predictions on the dotted line are exact. Large marks hold many samples.");
}

function curve() {
  const points = data.curve;
  if (points.length < 2) { $("curve-figure").remove(); return; }
  const sizes = points.map((point) => point.conversations);
  const lows = points.map((point) => point.scores.mcc_low ?? point.scores.mcc);
  const highs = points.map((point) => point.scores.mcc_high ?? point.scores.mcc);
  const from = Math.min(0, ...lows, data.turn_only.mcc);
  const to = Math.max(0.1, ...highs, data.attainable_mcc ?? 0);
  const levels = [{ y: data.turn_only.mcc, name: "turn count only" }];
  if (data.attainable_mcc !== null) levels.push({ y: data.attainable_mcc, name: "best attainable" });
  const series = [{ look: MODEL, has_marks: true, points: points.map((point, index) => ({ x: sizes[index],
    y: point.scores.mcc, low: lows[index], high: highs[index],
    title: `${grouped(point.samples)} samples: MCC ${fixed(point.scores.mcc)}` })) }];
  chart($("curve"), 320, "MCC on the test part by training conversations.", () => ({ series, levels,
    x: { log: true, from: sizes[0] * 0.87, to: sizes.at(-1) * 1.15, marks: sizes, show: grouped,
      title: "training conversations" },
    y: between(from, to, 2) }));
  key($("curve-caption"), "Key of the learning curve", [[MODEL, "MCC on the test part, 95 % range"]]);
  element($("curve-caption"), "span", {}, "If it still rises at the right, more conversations may help.");
}

function loss() {
  const epochs = data.epochs;
  const all = epochs.flatMap((epoch) => [epoch.train_loss, epoch.validation_loss]);
  const low = Math.min(...all), high = Math.max(...all), pad = Math.max(0.01, (high - low) * 0.08);
  const members = Array.from(new Set(epochs.map((epoch) => epoch.member)));
  const numbers = epochs.filter((epoch) => epoch.member === members[0]).map((epoch) => epoch.epoch);
  const points = (name, member) => epochs.filter((epoch) => epoch.member === member).map((epoch) => ({
    x: epoch.epoch, y: epoch[name], size: 0.7,
    title: `classifier ${member} of ${members.length}, epoch ${epoch.epoch}: ` +
      `${fixed(epoch[name])}${epoch.is_best ? ", its best so far" : ""}` }));
  const series = members.flatMap((member) => [
    { look: TURNS, has_marks: true, points: points("train_loss", member) },
    { look: MODEL, has_marks: true, points: points("validation_loss", member) }]);
  chart($("loss"), 320, "Loss by epoch.", () => ({ series,
    x: { from: 0.5, to: numbers.at(-1) + 0.5, marks: numbers, show: String, title: "epoch" },
    y: between(low - pad, high + pad, 2) }));
  key($("loss-caption"), "Key of the loss chart", [[MODEL, "validation"], [TURNS, "training"]]);
  element($("loss-caption"), "span", {},
    "Each classifier keeps the weights of its lowest validation loss. The model is the mean of the classifiers.");
}

titled("Predictor training: " + data.title);
tiles($("tiles"), [
  { name: "MCC on the test part", value: fixed(data.test.mcc), under: `95 % range ${range(data.test)}` },
  { name: "MCC of the turn count only", value: fixed(data.turn_only.mcc), under: `95 % range ${range(data.turn_only)}` },
  { name: "ROC-AUC", value: fixed(data.test.auc), under: `Turn count only: ${fixed(data.turn_only.auc)}` },
  { name: "Calibration error (ECE)", value: fixed(data.test.ece), under: `Turn count only: ${fixed(data.turn_only.ece)}` },
]);
data.words.forEach((sentence) => element($("words"), "li", {}, sentence));
reliability();
curve();
loss();
tabulate($("scores"), ["part", "samples", "continued", "MCC", "95 %", "macro F1", "ROC-AUC", "ECE"],
  data.rows.map(([name, scores]) => [name, grouped(scores.samples), exactly(scores.base_rate, 1), fixed(scores.mcc),
    range(scores), fixed(scores.macro_f1), fixed(scores.auc), fixed(scores.ece)]), "Scores");
paragraphs($("facts"), data.facts);
tabulate($("made"), [], data.made, "Training run");
