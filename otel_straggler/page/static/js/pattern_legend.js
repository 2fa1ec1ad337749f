// What the patterns of the matrix mean: a small picture and words for each, the one that is there
// marked.

import { chartElement } from "./chart_dom.js";

const PATTERN_SVG = "http://www.w3.org/2000/svg";
const SIDE = 4;

/** Which cells of a small picture are hot, and what it means. */
export const HEAT_PATTERNS = [
  {
    name: "hot_cell",
    words: "one hot cell",
    meaning: "its GPU, its host or its data",
    isHot: (row, column) => row === 1 && column === 2,
  },
  {
    name: "hot_row",
    words: "a hot row",
    meaning: "an uneven pipeline stage",
    isHot: (row) => row === SIDE - 1,
  },
  {
    name: "hot_column",
    words: "a hot column",
    meaning: "one data rank is slow in all stages: its host or its data",
    isHot: (_, column) => column === 2,
  },
  {
    name: "spread",
    words: "heat everywhere",
    meaning: "uneven sequences, or pauses on changing ranks",
    isHot: (row, column) => (row * 3 + column * 5) % 4 < 2,
  },
  {
    name: "silent",
    words: "hatched",
    meaning: "a worker is silent or stuck",
    isHot: () => false,
    isSilent: (row, column) => row === 1 && column === 2,
  },
  { name: "even", words: "even", meaning: "all workers are equally fast", isHot: () => false },
];

/** Where charts stand next to each other. */
const WIDE = "(min-width: 52rem)";

/**
 * `update(pattern, hasRoom)` marks one of them; null or unknown marks none. Open at first where there
 * is room that would be empty, else folded; later as people leave it.
 */
export function createPatternLegend(container) {
  const items = new Map(HEAT_PATTERNS.map((pattern) => [pattern.name, legendItem(pattern)]));
  const list = chartElement(
    "ul",
    "pattern-legend",
    { "aria-label": "Pattern legend" },
    ...items.values(),
  );
  const summary = chartElement("summary", "", {}, "What the patterns mean");
  const folding = chartElement("details", "pattern-folding", {}, summary, list);
  container.append(folding);
  let isLaid = false;
  const update = (pattern, hasRoom) => {
    if (!isLaid) folding.open = hasRoom && window.matchMedia(WIDE).matches;
    isLaid = true;
    for (const [name, item] of items) {
      if (name === pattern) item.setAttribute("aria-current", "true");
      else item.removeAttribute("aria-current");
    }
  };
  return { update, destroy: () => folding.remove() };
}

function legendItem({ words, meaning, isHot, isSilent }) {
  const text = chartElement(
    "span",
    "pattern-words",
    {},
    chartElement("strong", "", {}, words),
    chartElement("span", "", {}, meaning),
  );
  return chartElement("li", "pattern-item", {}, patternPicture(isHot, isSilent), text);
}

function patternPicture(isHot, isSilent = () => false) {
  const picture = document.createElementNS(PATTERN_SVG, "svg");
  const set = (element, attributes) =>
    Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
  set(picture, { viewBox: "0 0 32 32", class: "pattern-picture", "aria-hidden": "true" });
  for (let place = 0; place < SIDE * SIDE; place += 1) {
    const [row, column] = [Math.floor(place / SIDE), place % SIDE];
    const look = isSilent(row, column) ? "silent" : isHot(row, column) ? "hot" : "even";
    const cell = document.createElementNS(PATTERN_SVG, "rect");
    set(cell, {
      x: column * 8 + 0.75,
      y: row * 8 + 0.75,
      width: 6.5,
      height: 6.5,
      rx: 1.2,
      class: `pattern-cell pattern-${look}`,
    });
    picture.append(cell);
    if (look === "silent") picture.append(strokesOf(column * 8, row * 8, set));
  }
  return picture;
}

function strokesOf(x, y, set) {
  const strokes = document.createElementNS(PATTERN_SVG, "path");
  set(strokes, {
    d: `M${x + 1.2} ${y + 4}l2.8-2.8M${x + 1.2} ${y + 6.8}l5.6-5.6M${x + 4} ${y + 6.8}l2.8-2.8`,
    class: "pattern-strokes",
  });
  return strokes;
}
