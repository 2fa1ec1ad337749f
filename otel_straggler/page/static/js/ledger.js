// The exposed-time ledger: of what the step is made, section by section, and who leads in it.

import { barTree, nameTree, nothingTree, rankTree } from "./bars.js";
import { el, patch } from "./dom.js";
import { formatPercent, formatSeconds, isKnown } from "./format.js";

const MOST_SHADES = 8;

/** A stacked bar of the step, and a row for every section. */
export function createLedger(container, actions) {
  return {
    update(picture) {
      patch(container, picture ? ledgerTree(picture.ledger || [], actions, isAlone(picture)) : null);
    },
  };
}

/** Whether one rank did all the steps: nobody is last of one. */
export function isAlone({ ranks, slowdowns }) {
  const count = (slowdowns?.overall ?? []).filter(isKnown).length || ranks.rank.length;
  return count === 1;
}

/** The ledger as a tree; `isLone`: of a single rank. */
export function ledgerTree(ledger, actions, isLone = false) {
  const known = ledger.filter((line) => isKnown(line.exposed_s));
  if (!known.length) return nothingTree("No step has been analyzed yet.");
  const whole = known.reduce((sum, line) => sum + Math.max(0, line.exposed_s), 0);
  const largest = Math.max(...known.map((line) => Math.max(line.exposed_s, line.typical_s ?? 0)));
  return [
    stackTree(known, whole),
    el(
      "table",
      { class: "rows" },
      el("caption", { class: "visually-hidden" }, "Seconds of the step by section"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col" }, "Section"),
          el("th", { scope: "col", class: "wide" }, "Adds to the step"),
          el("th", { scope: "col", class: "number" }, "Exposed"),
          isLone ? null : el("th", { scope: "col", class: "number spare" }, "Typical rank"),
          isLone ? null : el("th", { scope: "col" }, "Last one"),
        ),
      ),
      el("tbody", {}, known.map((line, place) => lineTree(line, place, whole, largest, isLone, actions))),
    ),
  ];
}

function stackTree(ledger, whole) {
  return el(
    "div",
    { class: "stack", role: "img", "aria-label": `A step of ${formatSeconds(whole)}; the table below lists its parts` },
    ledger.map((line, place) =>
      el(
        "span",
        {
          key: line.section,
          class: `shade shade-${place % MOST_SHADES}`,
          title: `${line.section}: ${formatSeconds(line.exposed_s)}`,
          style: { "flex-grow": whole > 0 ? Math.max(0, line.exposed_s / whole).toFixed(5) : 1 },
        },
        line.exposed_s / whole > 0.12 ? nameTree(line.section) : null,
      ),
    ),
  );
}

function lineTree(line, place, whole, largest, isLone, actions) {
  return el(
    "tr",
    { key: line.section },
    el(
      "th",
      { scope: "row" },
      el("span", { class: `swatch shade-${place % MOST_SHADES}`, "aria-hidden": "true" }),
      el(
        "button",
        {
          type: "button",
          class: "text-link",
          title: "Show this section over time",
          onclick: () => actions.select({ section: line.section }),
        },
        nameTree(line.section),
      ),
    ),
    el("td", { class: "wide" }, barTree(line.exposed_s, largest, "neutral")),
    el(
      "td",
      { class: "number" },
      formatSeconds(line.exposed_s),
      el("small", {}, ` ${formatPercent(whole > 0 ? line.exposed_s / whole : null)}`),
    ),
    isLone ? null : el("td", { class: "number spare" }, formatSeconds(line.typical_s)),
    isLone ? null : el("td", {}, isKnown(line.leader_rank) ? rankTree(line.leader_rank, actions) : el("span", { class: "muted" }, "varies")),
  );
}
