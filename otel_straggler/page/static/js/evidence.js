// What the answer rests on, drawn: own time beside that of the peers, silence beside that of the
// others, or how all ranks spread.

import { barTree, nameTree } from "./bars.js";
import { el } from "./dom.js";
import {
  asSentence,
  formatAge,
  formatCount,
  formatNumber,
  formatSeconds,
  formatTimes,
  isKnown,
} from "./format.js";
import { isOver } from "./rank_states.js";

const BINS = 40;
const LEAST_SPREAD = 0.1;

/** The drawing that fits the answer; null where nothing is known to draw. */
export function evidenceTree(picture) {
  const { answer } = picture;
  if (answer.kind === "hang") return standstillTree(picture);
  return peersTree(answer) || spreadTree(picture);
}

/** Its own time beside that of its peers. */
function peersTree(answer) {
  const peers = answer.peers;
  if (!peers || !isKnown(peers.own_s) || !isKnown(peers.peers_s)) return null;
  const largest = Math.max(peers.own_s, peers.peers_s);
  const others = isKnown(peers.n_peers) && peers.n_peers > 0 ? `${formatNumber(peers.n_peers)} ` : "";
  return evidenceFigure(
    [
      el("strong", {}, formatTimes(peers.slowdown)),
      ` as long as ${othersOf(answer, others)}`,
      answer.section ? [" in ", nameTree(answer.section)] : null,
    ],
    comparedRow(whoAnswered(answer), peers.own_s, largest, "own", formatSeconds(peers.own_s)),
    comparedRow(othersOf(answer, others), peers.peers_s, largest, "others", formatSeconds(peers.peers_s)),
  );
}

/** Who does not get on: since when nothing is heard of it, or how far it has come. */
function standstillTree(picture) {
  const { answer, ranks } = picture;
  const places = culpritsOf(picture).map((rank) => ranks.rank.indexOf(rank)).filter((place) => place !== -1);
  if (!places.length) return null;
  return answer.cause === "lost" ? silenceTree(picture, places) : reachedTree(picture, places);
}

function culpritsOf({ answer, hangs }) {
  if (isKnown(answer.rank)) return [answer.rank];
  return (hangs ?? []).flatMap(({ culprits }) => culprits ?? []);
}

/** Signs of life of the one that was heard last, beside those of the others. */
function silenceTree(picture, places) {
  const ages = picture.ranks.heartbeat_age_s;
  const silent = new Set(places);
  const own = Math.min(...places.map((place) => ages[place]).filter(isKnown));
  const others = medianOf(ages.filter((_, place) => !silent.has(place)));
  const largest = Math.max(...[own, others].filter(isKnown));
  return evidenceFigure(
    [el("strong", {}, isKnown(own) ? formatAge(own) : "Never seen"), isKnown(own) ? " since the last heartbeat" : null],
    comparedRow(whoHangs(picture, places), own, largest, "own", formatAge(own)),
    isKnown(others) && comparedRow("others, median", others, largest, "others", formatAge(others)),
  );
}

/** How far they have come and what they are in, beside where most of the others are. */
function reachedTree(picture, places) {
  const { ranks } = picture;
  const behind = new Set(places);
  const others = ranks.rank.map((_, place) => place).filter((place) => !behind.has(place));
  if (!others.length) return null;
  return evidenceFigure(
    null,
    reachedRow(whoHangs(picture, places), mostFrequent(places.map((place) => reachedOf(ranks, place)))),
    reachedRow("most of the others", mostFrequent(others.map((place) => reachedOf(ranks, place)))),
  );
}

function reachedOf(ranks, place) {
  const section = ranks.open_sections[ranks.open_section[place]];
  const step = ranks.step[place];
  const parts = [isKnown(step) ? `step ${formatNumber(step)}` : "no step yet"];
  if (isOver(ranks.states[ranks.state[place]])) parts.push("ended");
  else if (section) parts.push(`in ${section}`);
  return parts.join(", ");
}

function mostFrequent(texts) {
  const counts = new Map();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  return [...counts].reduce((most, each) => (each[1] > most[1] ? each : most))[0];
}

