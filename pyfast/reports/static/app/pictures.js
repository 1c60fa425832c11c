// The picture of each system.

const PICTURES = { n2n: hops, decompose: hops, subqrag: chain, mtqa: matrix, hseq: windows, graph_convqa: conversation };

function pictureOf(question) {
  const draw = PICTURES[question.system];
  const drawn = draw ? draw(question) : null;
  return drawn ? section("What the system did", drawn) : null;
}

const nameOf = (question, id) => {
  const passage = question.passages[id];
  return passage ? passage.title || passage.text || passage.uri : id;
};

// N2N: the plan, and the evidence graph of each hop.
function hops(question) {
  const { trace, graphs } = question;
  const plan = (trace.hops || []).map((hop) => el("li", {}, foreign(hop.query),
    hop.entity ? [" → ", el("strong", {}, foreign(hop.entity))] : null, hop.stopped ? [" – stopped: ", foreign(hop.stopped)] : null));
  return [
    plan.length ? [el("h3", {}, "Plan"), trace.plan_degraded ? el("p", { class: "note" }, "Fault in the plan: ", foreign(trace.plan_degraded)) : null, el("ol", {}, plan)] : null,
    graphs.map((graph) => evidenceGraph(question, graph)),
  ];
}

// The nodes with their ranks, the edges with their terms.
function unfolded(question, graph) {
  const lists = question.path.find((step) => step.name === graph.step).lists;
  const last = lists[0].name === "candidates" ? question.path.at(-1).lists : lists; // the answer reads the final graph
  const ranks = (list) => new Map(list.segments.map((id, at) => [id, at + 1]));
  const retrieved = ranks(lists[0]), kept = ranks(last.at(-1));
  let done = 0;
  return {
    step: graph.step,
    nodes: graph.nodes.map((id) => ({ id, kept: kept.get(id) || null, retrieved: retrieved.get(id) || null })),
    edges: graph.weights.map((weight, at) => ({ weight, ends: graph.ends.slice(2 * at, 2 * at + 2), terms: graph.terms.slice(done, (done += graph.counts[at])) })),
  };
}

function evidenceGraph(question, folded) {
  const graph = unfolded(question, folded);
  const size = (rank) => Math.max(46 - 2 * rank, 14);
  const nodes = graph.nodes.map((node) => ({
    id: node.id, label: nameOf(question, node.id), size: size(node.kept || node.retrieved || 20),
    kind: node.kept ? "kept" : "pruned", gold: goldMark(question, node.id), joined: node.retrieved === null,
  }));
  const heaviest = Math.max(...graph.edges.map((edge) => edge.weight), 1e-9);
  const edges = graph.edges.map((edge) => ({
    ends: edge.ends.map((at) => graph.nodes[at].id), width: 0.8 + (4 * edge.weight) / heaviest, about: edge,
  }));
  const kept = graph.nodes.filter((node) => node.kept).length;
  const joined = graph.nodes.filter((node) => node.retrieved === null).length;
  const label = `Evidence graph of ${graph.step}: ${graph.nodes.length} nodes, ${kept} kept, ${graph.edges.length} edges. The table below has the same nodes.`;
  const explain = (data, isEdge) => isEdge
    ? [foreign(nameOf(question, data.source)), " – ", foreign(nameOf(question, data.target)), `: weight ${score(data.about.weight)}, shared terms: `, el("strong", {}, foreign(data.about.terms.join(", ") || "only those of the question"))]
    : [foreign(nameOf(question, data.id)), `: ${fate(graph.nodes.find((node) => node.id === data.id))}`, data.gold ? [" ", badge("gold", data.gold)] : ""];
  return [
    el("h3", {}, `Evidence graph: ${graph.step}`),
    el("p", { class: "note" }, `${plural(graph.nodes.length - joined, "node")} retrieved, ${joined} joined by expansion, ${kept} kept. Larger: ranked higher. `,
      el("span", { class: "key kept" }), " kept ", el("span", { class: "key pruned" }), " pruned ", el("span", { class: "key goldring" }), " gold ", el("span", { class: "key goldring within" }), " in a gold document ", "◆ joined by expansion"),
    graphView(nodes, edges, label, explain),
    el("details", {}, el("summary", {}, "Nodes and edges as tables"),
      table(`Nodes of ${graph.step}`, ["passage", "fate", "gold"], graph.nodes.map((node) => [foreign(nameOf(question, node.id)), fate(node), goldMark(question, node.id) ? badge("gold", goldMark(question, node.id)) : ""])),
      table(`Strongest edges of ${graph.step}`, ["passage", "passage", "weight", "shared terms"], graph.edges.map((edge) =>
        [...edge.ends.map((at) => foreign(nameOf(question, graph.nodes[at].id))), score(edge.weight), foreign(edge.terms.join(", "))]))),
  ];
}

const fate = (node) =>
  `${node.retrieved ? `retrieved at rank ${node.retrieved}` : "joined by expansion"}, ${node.kept ? `kept at rank ${node.kept}` : "pruned"}`;

const SOURCES = { graph: "answered from the knowledge graph", documents: "answered from passages", nothing: "no answer found" };

