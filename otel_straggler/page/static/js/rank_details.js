// The side panel: one rank with its sections, its past, its waits, its verdicts, what to run.

import { barTree, commandTree, nameTree, nothingTree } from "./bars.js";
import { el, patch } from "./dom.js";
import { formatAge, formatNumber, formatSeconds, formatTimes, isKnown, wordsOf } from "./format.js";
import { aboutState } from "./rank_states.js";
import { NOBODY_WORDS } from "./lone_ranks.js";
import { sparklineTree } from "./sparkline.js";
import { verdictTree } from "./verdicts.js";

const SLOW_FROM = 1.1;
const CHOICES = ["auto", "off"];

/** Shown while a rank is chosen; Escape closes it, and the focus goes back to where it was. */
export function createRankDetails(container, actions) {
  let opener = null;
  let shown = null;

  function close() {
    actions.select({ rank: null });
  }

  function show(wanted) {
    if (wanted === shown) return;
    shown = wanted;
    const { activeElement: active } = document;
    const isInside = container.contains(active);
    container.hidden = wanted === null;
    document.body.classList.toggle("has-side-panel", wanted !== null);
    if (wanted !== null) {
      if (!isInside) opener = active;
      container.querySelector("h2").focus({ preventScroll: true });
      container.scrollTop = 0;
    } else if (opener?.isConnected && (isInside || active === document.body)) {
      opener.focus({ preventScroll: true });
    }
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && shown !== null && !event.defaultPrevented) close();
  });
  document.addEventListener("focusin", () => {
    window.requestAnimationFrame(() => {
      if (shown !== null && isCovered(document.activeElement, container)) close();
    });
  });

  return {
    update(picture, ui, rank, isSaved) {
      const wanted = picture ? ui.rank : null;
      if (wanted !== null) patch(container, panelTree(picture, ui, rank, { ...actions, close, isSaved }));
      show(wanted);
    },
  };
}

/** Whether the panel lies over an element: who goes on with the keys has to see where the focus is. */
function isCovered(element, panel) {
  if (!element || element === document.body || panel.contains(element)) return false;
  const [one, other] = [element, panel].map((each) => each.getBoundingClientRect());
  return one.left >= other.left - 1 && one.bottom > other.top;
}

/** The panel as a tree; `rank` is null until the collector has answered; `actions` can `close` it. */
export function panelTree(picture, ui, rank, actions) {
  const isIt = rank !== null && rank.rank === ui.rank;
  return [
    el(
      "header",
      { class: "panel-head", key: "head" },
      el("h2", { tabindex: "-1" }, `Rank ${formatNumber(ui.rank)}`),
      el("button", { type: "button", class: "icon-button", "aria-label": "Close", onclick: actions.close }, "✕"),
    ),
    isIt
      ? panelParts(picture, rank, actions)
      : nothingTree(absenceText(picture, ui.rank, actions.isSaved)),
  ];
}

function absenceText(picture, rank, isSaved) {
  if (!picture.ranks.rank.includes(rank)) return "Unknown rank.";
  if (isSaved) return "This report has no details of this rank; the collector's page does.";
  return "No further data yet.";
}

function panelParts(picture, rank, actions) {
  return [
    whereTree(rank),
    sectionsTree(rank, actions),
    waitsOfRank(rank),
    verdictsOfRank(picture, rank, actions),
    droppedTree(rank),
    rank.commands?.length
      ? el("section", { key: "commands" }, el("h3", {}, "To run"), rank.commands.map((each) => commandTree(each, rank.page_url)))
      : null,
  ];
}

function whereTree(rank) {
  const { mark, tone } = aboutState(rank.state);
  const places = Object.entries(rank.parallel || {}).map(([name, value]) => `${name} ${value}`);
  const facts = [
    ["State", el("span", { "data-rank-state": tone }, el("span", { class: "state-mark", "aria-hidden": "true" }, mark), ` ${rank.state ?? "unknown"}`)],
    ["Host", rank.node ? nameTree(rank.node) : null],
    ["Role", rank.role ? nameTree(rank.role) : null],
    ["Place", places.length ? places.join(", ") : null],
    ["Step", isKnown(rank.step) ? formatNumber(rank.step) : null],
    ["Heartbeat", isKnown(rank.heartbeat_age_s) ? `${formatAge(rank.heartbeat_age_s)} ago` : null],
    ["Progress", isKnown(rank.progress_age_s) ? `${formatAge(rank.progress_age_s)} ago` : null],
    ["Open section", rank.open_section ? nameTree(rank.open_section) : null],
    ["GPU", gpuTree(rank.gpu)],
    ["GPU scores", rank.gpu_age_s > 0 ? `of kernels ${formatAge(rank.gpu_age_s)} before the end of the window` : null],
  ].filter(([, shown]) => shown);
  return el(
    "dl",
    { class: "pairs", key: "where" },
    facts.map(([title, shown]) => el("div", { key: title }, el("dt", {}, title), el("dd", {}, shown))),
  );
}

function gpuTree(gpu) {
  if (!gpu || !(gpu.model || gpu.uuid || gpu.tier)) return null;
  const isTold = gpu.model || gpu.uuid || isTimed(gpu);
  const texts = isTold ? [gpu.model, gpu.uuid, timingText(gpu), missingText(gpu)] : ["none reported"];
  return texts.filter(Boolean).map((text) => el("div", { key: text }, nameTree(text)));
}

function isTimed({ tier }) {
  return Boolean(tier) && tier !== "off";
}