function reachedRow(who, reached) {
  return el(
    "div",
    { class: "peer-row reached" },
    el("span", { class: "peer-name" }, nameTree(asSentence(who))),
    el("span", {}, nameTree(reached)),
  );
}

function whoHangs({ answer, ranks }, places) {
  if (isKnown(answer.rank)) return whoAnswered(answer);
  return places.length === 1 ? `rank ${ranks.rank[places[0]]}` : formatCount(places.length, "rank");
}

/** With what it is compared: a run has no peers, but a past, or what it would be with equal work. */
export function othersOf({ scope, cause }, count) {
  if (scope !== "run" && scope !== "role") return `its ${count}peers`;
  return (cause ?? "").endsWith("_imbalance") ? "if all did the same work" : "before";
}

function whoAnswered(answer) {
  if (answer.scope === "run") return "the run";
  if (isKnown(answer.rank)) return `rank ${answer.rank}`;
  return answer.node ? `host ${answer.node}` : "this";
}

function evidenceFigure(caption, ...shown) {
  return el("figure", { class: "peers", "data-field": "peers" }, caption && el("figcaption", {}, caption), shown);
}

function comparedRow(who, value, largest, kind, text) {
  return el(
    "div",
    { class: "peer-row" },
    el("span", { class: "peer-name" }, nameTree(asSentence(who))),
    barTree(value, largest, kind),
    el("span", { class: "number" }, text),
  );
}

function medianOf(values) {
  const known = Float64Array.from(values.filter(isKnown)).sort();
  return known.length ? known[Math.floor((known.length - 1) / 2)] : NaN;
}

// --- all ranks ----------------------------------------------------------------------------------

/** How many ranks have which slowdown, with the slowest named. */
function spreadTree({ ranks, slowdowns }) {
  const overall = slowdowns?.overall ?? [];
  const spread = spreadOf(overall);
  if (!spread || spread.count < 2) return null;
  const slowest = ranks.rank[spread.slowest_place];
  const highest = Math.max(...spread.bins);
  const label = `${formatCount(spread.count, "rank")} from ${formatTimes(spread.low)} to ${formatTimes(spread.high)}`;
  return evidenceFigure(
    [el("strong", {}, formatTimes(spread.high)), ` as long as its peers: the slowest of all, rank ${formatNumber(slowest)}`],
    el(
      "svg",
      { class: "spread", viewBox: `0 0 ${BINS} 20`, preserveAspectRatio: "none", role: "img", "aria-label": label },
      spread.bins.map((count, bin) =>
        count > 0 && el("rect", {
          key: bin,
          x: bin + 0.08,
          width: 0.84,
          y: (19.5 - 19 * Math.sqrt(count / highest)).toFixed(2),
          height: (0.5 + 19 * Math.sqrt(count / highest)).toFixed(2),
        }),
      ),
    ),
    el(
      "div",
      { class: "spread-axis", "aria-hidden": "true" },
      el("span", {}, formatTimes(spread.from)),
      el("span", {}, "own time / that of the peers, all ranks"),
      el("span", {}, formatTimes(spread.to)),
    ),
  );
}

/** A histogram around the neutral 1.0; null without a number. Cost: O(ranks). */
export function spreadOf(values) {
  let [low, high, count, slowestPlace] = [Infinity, -Infinity, 0, -1];
  values.forEach((value, place) => {
    if (!isKnown(value)) return;
    count += 1;
    low = Math.min(low, value);
    if (value > high) [high, slowestPlace] = [value, place];
  });
  if (!count) return null;
  const from = Math.min(low, 1 - LEAST_SPREAD);
  const to = Math.max(high, 1 + LEAST_SPREAD);
  const bins = new Array(BINS).fill(0);
  for (const value of values) {
    if (isKnown(value)) bins[Math.min(BINS - 1, Math.floor(((value - from) / (to - from)) * BINS))] += 1;
  }
  return { low, high, count, from, to, bins, slowest_place: slowestPlace };
}