// SubQRAG: the chain of sub-questions.
function chain(question) {
  const { path = [], learned = [] } = question.trace;
  return [
    el("ol", { class: "chain" }, path.map((branches, at) => el("li", {}, branches.map((step, branch) => el("div", { class: "box" },
      el("h3", {}, `sub-question ${at + 1}${branches.length > 1 ? `.${branch + 1}` : ""}`),
      el("p", {}, el("strong", {}, foreign(step.question)), " ", badge(step.source === "nothing" ? "lost" : "reached", SOURCES[step.source] || step.source)),
      el("p", {}, "→ ", foreign(step.answers.join("; ") || "no answer")),
      step.triples.length ? table("Used triples", ["head", "relation", "tail"], step.triples.map((triple) => triple.map((part) => foreign(part)))) : null,
      passagesOf(question, "facts' sources", step.facts), passagesOf(question, "documents", step.documents), passagesOf(question, "used", step.used),
      step.degraded ? el("p", { class: "note" }, foreign(step.degraded.join("; "))) : null))))),
    learned.length ? table("Triples learned on the way", ["head", "relation", "tail", "from"], learned.map((one) =>
      [foreign(one.head), foreign(one.relation), foreign(one.tail), foreign(nameOf(question, one.segment))])) : null,
  ];
}

function passagesOf(question, title, ids) {
  if (!ids || !ids.length) return null;
  return el("details", {}, el("summary", {}, `${title}: ${plural(ids.length, "passage")}`, goldCount(question, ids)),
    el("ol", {}, ids.map((id, at) => passageView(question, id, at + 1))));
}

// MTQA: the matrix of thought. A column begins with its units and ends with its summary.
function matrix(question) {
  const columns = question.trace.columns || [];
  if (!columns.length) return null;
  const rows = Math.max(...columns.map((column) => column.thoughts.length));
  const weight = (row, at) => question.weights && question.weights[row - 1] ? question.weights[row - 1][at] : null;
  const cell = (column, row, at) => {
    const seen = column.seen[row];
    const passed = row ? `sees ${plural(seen, "paragraph")} of the thought above${weight(row, at) === null ? "" : `, weight ${number(weight(row, at), 2)}`}` : "";
    return el("td", {}, passed ? el("p", { class: seen ? "passes" : "note" }, seen ? "↓ " : "", passed) : null,
      (column.thoughts[row] || []).map((paragraph) => el("p", {}, foreign(paragraph))));
  };
  return [
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Matrix of thought" }, el("table", { class: "matrix" },
      el("caption", {}, "Columns from left to right: each continues from the summary before it"),
      el("thead", {}, el("tr", {}, el("td", {}), columns.map((_, at) => el("th", { scope: "col" }, `column ${at + 1}`)))),
      el("tbody", {},
        Array.from({ length: rows }, (_, row) => el("tr", {}, el("th", { scope: "row" }, `thought ${row + 1}`), columns.map((column, at) => cell(column, row, at)))),
        el("tr", {}, el("th", { scope: "row" }, "summary"), columns.map((column) => el("td", {}, column.summary.map((paragraph) => el("p", {}, foreign(paragraph)))))),
        el("tr", {}, el("th", { scope: "row" }, "knowledge"), columns.map((column) => el("td", {},
          passagesOf(question, "for the thoughts", column.units), passagesOf(question, "for the summary", column.correcting), passagesOf(question, "in prompts", column.shown),
          column.degraded ? el("p", { class: "note" }, foreign(column.degraded.join("; "))) : null)))))),
  ];
}

// HSEQ: a window for each step; what was picked from it, and whether that was enough.
function windows(question) {
  const { guidance = {}, steps = [], ended } = question.trace;
  return [
    guidance.text ? el("p", {}, el("strong", {}, `Guidance (${guidance.source}): `), foreign(guidance.text)) : null,
    el("ol", { class: "chain" }, steps.map((step, at) => {
      const picked = new Map((step.picked || []).map((one) => [one.id, one.label]));
      return el("li", {}, el("div", { class: "box" },
        el("h3", {}, `step ${at + 1}`),
        el("p", {}, `Window of ${plural(step.window.length, "segment")}, ${number(picked.size)} picked`, goldCount(question, step.window), " ", badge(step.score >= 1 ? "reached" : "open", `sufficiency ${number(step.score, 2)}`),
          step.expand ? ` then ${step.expand}` : "", step.note ? [" – ", foreign(step.note)] : null),
        el("ol", { class: "window" }, step.window.map((id, at) => passageView(question, id, at + 1, null, { class: picked.has(id) ? "picked" : "" })))));
    })),
    ended ? el("p", {}, "Ended: ", foreign(ended), question.trace.supporting ? `; the answer names ${plural(question.trace.supporting.length, "segment")} as support` : "") : null,
    question.trace.settle ? el("p", {}, "The verifier asked for: ", foreign(question.trace.settle)) : null,
  ];
}

