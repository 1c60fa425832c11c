// Graphs with Cytoscape.js. It is loaded when a graph comes into view.

const LABEL = 26; // characters

function colors() {
  const given = getComputedStyle(document.documentElement);
  const read = (name) => given.getPropertyValue(name).trim();
  return { text: read("--text"), soft: read("--soft"), line: read("--line"), box: read("--box"), link: read("--llm"), gold: read("--gold-mark"), work: read("--work"), mark: read("--bad") };
}

const brief = (text) => (text.length > LABEL ? `${text.slice(0, LABEL - 1)}…` : text);

// `nodes`: id, label, size, kind (kept, pruned, entity), gold (its mark or null), joined; `edges`: ends (ids), width, about. `tell` gets what is pointed at.
async function drawGraph(place, nodes, edges, label, tell) {
  const cytoscape = await library("cytoscape.min.js", "cytoscape");
  const color = colors();
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  const around = (at) => ({ x: Math.cos((2 * Math.PI * at) / nodes.length) * 200, y: Math.sin((2 * Math.PI * at) / nodes.length) * 200 }); // so the layout is the same each time
  const drawn = cytoscape({
    container: place,
    elements: [
      ...nodes.map((node, at) => ({ position: around(at), data: { ...node, label: shown(brief(node.label)) }, classes: [node.kind, node.gold === "gold" ? "gold" : node.gold ? "within" : "", node.joined ? "joined" : ""].join(" ") })),
      ...edges.map((edge, at) => ({ data: { id: `edge ${at}`, source: edge.ends[0], target: edge.ends[1], width: edge.width, about: edge.about } })),
    ],
    style: [
      { selector: "node", style: { label: "data(label)", width: "data(size)", height: "data(size)", "font-size": 13, "text-background-color": color.box, "text-background-opacity": 0.7, color: color.text, "text-valign": "bottom", "text-margin-y": 2, "background-color": color.link, "border-width": 1, "border-color": color.soft, "min-zoomed-font-size": 5 } },
      { selector: ".pruned", style: { "background-color": color.box, "border-style": "dashed", "border-width": 1.5, color: color.soft } },
      { selector: ".pruned:unselected", style: { label: "" } },
      { selector: ".pruned.gold", style: { label: "data(label)" } },
      { selector: ".covered:unselected", style: { label: "" } },
      { selector: ".joined", style: { shape: "diamond" } },
      { selector: ".entity", style: { shape: "round-rectangle", "background-color": color.work } },
      { selector: ".gold", style: { "border-width": 4, "border-style": "solid", "border-color": color.gold } },
      { selector: ".within", style: { "border-width": 3, "border-style": "dotted", "border-color": color.gold } },
      { selector: "edge", style: { width: "data(width)", "line-color": color.line, "curve-style": "straight" } },
      { selector: ":selected", style: { "line-color": color.mark, "border-color": color.mark, "border-width": 4 } },
    ],
    layout: { name: "cose", animate: false, randomize: false, padding: 24, boundingBox: { x1: 0, y1: 0, w: place.clientWidth, h: place.clientHeight }, nodeRepulsion: () => 60000, idealEdgeLength: () => 40, gravity: 2 },
    userZoomingEnabled: false, boxSelectionEnabled: false,
  });
  hideCovered(drawn);
  drawn.on("tap select mouseover", "node, edge", (event) => tell(event.target.data(), event.target.isEdge()));
  return drawn;
}

// Of labels that overlap, one stays: a gold passage's before others, then that of the larger node. A selected node has its label.
function hideCovered(drawn) {
  const shownBoxes = [];
  const first = (node) => (node.hasClass("gold") || node.hasClass("within") ? 1000 : 0) + node.data("size");
  for (const node of drawn.nodes().sort((one, other) => first(other) - first(one)).toArray()) {
    if (!node.style("label")) continue;
    const box = node.boundingBox({ includeNodes: false, includeEdges: false, includeLabels: true, includeOverlays: false });
    if (shownBoxes.some((other) => box.x1 < other.x2 && other.x1 < box.x2 && box.y1 < other.y2 && other.y1 < box.y2)) node.addClass("covered");
    else shownBoxes.push(box);
  }
}

// A place for a graph, drawn when it comes into view; with zoom buttons and a line that explains what is pointed at.
function graphView(nodes, edges, label, explain) {
  const place = el("div", { class: "graph" });
  const about = el("p", { class: "about", "aria-live": "polite" }, "Point at a node or an edge.");
  let drawn = null;
  const zoom = (factor) => () => drawn && drawn.zoom({ level: drawn.zoom() * factor, renderedPosition: { x: place.clientWidth / 2, y: place.clientHeight / 2 } });
  const buttons = el("p", { class: "zoom" },
    el("button", { type: "button", on: { click: zoom(1.3) }, "aria-label": "Zoom in" }, "+"),
    el("button", { type: "button", on: { click: zoom(1 / 1.3) }, "aria-label": "Zoom out" }, "−"),
    el("button", { type: "button", on: { click: () => drawn && drawn.fit(undefined, 24) } }, "Fit"));
  const watch = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    watch.disconnect();
    drawGraph(place, nodes, edges, label, (data, isEdge) => about.replaceChildren(...explain(data, isEdge)))
      .then((made) => { drawn = made; place.dataset.drawn = "yes"; })
      .catch((error) => place.replaceChildren(el("p", {}, error.message)));
  });
  watch.observe(place);
  return el("div", { class: "graph-box" }, buttons, place, about);
}
