// Operators of a slow rank next to those of a healthy peer, the largest difference first.

import { nameTree, proseTree, rankTree } from "./bars.js";
import { el } from "./dom.js";
import { formatNumber, formatSeconds, formatTimes, isKnown } from "./format.js";

const MAX_PAIRS = 2;
const FEW_OPERATORS = 5;

/** The newest pairs: a sentence each, and a table of operators; empty without a profile. */
export function profilesTree(picture, actions) {
  const pairs = (picture.profiles || []).slice(0, MAX_PAIRS);
  if (!pairs.length) return null;
  return el(
    "div",
    { class: "profiles", key: "profiles" },
    el("h3", {}, "Profiles, operator by operator"),
    pairs.map((pair) => [
      el("p", { dir: "auto" }, proseTree(pair.sentence)),
      pair.operators.length ? operatorsTree(pair, pair.operators.slice(0, FEW_OPERATORS), actions) : null,
      othersTree(pair, actions),
    ]),
  );
}

/** The operators that differ less, folded. */
function othersTree(pair, actions) {
  const others = pair.operators.slice(FEW_OPERATORS);
  if (!others.length) return null;
  return el(
    "details",
    {},
    el("summary", {}, `${formatNumber(others.length)} operators that differ less`),
    operatorsTree(pair, others, actions),
  );
}

function operatorsTree(pair, operators, actions) {
  return el(
    "table",
    { class: "rows" },
    el("caption", { class: "visually-hidden" }, "Seconds a step of each operator, on both ranks"),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("th", { scope: "col" }, "Operator, a step"),
        el("th", { scope: "col", class: "number" }, rankTree(pair.slow_rank, actions)),
        el("th", { scope: "col", class: "number" }, rankTree(pair.peer_rank, actions)),
        el("th", { scope: "col", class: "number" }, "Ratio"),
        el("th", { scope: "col", class: "number spare" }, "Calls"),
      ),
    ),
    el("tbody", {}, operators.map(operatorTree)),
  );
}

function operatorTree(each) {
  const calls = [each.slow_calls, each.peer_calls].map(formatNumber).join(" / ");
  return el(
    "tr",
    { key: each.name },
    el("th", { scope: "row" }, nameTree(each.name)),
    el("td", { class: "number" }, formatSeconds(each.slow_s)),
    el("td", { class: "number" }, formatSeconds(each.peer_s)),
    el("td", { class: "number" }, isKnown(each.ratio) ? formatTimes(each.ratio) : ""),
    el("td", { class: "number spare" }, calls),
  );
}
