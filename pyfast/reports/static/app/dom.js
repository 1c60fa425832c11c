// Elements are made of text nodes alone: nothing that a document, a user or a model wrote becomes HTML.

const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]/g;

// The text with control characters, and those that turn the direction of writing, as visible codes.
function shown(text) {
  return String(text).replace(CONTROLS, (letter) =>
    `⟨U+${letter.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

// An element. `props`: attributes; `on` a map of listeners; `style` a map of CSS properties. Links stay on the page.
function el(tag, props, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (name === "style") for (const [key, one] of Object.entries(value)) made.style.setProperty(key, one);
    else if (name === "href" && !String(value).startsWith("#/")) continue;
    else made.setAttribute(name, value === true ? "" : shown(value));
  }
  add(made, children);
  return made;
}

function add(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(shown(child)));
  }
}

// Text of a document, a user or a model, apart from the direction of writing around it.
const foreign = (text, props) => el("bdi", props, text);

// The answer, or in words that there is none.
const answerText = (answer, state) =>
  answer === null ? (state === "failed" ? "(none: the question failed)" : "(none: the system abstained)")
    : answer.trim() ? foreign(answer) : "(an empty text)";

const number = (value, digits = 0) =>
  value === null || value === undefined ? "–"
    : Number(value).toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });

const seconds = (value) =>
  value === null || value === undefined ? "–" : value < 1 ? `${number(value * 1000, value < 0.01 ? 1 : 0)} ms` : `${number(value, 2)} s`;

const score = (value) => (value === null || value === undefined ? "–" : number(value, 3));

const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

function table(caption, heads, rows, props) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", props,
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, heads.map((head) => (head === null ? null : el("th", { scope: "col" }, head))))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, at) => (heads[at] === null ? null : el("td", {}, cell))))))));
}

const section = (title, ...children) => el("section", {}, el("h2", {}, title), children);

const badge = (state, text) => el("span", { class: `badge ${/^[a-z-]+$/.test(state) ? state : ""}` }, text || state);

const address = (...parts) => `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
