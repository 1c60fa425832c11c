// The first screen: what was run, how it went, and the questions to look at first.

function overview() {
  const { runs, differences } = store.manifest;
  return el("div", {},
    el("h1", {}, runs.length > 1 ? `${runs.length} runs` : foreign(runs[0].name)),
    differences.length ? differenceTable(differences) : null,
    runs.map((run, at) => el("article", { class: "run" },
      runs.length > 1 ? el("h2", {}, foreign(run.name)) : null, runView(run, at))));
}

function runView(run, at) {
  const ended = Object.values(run.states).reduce((sum, count) => sum + count, 0);
  return [
    progress(run, ended),
    el("div", { class: "cards" },
      Object.entries(run.states).map(([state, count]) => card(number(count), state, address("questions", at) + `?state=${state}`)),
      mainScores(run).map(([name, figure]) => card(score(figure.value), `${name}, ${score(figure.low)} to ${score(figure.high)}`)),
      run.gold.questions ? card(`${number(run.gold.lost)} of ${number(run.gold.questions)}`, "questions without all gold passages in the evidence", `${address("questions", at)}?gold=lost`) : null,
      Object.entries(run.percentiles).slice(0, 3).map(([name, value]) => card(seconds(value), `${name}, time per question`)),
      card(number(run.usage.llm_calls), "LLM calls"),
      card(number(run.usage.prompt_tokens), `tokens in, ${number(run.usage.cached_tokens)} cached`),
      card(number(run.usage.completion_tokens), "tokens out"),
      run.currency ? card(money(run.stages.reduce((sum, stage) => sum + stage.money, 0)), run.currency) : null),
    el("div", { class: "columns" }, extremes(run, at)),
    run.scores.length ? section("Scores", scoreTable(run)) : null,
    troubles(run, at),
    section("Stages", stageTable(run), el("p", { class: "note" },
      "Queued and running: mean per question. The time of a batch counts in full for each question in it.")),
    section("Over time", el("div", { class: "columns" }, timeCharts(run))),
    section("What was run", configuration(run.configuration)),
  ];
}

function progress(run, ended) {
  const left = run.seconds_left === null ? "" : `, about ${seconds(run.seconds_left)} left`;
  const state = run.running ? `running${left}` : ended === run.questions ? "done" : "stopped";
  return el("p", {}, `${number(ended)} of ${plural(run.questions, "question")}, system `, foreign(run.system), `: ${state}`,
    run.waiting ? [" – waiting for ", foreign(run.waiting.llm), ": ", foreign(run.waiting.reason)] : null);
}

const mainScores = (run) => (run.scores.length ? Object.entries(run.scores[0].figures).slice(0, 3) : []);

function card(value, label, href) {
  const inside = [el("strong", {}, value), el("span", {}, label)];
  return href ? el("a", { class: "card", href }, inside) : el("div", { class: "card" }, inside);
}

const EXTREMES = {
  wrong: ["Most wrong, by the first score", (value) => `score ${score(1 - value)}`],
  slowest: ["Slowest", seconds],
  tokens: ["Most expensive", (value) => `${number(value)} tokens`],
  money: ["Most expensive", (value, run) => `${money(value)} ${run.currency}`],
};

function extremes(run, at) {
  return Object.entries(EXTREMES).filter(([name]) => run.extremes[name] && run.extremes[name].length)
    .map(([name, [title, format]]) => el("section", { class: "box" }, el("h2", {}, title),
      el("ol", {}, run.extremes[name].map(([id, value, text]) =>
        el("li", {}, el("a", { href: address("question", at, id) }, foreign(text || id)), ` ${format(value, run)}`)))));
}

function scoreTable(run) {
  const names = Object.keys(run.scores[0].figures);
  return table("Scores with 95 % intervals", ["by", "", "questions", ...names], run.scores.map((row) => [
    row.by, foreign(row.value), number(row.questions),
    ...names.map((name) => {
      const figure = row.figures[name];
      return figure ? [el("strong", {}, score(figure.value)), el("small", {}, ` ${score(figure.low)}–${score(figure.high)}`)] : "";
    })]));
}

