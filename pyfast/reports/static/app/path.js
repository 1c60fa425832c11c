// What became of the gold passages, the lists of each step, and a passage.

// A row for each list of the path, a column for each gold document. The cell that lost it is marked.
function goldPath(question) {
  const golds = question.gold_paths;
  if (!golds.length) return question.gold ? section("What became of the gold passages", el("p", {}, "The gold of this question names no passages.")) : null;
  const titleOf = (uri) => (question.gold_documents[uri] || {}).title || uri;
  const queries = new Map(question.path.map((step) => [step.name, step.query]));
  let last = "";
  const rows = golds[0].ranks.map(([step, list, , size], at) => {
    const first = step !== last;
    last = step;
    return el("tr", { class: first ? "begins" : null },
      el("th", { scope: "row" }, first ? step : el("span", { class: "again" }, step), first && queries.get(step) ? el("small", {}, foreign(queries.get(step))) : null),
      el("td", {}, `${list} (${number(size)})`),
      golds.map((gold) => el("td", {}, rankView(gold, at))));
  });
  return section("What became of the gold passages",
    el("ul", { class: "golds" }, golds.map((gold) => el("li", {}, gold.reached ? badge("reached") : badge("lost", gold.lost === null ? "not found" : "lost"), " ",
      el("strong", {}, foreign(titleOf(gold.uri))), titleOf(gold.uri) === gold.uri ? null : [" (", foreign(gold.uri), ")"], ": ", foreign(gold.outcome),
      question.gold_passages[gold.uri] ? el("small", {}, " (the passages with a gold sentence or row)") : null,
      goldDocument(question, gold.uri)))),
    question.evidence.length ? null : el("p", {}, question.system === "subqrag"
      ? "The answer has no evidence: the LLM named no fact and no passage as the source of an answer."
      : "The answer has no evidence."),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Gold passages at each step" }, el("table", { class: "ranks" },
      el("caption", {}, "Rank of each gold passage in the lists of each step"),
      el("thead", {}, el("tr", {}, ["step", "list"].map((head) => el("th", { scope: "col" }, head)), golds.map((gold) => el("th", { scope: "col" }, foreign(titleOf(gold.uri)), titleOf(gold.uri) === gold.uri ? null : el("small", {}, foreign(gold.uri)))))),
      el("tbody", {}, rows))));
}

function rankView(gold, at) {
  const rank = gold.ranks[at][2];
  if (rank !== null) return el("span", { class: "badge reached" }, `rank ${rank}`);
  const again = gold.found_again.find(([place]) => place === at);
  if (at === gold.lost || again) return el("span", { class: "badge lost" }, again ? `lost here, found again in ${again[1]}` : "lost here");
  return el("span", { class: "absent" }, "not in the list");
}

function goldDocument(question, uri) {
  const known = question.gold_documents[uri];
  return known ? partView(question, known.part, null, "Its text") : el("p", { class: "note" }, "The index has no such document.");
}

// Of a gold document; where the gold names sentences or rows, only the passages with them.
const ofGold = (question, id) => {
  const passage = question.passages[id];
  if (!passage || !question.gold || !question.gold.supporting.includes(passage.uri)) return false;
  return (question.gold_passages[passage.uri] || [id]).includes(id);
};

// The mark of such a passage. Where the gold names a document of several passages, nobody knows which of them it means.
const goldMark = (question, id) => {
  if (!ofGold(question, id)) return null;
  const { uri } = question.passages[id];
  return question.gold_passages[uri] || (question.gold_documents[uri] || {}).passage === id ? "gold" : "in a gold document";
};

// How many of the gold passages, or documents, a list has: each counts once, as in the table of ranks.
function goldCount(question, ids) {
  const found = new Set(ids.filter((id) => ofGold(question, id)).map((id) => question.passages[id].uri)).size;
  return found ? [" ", badge("gold", `${found} of ${question.gold_paths.length} gold`)] : null;
}

const EXCERPT = 120; // characters
const excerpt = (text) => foreign(text.length > EXCERPT ? `${text.slice(0, EXCERPT)}…` : text, { class: "excerpt" });

// A passage: a row as a table, a text with the words of the answer marked; around it, if asked for, its document.
function passageView(question, id, rank, value, props) {
  const passage = question.passages[id];
  if (!passage) return el("li", props, el("code", {}, id));
  const gold = goldMark(question, id);
  return el("li", { ...props, class: ["passage", gold === "gold" ? "gold" : "", (props || {}).class || ""].join(" "), value: rank },
    el("details", {},
      el("summary", {}, passage.title ? [foreign(passage.title), " "] : null, gold ? [badge("gold", gold), " "] : null,
        value === null || value === undefined ? null : el("small", {}, `${score(value)} `), excerpt(passage.text.replaceAll("\t", " | "))),
      el("p", { class: "note" }, foreign(passage.uri), " ", el("code", {}, id)),
      passage.header ? rowView(passage, question) : el("blockquote", {}, marked(passage.text, question), passage.cut ? "…" : ""),
      passage.part ? partView(question, passage.part, passage.span, "In its document") : null));
}

// A part of a document, loaded when it is opened. `span`: the characters, rows or triples that are marked.
function partView(question, key, span, title) {
  const inside = el("div", {});
  const open = (event) => {
    if (!event.target.open || inside.firstChild) return;
    loadPart(question, key).then((part) => add(inside, [documentView(question, part, span)])).catch((error) => add(inside, [el("p", {}, error.message)]));
  };
  return el("details", { class: "part", on: { toggle: open } }, el("summary", {}, title), inside);
}

function documentView(question, part, span) {
  const [first, end] = span || [-1, -1];
  const unit = part.text ? "characters" : part.header ? "rows" : "triples";
  const size = (part.text || part.rows || part.triples).length;
  const about = el("p", { class: "note" }, foreign(part.title || part.uri), size < part.of ? `: ${unit} ${number(part.from + 1)} to ${number(part.from + size)} of ${number(part.of)}` : "");
  const isIn = (at) => at + part.from >= first && at + part.from < end;
  if (part.text !== undefined) {
    const [a, b] = [first, end].map((at) => Math.min(Math.max(at - part.from, 0), size));
    return [about, el("blockquote", {}, marked(part.text.slice(0, a), question), b > a ? el("span", { class: "evidence" }, marked(part.text.slice(a, b), question)) : null, marked(part.text.slice(b), question))];
  }
  return [about, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The document's table" }, el("table", {},
    el("thead", {}, el("tr", {}, (part.header || ["head", "relation", "tail"]).map((name) => el("th", { scope: "col" }, foreign(name))))),
    el("tbody", {}, (part.rows || part.triples).map((cells, at) => el("tr", { class: isIn(at) ? "evidence" : null },
      cells.map((cell) => el("td", {}, el("bdi", {}, marked(cell, question)))))))))];
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
  const last = step.name === "answer";
  return el("details", { open: last },
    el("summary", {}, `${list.name}: ${plural(list.segments.length, "passage")}`, goldCount(question, list.segments)),
    el("ol", {}, list.segments.map((id, at) => passageView(question, id, at + 1, last ? question.scores[at] : null))));
}