// graph_convqa: the conversation, the evidence with its memory, and the graph of its entities.
function conversation(question) {
  const { trace, turns } = question;
  const evidence = question.evidence;
  const retrieved = new Set(trace.retrieved || []);
  const remembered = trace.retrieved ? evidence.filter((id) => !retrieved.has(id)) : [];
  const text = (id) => (question.passages[id] ? question.passages[id].text : id);
  const entities = (trace.entities || []).slice(0, 40);
  const nodes = [
    ...evidence.map((id, at) => ({ id, label: text(id), size: Math.max(30 - at, 10), kind: retrieved.has(id) || !trace.retrieved ? "kept" : "pruned", gold: goldMark(question, id), joined: remembered.includes(id) })),
    ...entities.map((name, at) => ({ id: `entity ${at}`, label: name, size: 14, kind: "entity" })),
  ];
  const edges = entities.flatMap((name, at) => evidence.filter((id) => text(id).includes(name)).map((id) => ({ ends: [`entity ${at}`, id], width: 1.2, about: name })));
  const dropped = ["items_dropped", "turns_dropped"].filter((name) => trace[name]).map((name) => `${name.replace("_", " ")}: ${trace[name]}`);
  return [
    turns.length > 1 ? [el("h3", {}, "Conversation"), el("ol", {}, turns.map((turn) => el("li", { class: turn.id === question.id ? "picked" : "" },
      turn.id === question.id || store.single ? foreign(turn.question) : el("a", { href: location.hash.replace(encodeURIComponent(question.id), encodeURIComponent(turn.id)) }, foreign(turn.question)))))] : null,
    el("p", {}, "Query: ", foreign(trace.query || "")),
    el("p", { class: "note" }, `${plural(evidence.length, "evidence item")}, ${remembered.length} from memory`,
      trace.nodes ? `; token graph of ${number(trace.nodes)} nodes and ${number(trace.edges)} edges` : "", dropped.length ? `; ${dropped.join(", ")}` : ""),
    entities.length ? el("p", { class: "note" }, el("span", { class: "key kept" }), " evidence, larger: ranked higher ", remembered.length ? "◇ evidence from memory " : null, el("span", { class: "key entity" }), " entity; an edge joins it to the evidence that names it ",
      nodes.some((node) => node.gold === "gold") ? [el("span", { class: "key goldring" }), " gold "] : null,
      nodes.some((node) => node.gold && node.gold !== "gold") ? [el("span", { class: "key goldring within" }), " in a gold document"] : null) : null,
    entities.length ? graphView(nodes, edges, `Evidence items and the ${entities.length} entities that they name`, (data, isEdge) =>
      isEdge ? [foreign(data.about), " is named in: ", foreign(text(data.target))] : [foreign(data.kind === "entity" ? data.label : text(data.id)), data.gold ? [" ", badge("gold", data.gold)] : "", data.joined ? [" ", badge("open", "from memory")] : ""]) : null,
    trace.nodes ? el("details", {}, el("summary", {}, "Token graph"), tokenGraph(evidence.slice(0, evidence.length - (trace.items_dropped || 0)).map(text), trace)) : null,
    passagesOf(question, "from memory", remembered),
  ];
}

const WORDS = 160; // nodes that a reader can still tell apart

// The graph that the LLM read, with words in place of tokens: a chain for each item, and an edge from the end of a mention of an
// entity to the start of each other mention. The first items, as many as fit.
function tokenGraph(items, trace) {
  const nodes = [], edges = [], mentions = new Map();
  let drawn = 0;
  for (const item of items) {
    const words = item.split(/\s+/).filter(Boolean);
    if (drawn && nodes.length + words.length > WORDS) break;
    drawn += 1;
    const first = nodes.length;
    words.slice(0, WORDS).forEach((word, at) => {
      nodes.push({ id: `word ${first + at}`, label: word, size: 12, kind: "kept", about: item });
      if (at) edges.push({ ends: [`word ${first + at - 1}`, `word ${first + at}`], width: 1, about: "the next word" });
    });
    const known = words.slice(0, WORDS).map(bare);
    for (const name of trace.entities || []) {
      const parts = name.split(/\s+/).map(bare);
      for (let at = 0; at + parts.length <= known.length; at += 1) {
        if (!parts.every((part, place) => part && part === known[at + place])) continue;
        mentions.set(name, [...(mentions.get(name) || []), [first + at, first + at + parts.length - 1]]);
      }
    }
  }
  for (const [name, places] of mentions) {
    for (const [start, end] of places) for (let at = start; at <= end; at += 1) nodes[at].kind = "entity";
    for (const [, end] of places) {
      for (const [start] of places) if (start > end) edges.push({ ends: [`word ${end}`, `word ${start}`], width: 2.5, about: name });
    }
  }
  const label = `Token graph of ${drawn} of ${plural(items.length, "item")}: ${nodes.length} words, ${mentions.size} entities`;
  return [
    el("p", { class: "note" }, `Words stand for tokens. Each of the first ${drawn} of ${items.length} evidence items is a chain; thick edges join mentions of the same entity.`),
    graphView(nodes, edges, label, (data, isEdge) => [foreign(data.about)]),
  ];
}

const bare = (word) => word.replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "");