function troubles(run, at) {
  const counted = (title, map) => Object.entries(map).map(([name, count]) => [title, foreign(name), number(count)]);
  const rows = [
    ...run.reasons.map(([state, reason, count]) =>
      [el("a", { href: `${address("questions", at)}?state=${state}` }, badge(state)), foreign(reason), number(count)]),
    ...counted("no usable reply (the system continued) to prompt", run.fall_backs),
    ...counted("passages that did not fit into prompt", run.left_out),
  ];
  return rows.length ? section("Failures, abstentions and fall-backs", table("By reason", ["what", "reason", "number"], rows)) : null;
}

const money = (value) => number(value, value < 1 ? 5 : 2);

function stageTable({ stages, currency }) {
  return table("Time, tokens and cost by stage", ["stage", "role", "calls", "queued", "running", "calls per batch", "tokens in", "tokens out", currency],
    stages.map((stage) => [foreign(stage.name), foreign(stage.role), number(stage.calls), seconds(stage.queued_ms / 1000),
      seconds(stage.running_ms / 1000), number(stage.batch, 1), stage.role ? number(stage.tokens_in) : "", stage.role ? number(stage.tokens_out) : "",
      stage.role && currency ? money(stage.money) : ""]));
}

function timeCharts(run) {
  const charts = [];
  if (run.over_time.length) {
    charts.push(chart("Questions per second", (Plot) => ({
      x: { label: "seconds since the start" }, y: { label: "questions/s", grid: true },
      marks: [Plot.areaY(run.over_time, { x: "second", y: "rate", fillOpacity: 0.25, fill: "currentColor" }), Plot.lineY(run.over_time, { x: "second", y: "rate" }), Plot.ruleY([0])],
    })));
    const sizes = run.over_time.flatMap(({ second, batch, worked }) => [{ second, kind: "LLM calls in progress", size: batch }, { second, kind: "calls in a batch of retrieval or graph work", size: worked }]).filter((one) => one.size);
    charts.push(chart("Batch sizes", (Plot) => ({
      x: { label: "seconds since the start" }, y: { label: "calls", grid: true, zero: true }, color: { legend: true, range: ["#4269d0", "#c2541b"] },
      marks: [Plot.lineY(sizes, { x: "second", y: "size", z: "kind", stroke: "kind" }), Plot.ruleY([0])],
    })));
  }
  if (run.latencies.length) {
    charts.push(chart("Seconds per question", (Plot) => ({
      x: { label: "seconds" }, y: { label: "questions", grid: true },
      marks: [Plot.rectY(run.latencies, { x1: "from", x2: "to", y: "questions", fill: "currentColor", fillOpacity: 0.5 }), Plot.ruleY([0])],
    })));
  }
  const stages = run.stages.filter((stage) => stage.tokens_in + stage.tokens_out);
  if (stages.length) {
    const rows = stages.flatMap((stage) => [{ stage: stage.name, kind: "in", tokens: stage.tokens_in }, { stage: stage.name, kind: "out", tokens: stage.tokens_out }]);
    charts.push(chart("Tokens by stage", (Plot) => ({
      marginLeft: 110, x: { grid: true, label: "tokens" }, y: { label: null }, color: { legend: true, domain: ["in", "out"], range: ["#4269d0", "#c2541b"] },
      marks: [Plot.barX(rows, { x: "tokens", y: "stage", fill: "kind" }), Plot.ruleX([0])],
    })));
  }
  return charts.length ? charts : el("p", {}, "This run recorded no times.");
}

const configuration = (tables) => Object.entries(tables).map(([name, values]) =>
  el("details", { open: name === "system" || name === "llm" }, el("summary", {}, foreign(name)),
    el("dl", {}, Object.entries(values).map(([key, value]) =>
      [el("dt", {}, foreign(key)), el("dd", {}, foreign(typeof value === "object" ? JSON.stringify(value) : value))]))));

function differenceTable(differences) {
  return section("Differences", table("Paired, with 95 % intervals; p after Holm's correction",
    ["figure", "run", "other run", "value", "other value", "difference", "interval", "p"],
    differences.map((one) => [one.figure, foreign(one.a), foreign(one.b), score(one.of_a), score(one.of_b),
      el("strong", {}, score(one.difference)), `${score(one.low)} to ${score(one.high)}`, score(one.p_holm)])),
    el("p", {}, el("a", { href: "#/compare" }, "Questions by disagreement")));
}
