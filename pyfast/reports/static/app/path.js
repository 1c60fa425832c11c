// What became of the gold passages, the lists of each step, and a passage.

function goldPath(question) {
  if (!question.gold_paths.length) return null;
  return section("What became of the gold passages", question.gold_paths.map((path) => el("div", { class: "gold-path" },
    el("h3", {}, badge(path.reached ? "reached" : "lost"), " ", foreign(path.uri)),
    el("p", {}, el("strong", {}, foreign(path.outcome))),
    el("ol", { class: "track", "aria-label": "Rank in each list" }, path.ranks.map(([step, list, rank, size]) =>
      el("li", { class: rank === null ? "absent" : "present" },
        el("span", {}, `${step}: ${list}`), el("strong", {}, rank === null ? `not among ${number(size)}` : `rank ${rank} of ${size}`)))))));
}

const isGold = (question, id) => {
  const passage = question.passages[id];
  return Boolean(passage && question.gold && question.gold.supporting.includes(passage.uri));
};

// A passage: a row as a table, a text with the words of the answer marked.
function passageView(question, id, rank, value) {
  const passage = question.passages[id];
  if (!passage) return el("li", {}, el("code", {}, id));
  const gold = isGold(question, id);
  return el("li", { class: gold ? "passage gold" : "passage", value: rank },
    el("details", {},
      el("summary", {}, foreign(passage.title || passage.uri), gold ? badge("gold") : null,
        value === null || value === undefined ? null : el("small", {}, ` ${score(value)}`)),
      el("p", { class: "note" }, foreign(passage.uri), " ", el("code", {}, id)),
      passage.header ? rowView(passage, question) : el("blockquote", {}, marked(passage.text, question), passage.cut ? "…" : "")));
}

function rowView(passage, question) {
  const cells = passage.text.split("\t");
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table row" }, el("table", {},
    el("thead", {}, el("tr", {}, cells.map((_, at) => el("th", { scope: "col" }, foreign(passage.header[at] || `column ${at + 1}`))))),
    el("tbody", {}, el("tr", {}, cells.map((cell) => el("td", {}, el("bdi", {}, marked(cell, question))))))));
}

// The text with the answer and the gold answers marked.
function marked(text, question) {
  const wanted = [question.answer, ...(question.gold ? question.gold.answers : [])].filter((one) => one && one.length > 1);
  const lower = text.toLowerCase();
  const spans = [];
  for (const one of new Set(wanted.map((each) => each.toLowerCase()))) {
    for (let at = lower.indexOf(one); at >= 0 && spans.length < 100; at = lower.indexOf(one, at + one.length)) spans.push([at, at + one.length]);
  }
  spans.sort((a, b) => a[0] - b[0]);
  const parts = [];
  let done = 0;
  for (const [from, to] of spans) {
    if (from < done) continue;
    parts.push(text.slice(done, from), el("mark", {}, text.slice(from, to)));
    done = to;
  }
  return [...parts, text.slice(done)];
}

function pathView(question) {
  const steps = question.path.filter((step) => step.lists.some((list) => list.segments.length));
  return steps.length ? section("Step by step", steps.map((step) => el("div", { class: "step" },
    el("h3", {}, step.name), step.query ? el("p", {}, "Query: ", foreign(step.query)) : null,
    step.lists.filter((list) => list.segments.length).map((list) => listView(question, step, list))))) : null;
}

function listView(question, step, list) {
  const gold = list.segments.filter((id) => isGold(question, id)).length;
  const last = step.name === "answer";
  return el("details", { open: last },
    el("summary", {}, `${list.name}: ${plural(list.segments.length, "passage")}`, gold ? badge("gold", `${gold} gold`) : null),
    el("ol", {}, list.segments.map((id, at) => passageView(question, id, at + 1, last ? question.scores[at] : null))));
}
