// Elements that all charts have around their canvas: head, tools, legend, tooltip, words, table.

import { STRONGEST_SLOWDOWN, heatGradient } from "./colours.js";
import { rankWords, slowdownWords } from "./chart_words.js";
import { NOBODY_WORDS } from "./lone_ranks.js";
import { printableText } from "./dom.js";

/** An element with a class, attributes, and children (elements or text, which may be data). */
export function chartElement(tag, className, attributes = {}, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((it) => (typeof it === "string" ? printableText(it) : it)));
  return element;
}

/** How much larger than usual people want text: charts are drawn in units of so many CSS pixels. */
export function textScale() {
  return parseFloat(getComputedStyle(document.documentElement).fontSize) / 16 || 1;
}

/** A button of the tools over a chart. */
export function chartButton(text, label, onClick) {
  const button = chartElement(
    "button",
    "chart-button",
    { type: "button", "aria-label": label, title: label },
    text,
  );
  button.addEventListener("click", onClick);
  return button;
}

/**
 * A labelled choice. `setOptions([{name, words}], chosen)` keeps the element as it is
 * while nothing has changed, so that an open list does not close.
 */
export function chartChoice(label, onChange) {
  const select = chartElement("select", "chart-select", { "aria-label": label });
  select.addEventListener("change", () => onChange(select.value));
  let shown = "";
  const setOptions = (options, chosen) => {
    const wanted = JSON.stringify(options);
    if (wanted !== shown) {
      select.replaceChildren(
        ...options.map(({ name, words }) => chartElement("option", "", { value: name }, words)),
      );
      shown = wanted;
    }
    if (select.value !== chosen) select.value = chosen;
  };
  return { element: select, setOptions };
}

/** The colours with their figures, and the marks: `marks` are of "flagged", "silent". */
export function chartLegend(marks) {
  const bar = chartElement("span", "chart-scale-bar");
  const ends = [1 / STRONGEST_SLOWDOWN, 1, STRONGEST_SLOWDOWN].map((each, i) =>
    chartElement(
      "span",
      "chart-scale-figure",
      {},
      `${i === 2 ? "≥ " : i === 0 ? "≤ " : ""}${each}x`,
    ),
  );
  const scale = chartElement(
    "span",
    "chart-scale",
    {},
    bar,
    chartElement("span", "chart-scale-figures", {}, ...ends),
  );
  const keys = ["no data", ...marks].map((words) =>
    chartElement(
      "span",
      "chart-key",
      {},
      chartElement("span", `chart-mark chart-mark-${words.replace(" ", "-")}`),
      words,
    ),
  );
  const element = chartElement(
    "div",
    "chart-legend",
    {
      role: "img",
      "aria-label": "Colours: blue is faster than the peers, neutral is even, orange is slower",
    },
    chartElement("span", "chart-scale-word", {}, "faster"),
    scale,
    chartElement("span", "chart-scale-word", {}, "slower"),
    ...keys,
  );
  return {
    element,
    setPalette: (palette) => {
      bar.style.backgroundImage = heatGradient(palette);
    },
  };
}

/** A box beside the pointer; `show(lines, x, y)` in pixels of the host, `hide()`. */
export function chartTooltip(host) {
  const main = chartElement("strong", "");
  const more = chartElement("span", "");
  const element = chartElement("div", "chart-tooltip", { role: "tooltip" }, main, more);
  element.hidden = true;
  host.append(element);
  const show = ([first, ...others], x, y) => {
    main.textContent = printableText(first);
    more.textContent = printableText(others.filter(Boolean).join(" · "));
    element.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = element;
    const left = x + 14 + width > host.clientWidth ? x - 14 - width : x + 14;
    const top = y + 14 + height > host.clientHeight ? y - 10 - height : y + 14;
    element.style.transform = `translate(${Math.round(Math.max(0, left))}px, ${Math.round(top)}px)`;
  };
  return {
    element,
    show,
    hide: () => {
      element.hidden = true;
    },
  };
}

/** Words for screen readers alone, read out when they change. */
export function spokenWords() {
  return chartElement("div", "chart-spoken", { role: "status", "aria-live": "polite" });
}

/**
 * A hidden table of ranks for those who do not see the chart, with a column of its own.
 * `update(worst, wordsOf)`: of factsOfRanks, and what stands in that column of a rank.
 */
export function worstTable(caption, column) {
  const heads = ["rank", "slowdown", column, "state", "flagged"].map((text) =>
    chartElement("th", "", { scope: "col" }, text),
  );
  const body = chartElement("tbody", "");
  const table = chartElement(
    "table",
    "",
    {},
    chartElement("caption", "", {}, caption),
    chartElement("thead", "", {}, chartElement("tr", "", {}, ...heads)),
    body,
  );
  const element = chartElement("div", "chart-spoken", {}, table); // a table takes no width of 1px
  let shown = "";
  const update = (worst, wordsOf) => {
    const rows = worst.map((each) => ({ ...each, words: wordsOf(each.rank) }));
    const wanted = JSON.stringify(rows);
    if (wanted !== shown) body.replaceChildren(...rows.map(rowOfRank)); // who reads it keeps the place
    shown = wanted;
  };
  return { element, update };
}

function rowOfRank({ rank, node, slowdown, isLone, words, state, why }) {
  const cells = [isLone ? NOBODY_WORDS : slowdownWords(slowdown), words, state ?? "unknown", why ?? "no"];
  return chartElement(
    "tr",
    "",
    {},
    chartElement("th", "", { scope: "row" }, rankWords(rank, node)),
    ...cells.map((text) => chartElement("td", "", {}, text)),
  );
}

/** Calls back when the theme changes, by attribute or by the system; returns how to stop. */
export function watchTheme(onChange) {
  const observer = new MutationObserver(onChange);
  observer.observe(document.documentElement, {
    attributes: true,
    attributeFilter: ["data-theme", "class"],
  });
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", onChange);
  return () => {
    observer.disconnect();
    system.removeEventListener("change", onChange);
  };
}
