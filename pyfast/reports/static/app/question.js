// One question: its answer beside the gold, its path, where the time went, and each LLM call.

function questionView(question, run) {
  return el("article", {},
    el("h1", {}, foreign(question.question || question.id)),
    run === null ? null : runTabs(run, "question", "", question.id),
    answerView(question),
    goldPath(question),
    pictureOf(question),
    pathView(question),
    section("Where the time went", waterfall(question.ledger)),
    callsView(question),
    section("Trace", el("details", {}, el("summary", {}, "The trace as it was written"),
      el("pre", { tabindex: "0" }, JSON.stringify(question.trace, null, 2)))));
}

function answerView(question) {
  const { gold, figures, usage, ledger } = question;
  const pairs = [
    ["State", [badge(question.state), question.reason ? [" ", foreign(question.reason)] : null]],
    ["Answer", el(question.answer === null ? "span" : "strong", { class: "answer" }, answerText(question.answer, question.state))],
    gold ? ["Gold answer", gold.answers.length ? gold.answers.map((one, at) => [at ? "; " : "", foreign(one)])
      : gold.answerable ? "(no gold answer)" : "(none, so abstaining is correct)"] : null,
    Object.keys(figures).length ? ["Scores", Object.entries(figures).map(([name, value]) => el("span", { class: "figure" }, `${name} `, el("strong", {}, score(value))))] : null,
    ["Time", seconds(ledger.seconds)],
    ["Usage", `${plural(usage.llm_calls, "LLM call")}, ${number(usage.prompt_tokens)} tokens in (${number(ledger.cached_tokens || 0)} cached), ${number(usage.completion_tokens)} out`],
    ["System", foreign(question.system)],
    ["Id", foreign(question.id)],
    question.conversation ? ["Conversation", foreign(question.conversation)] : null,
  ];
  return el("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

// A bar for each stage; calls one after another where the run recorded no moments.
function waterfall(ledger) {
  const spans = spansOf(ledger);
  const end = Math.max(...spans.map((span) => span.start + span.queued + span.running), 0.001);
  if (!spans.length) return el("p", {}, "This run recorded no times.");
  const share = (value) => `${Math.max((100 * value) / end, 0.3)}%`;
  return [
    ledger.spans ? null : el("p", { class: "note" }, "This run recorded no start times, so the stages are shown one after another."),
    el("ol", { class: "waterfall" }, spans.map((span) => el("li", {},
      el("span", { class: "name" }, foreign(span.name), span.calls > 1 ? ` × ${span.calls}` : ""),
      el("span", { class: "bars", "aria-hidden": "true" },
        el("span", { class: "queued", style: { "margin-left": `${(100 * span.start) / end}%`, width: share(span.queued) } }),
        el("span", { class: span.role ? "running llm" : "running", style: { width: share(span.running) } })),
      el("span", { class: "time" }, `${seconds(span.queued / 1000)} queued, ${seconds(span.running / 1000)} running`)))),
    el("p", { class: "note legend" }, el("span", { class: "key queued" }), " queued ", el("span", { class: "key running llm" }),
      " LLM ", el("span", { class: "key running" }), " retrieval and graph work"),
  ];
}

function spansOf(ledger) {
  if (ledger.spans) {
    const roles = new Map(ledger.stages.map((stage) => [stage.name, stage.role]));
    return Object.entries(ledger.spans).flatMap(([name, spans]) => spans.map(([start, queued, running]) =>
      ({ name, role: roles.get(name), calls: 1, start: start / 1000, queued: queued / 1000, running: running / 1000 })))
      .sort((a, b) => a.start - b.start);
  }
  let start = 0;
  return ledger.stages.map((stage) => {
    const span = { name: stage.name, role: stage.role, calls: stage.calls, start, queued: stage.queued_ms, running: stage.running_ms };
    start += stage.queued_ms + stage.running_ms;
    return span;
  });
}

function callsView(question) {
  if (!question.calls.length) return null;
  return section(plural(question.calls.length, "LLM call"), question.calls.map((call, at) => {
    const done = call.completion;
    const tokens = done ? `${number(done.prompt_tokens)} in (${number((100 * done.cached_tokens) / Math.max(done.prompt_tokens, 1))} % cached), ${number(done.completion_tokens)} out, ${done.finish_reason}` : "";
    return el("details", { class: "call" },
      el("summary", {}, `${at + 1}. `, foreign(call.prompt || "(name not kept)"), call.role ? [" by ", foreign(call.role)] : null, ` ${tokens}`, call.error ? badge("failed") : null),
      call.messages === null ? el("p", { class: "note" }, "The run kept no prompts.")
        : call.messages.length ? call.messages.map((message) => el("div", {}, el("h4", {}, foreign(message.role)), el("pre", { tabindex: "0" }, message.content)))
          : el("p", { class: "note" }, "The prompt consisted of embeddings of a graph's nodes."),
      el("h4", {}, "reply"), el("pre", { tabindex: "0" }, done ? done.text : call.error || ""));
  }));
}
