// Culprits and victims: who made others wait, and who waited for others.

import { barTree, nameTree, nothingTree, rankTree } from "./bars.js";
import { el } from "./dom.js";
import { isAlone } from "./ledger.js";
import { createFolding, moreTree } from "./folding.js";
import { formatSeconds, isKnown } from "./format.js";

const FEW_WAITS = { wide: 8, narrow: 4 };
const NARROW = "(max-width: 40rem)";

/** Two bars a rank: to the left what it waited, to the right what it made others wait. */
export function createWaits(container, actions) {
  return createFolding(container, (picture, isLong, more) => waitsTree((!isAlone(picture) && picture.waits) || [], isLong, more, actions));
}

/** The waits as a tree; those who cause most come first. */
export function waitsTree(waits, isLong, more, actions) {
  if (!waits.length) return nothingTree("No rank has waited for another yet.");
  const few = globalThis.matchMedia?.(NARROW).matches ? FEW_WAITS.narrow : FEW_WAITS.wide;
  const shown = isLong ? waits : waits.slice(0, few);
  const largest = Math.max(...waits.flatMap((each) => [each.caused_s ?? 0, each.suffered_s ?? 0]));
  return [
    el(
      "table",
      { class: "rows waits" },
      el("caption", { class: "visually-hidden" }, "Seconds waited since the start, by rank"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col" }, "Rank"),
          el("th", { scope: "col", colspan: "2", class: "to-left" }, el("span", { "aria-hidden": "true" }, "◂ "), "waited for others"),
          el("th", { scope: "col", colspan: "2" }, "made others wait", el("span", { "aria-hidden": "true" }, " ▸")),
        ),
      ),
      el("tbody", {}, shown.map((each) => waitTree(each, largest, actions))),
    ),
    moreTree(waits.length, few, isLong, more),
  ];
}

function waitTree(each, largest, actions) {
  const isCulprit = (each.caused_s ?? 0) > (each.suffered_s ?? 0);
  return el(
    "tr",
    { key: each.rank, "data-part-in-it": isCulprit ? "culprit" : "victim" },
    el(
      "th",
      { scope: "row", class: "who" },
      rankTree(each.rank, actions),
      each.node ? [" ", el("small", {}, nameTree(each.node))] : null,
    ),
    el("td", { class: "number" }, isKnown(each.suffered_s) ? formatSeconds(each.suffered_s) : ""),
    el("td", { class: "half to-left" }, barTree(each.suffered_s, largest, "victim")),
    el("td", { class: "half" }, barTree(each.caused_s, largest, "culprit")),
    el("td", { class: "number to-start" }, isKnown(each.caused_s) ? formatSeconds(each.caused_s) : ""),
  );
}
