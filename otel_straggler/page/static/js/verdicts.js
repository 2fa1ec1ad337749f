// All verdicts: who is called slow, who is suspected, who has recovered; and what people decided.

import { nameTree, nothingTree, proseTree, rankTree } from "./bars.js";
import { el } from "./dom.js";
import { othersOf } from "./evidence.js";
import { createFolding, moreTree } from "./folding.js";
import {
  asSentence,
  formatClock,
  formatCount,
  formatLostTime,
  formatNumber,
  formatPercent,
  formatTimes,
  isKnown,
  wordsOf,
} from "./format.js";
import { profilesTree } from "./profiles.js";

const FEW_VERDICTS = 5;
const TONES_OF_STATES = { confirmed: "bad", flapping: "bad", suspect: "watch", recovered: "good", ok: "good" };

/** The list, and below it decisions and maintenance. */
export function createVerdicts(container, actions) {
  return createFolding(container, (picture, isLong, more) => verdictsTree(picture, isLong, more, actions));
}

/** Verdicts, decisions and maintenance as a tree. */
export function verdictsTree(picture, isLong, more, actions) {
  const verdicts = picture.verdicts || [];
  const shown = isLong ? verdicts : verdicts.slice(0, FEW_VERDICTS);
  const leftOut = picture.verdicts_left_out || 0;
  return [
    verdicts.length
      ? el("ul", { class: "cards" }, shown.map((each) => verdictTree(each, picture, actions)))
      : nothingTree("No rank, host or stage has had a slow verdict."),
    moreTree(verdicts.length, FEW_VERDICTS, isLong, more),
    leftOut ? el("p", { class: "nothing", key: "left" }, `${formatNumber(leftOut)} more lose less`) : null,
    profilesTree(picture, actions),
    decisionsTree(picture),
    maintenanceTree(picture),
  ];
}

/** One verdict as a card. */
export function verdictTree(verdict, picture, actions) {
  const tone = verdict.stands ? TONES_OF_STATES[verdict.state] || "unknown" : "good";
  return el(
    "li",
    { key: verdict.subject_id, "data-tone": tone, "data-state": verdict.state },
    el("span", { class: "badge" }, verdict.state),
    el(
      "div",
      {},
      el(
        "p",
        { class: "card-title" },
        subjectTree(verdict, actions),
        verdict.silenced ? el("span", { class: "label" }, "silenced") : null,
        verdict.pages ? el("span", { class: "label strong" }, picture.run.mode === "observe" ? "would page" : "pages") : null,
      ),
      el("p", { dir: "auto" }, proseTree(asSentence(verdict.sentence))),
      el("p", { class: "card-foot" }, factsOf(verdict, picture).map((fact) => el("span", {}, nameTree(fact)))),
    ),
  );
}

function subjectTree(verdict, actions) {
  if (verdict.scope === "rank" && isKnown(verdict.rank)) {
    return [rankTree(verdict.rank, actions), verdict.node ? [" on ", nameTree(verdict.node)] : null];
  }
  if (verdict.scope === "host") return ["host ", nameTree(verdict.node)];
  if (verdict.scope === "role") return ["role ", nameTree(verdict.role)];
  return "the whole run";
}

function factsOf(verdict, picture) {
  const facts = [verdict.cause_text || wordsOf(verdict.cause)];
  if (verdict.section) facts.push(`in ${verdict.section}`);
  if (isKnown(verdict.slowdown)) facts.push(`${formatTimes(verdict.slowdown)} as long as ${othersOf(verdict, "")}`);
  if (isKnown(verdict.since_step)) facts.push(`since step ${formatNumber(verdict.since_step)}`);
  if (isKnown(verdict.since_s)) facts.push(formatClock(verdict.since_s, picture.now_s));
  const perHour = verdict.stands ? verdict.gpu_seconds_lost_per_hour : null;
  if (isKnown(perHour) && perHour >= 1) {
    facts.push(`${formatLostTime(perHour, picture.run.on_gpu)} per hour`);
  }
  if (isKnown(verdict.n_peers) && verdict.n_peers > 0) facts.push(formatCount(verdict.n_peers, "peer"));
  if (isKnown(verdict.confidence) && verdict.stands) facts.push(`${formatPercent(verdict.confidence)} sure`);
  return facts;
}

function decisionsTree(picture) {
  const decisions = [...(picture.decisions || [])].reverse().slice(0, 20);
  if (!decisions.length) return null;
  return el(
    "div",
    { class: "decisions", key: "decisions" },
    el("h3", {}, "Decisions"),
    el("ul", { class: "lines" }, decisions.map((each) => decisionTree(each, picture.now_s))),
  );
}

function decisionTree(decision, nowS) {
  const until = decision.until_ns ? ` until ${formatClock(decision.until_ns / 1e9, nowS)}` : "";
  const by = decision.by ? [" by ", nameTree(decision.by)] : null;
  return el(
    "li",
    { class: decision.is_in_force ? "" : "muted" },
    el("strong", {}, decision.action),
    " ",
    nameTree(decision.subject_id),
    `${until}: `,
    nameTree(decision.reason),
    by,
    `, ${formatClock(decision.at_ns / 1e9, nowS)}`,
    decision.is_in_force ? null : " (no longer in force)",
  );
}

function maintenanceTree(picture) {
  const maintenance = picture.maintenance || [];
  if (!maintenance.length) return null;
  return el(
    "div",
    { class: "decisions", key: "maintenance" },
    el("h3", {}, "Under maintenance: lost ranks there do not page"),
    el(
      "ul",
      { class: "lines" },
      maintenance.map((each) =>
        el(
          "li",
          { key: each.node },
          el("strong", {}, nameTree(each.node)),
          ` until ${formatClock(each.until_s, picture.now_s)}: `,
          nameTree(each.reason),
          each.by ? [" by ", nameTree(each.by)] : null,
        ),
      ),
    ),
  );
}