/** What times it, and why not more; a choice is no reason. */
function timingText(gpu) {
  if (!gpu.tier) return null;
  const why = gpu.reason && !CHOICES.includes(gpu.reason) ? `: ${wordsOf(gpu.reason)}` : "";
  return isTimed(gpu) ? `timed by ${wordsOf(gpu.tier)}${why}` : `not timed${why}`;
}

/** Executions without their GPU time, which have the host's, and kernels that are in none. */
function missingText({ missing, lost }) {
  const kernels = Object.entries(lost || {}).map(([reason, count]) => `${wordsOf(reason)}: ${formatNumber(count)}`);
  const parts = [missing ? `times missing: ${formatNumber(missing)}` : "", ...kernels];
  return parts.filter(Boolean).join(", ") || null;
}

function sectionsTree(rank, actions) {
  const sections = rank.sections || [];
  if (!sections.length) return el("section", { key: "sections" }, nothingTree("No scored window includes this rank yet."));
  const largest = Math.max(...sections.flatMap((each) => [ownOf(each) ?? 0, peersOwnOf(each) ?? 0]));
  return el(
    "section",
    { key: "sections" },
    el("h3", {}, "Its sections next to its peers"),
    el(
      "ul",
      { class: "section-rows" },
      sections.map((section) => sectionTree(section, largest, rank.history, actions)),
    ),
    el("p", { class: "nothing" }, "Upper bar: own time of this rank per step. Lower bar: median of its role. Line: slowdown over the last windows."),
  );
}

function sectionTree(section, largest, history, actions) {
  const isWork = section.kind !== "wait"; // who waits longer is a victim, not slow
  const isLone = section.n_peers === 0;
  const isSlow = isWork && isKnown(section.slowdown) && section.slowdown >= SLOW_FROM;
  return el(
    "li",
    { key: section.name, "data-tone": isSlow ? "bad" : false },
    el(
      "div",
      { class: "section-head" },
      el(
        "button",
        { type: "button", class: "text-link", title: "Show this section over time", onclick: () => actions.select({ section: section.name }) },
        nameTree(section.name),
      ),
      el("small", {}, ` ${section.kind ?? ""}`),
      isLone ? el("small", {}, NOBODY_WORDS) : el("strong", { class: "number" }, formatTimes(section.slowdown), el("small", {}, " its peers")),
    ),
    el(
      "div",
      { class: "section-body" },
      el(
        "div",
        { class: "section-bars" },
        barTree(ownOf(section), largest, isSlow ? "own" : "neutral"),
        el("span", { class: "number" }, formatSeconds(ownOf(section))),
        isLone ? null : barTree(peersOwnOf(section), largest, "others"),
        isLone ? null : el("span", { class: "number" }, formatSeconds(peersOwnOf(section))),
      ),
      isLone ? null : sparklineTree(pastOf(history, section.name), `Slowdown of ${section.name}`),
    ),
    el("p", { class: "card-foot" }, scoreTexts(section, isLone).map((text) => el("span", {}, text))),
  );
}

/** Own time per step; older collectors report the duration alone. */
function ownOf({ own_s: own, step_s: duration }) {
  return own ?? duration;
}

function peersOwnOf({ peers_own_s: own, peers_step_s: duration }) {
  return own ?? duration;
}

function pastOf(history, name) {
  const place = history?.sections?.indexOf(name) ?? -1;
  return place === -1 ? [] : history.slowdowns[place];
}

function scoreTexts(section, isLone) {
  const scores = [
    ["score", isLone ? null : section.relative_score],
    ["to its own best", section.individual_score],
    ["GPU", section.gpu_relative],
    ["GPU to its own best", section.gpu_individual],
  ].filter(([, score]) => isKnown(score));
  const texts = scores.map(([title, score]) => `${title} ${score.toFixed(2)}`);
  if (isKnown(section.step_s) && isKnown(section.own_s) && section.step_s > section.own_s) {
    texts.push(`duration ${formatSeconds(section.step_s)} a step`);
  }
  if (isKnown(section.median_s)) texts.push(`median run ${formatSeconds(section.median_s)}`);
  return texts;
}

function waitsOfRank(rank) {
  if (!rank.waits) return null;
  const { caused_s: caused, suffered_s: suffered } = rank.waits;
  const largest = Math.max(caused ?? 0, suffered ?? 0);
  return el(
    "section",
    { key: "waits" },
    el("h3", {}, "Waiting"),
    el(
      "div",
      { class: "section-bars with-names" },
      el("span", {}, "made others wait"),
      barTree(caused, largest, "culprit"),
      el("span", { class: "number" }, formatSeconds(caused)),
      el("span", {}, "waited for others"),
      barTree(suffered, largest, "victim"),
      el("span", { class: "number" }, formatSeconds(suffered)),
    ),
  );
}

function verdictsOfRank(picture, rank, actions) {
  const verdicts = rank.verdicts || [];
  return el(
    "section",
    { key: "verdicts" },
    el("h3", {}, "Verdicts"),
    verdicts.length
      ? el("ul", { class: "cards" }, verdicts.map((each, place) => verdictCard(each, place, picture, actions)))
      : nothingTree("No slow verdict."),
  );
}

function verdictCard(verdict, place, picture, actions) {
  const card = verdictTree({ stands: verdict.state !== "recovered" && verdict.state !== "ok", ...verdict }, picture, actions);
  return { ...card, props: { ...card.props, key: place } };
}

function droppedTree(rank) {
  const dropped = Object.entries(rank.dropped || {}).filter(([, count]) => count > 0);
  if (!dropped.length) return null;
  const texts = dropped.map(([reason, count]) => `${reason}: ${formatNumber(count)}`);
  return el(
    "section",
    { key: "dropped" },
    el("h3", {}, "Lost before it arrived"),
    el("p", {}, nameTree(texts.join(", "))),
  );
}
