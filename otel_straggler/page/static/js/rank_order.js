// Which ranks a chart shows, in which order, and which of them are marked.

import { printableText } from "./dom.js";
import { aloneAmong } from "./lone_ranks.js";

/** Windows that "worst first" looks at: one alone would shuffle ranks that are alike. */
const WORST_OF_WINDOWS = 10;
/** "late" and "stuck" are also those who wait for a hung rank: all of them, often. */
const STATES_OF_SILENCE = ["lost", "missing"];

/** What people can choose, with the words for it. */
export const RANK_ORDERS = [
  { name: "rank", words: "by rank" },
  { name: "node", words: "by host" },
  { name: "worst", words: "worst first" },
  { name: "flagged", words: "only flagged" },
];

/** What three charts want to know of the same picture, found once. */
const knownPictures = new WeakMap();

/**
 * `{known, flagged, worst}` of a picture: facts of each rank by its number, the ranks that are
 * marked with the words why, and the slowest of the newest window.
 */
export function factsOfRanks(picture) {
  if (!knownPictures.has(picture)) {
    const [known, flagged] = [ranksByNumber(picture), flaggedRanks(picture)];
    knownPictures.set(picture, { known, flagged, worst: worstRanks(picture, known, flagged) });
  }
  return knownPictures.get(picture);
}

/** `{index, node, nodeIndex, role, state}` of each rank by its number. */
export function ranksByNumber(picture) {
  const { ranks } = picture;
  const nodes = ranks.nodes?.map(printableText);
  const nameOf = (names, index) =>
    index === null || index === undefined ? null : (names?.[index] ?? null);
  return new Map(
    ranks.rank.map((rank, index) => [
      rank,
      {
        index,
        nodeIndex: ranks.node?.[index] ?? -1,
        node: nameOf(nodes, ranks.node?.[index]),
        role: ranks.role?.[index] ?? null,
        state: nameOf(ranks.states, ranks.state?.[index]),
      },
    ]),
  );
}

/**
 * Ranks that a verdict, a hang or their own state points at, each with `{why, isSure}`: the words
 * for it, and whether it is more than a suspicion.
 */
export function flaggedRanks(picture) {
  const flagged = new Map();
  const flag = (rank, why, isSure = true) => {
    if (rank === null || rank === undefined) return;
    if (!flagged.has(rank) || (isSure && !flagged.get(rank).isSure))
      flagged.set(rank, { why, isSure });
  };
  for (const hang of picture.hangs ?? []) {
    if (hang.state === "lost") continue; // nobody knows whether anybody waits: their state says it
    (hang.culprits ?? []).forEach((rank) => flag(rank, "hang"));
  }
  for (const verdict of picture.verdicts ?? []) {
    if (!verdict.stands || verdict.silenced) continue;
    const isSure = verdict.state !== "suspect";
    const why = isSure ? "slow" : "suspect";
    if (verdict.scope === "rank") flag(verdict.rank, why, isSure);
    if (verdict.scope === "host") {
      ranksOnNode(picture, verdict.node).forEach((rank) => flag(rank, `${why} host`, isSure));
    }
  }
  (picture.ranks?.state ?? []).forEach((index, i) => {
    const state = picture.ranks.states[index];
    if (STATES_OF_SILENCE.includes(state)) flag(picture.ranks.rank[i], state);
  });
  return flagged;
}

function ranksOnNode(picture, node) {
  const { rank, node: indexes, nodes } = picture.ranks;
  return rank.filter((_, i) => nodes[indexes[i]] === node);
}

/**
 * Places of ranks in `timeline.ranks`, in the order chosen.
 * `flagged` has the ranks that are marked; `selected` stays in sight among the flagged.
 */
export function orderOfRanks(order, timeline, known, flagged, selected) {
  const places = timeline.ranks.map((_, place) => place);
  const rankAt = (place) => timeline.ranks[place];
  if (order === "flagged") {
    return places.filter((place) => flagged.has(rankAt(place)) || rankAt(place) === selected);
  }
  if (order === "node") {
    const nodeAt = timeline.ranks.map((rank) => known.get(rank)?.nodeIndex ?? Infinity);
    return places.sort((a, b) => nodeAt[a] - nodeAt[b] || rankAt(a) - rankAt(b));
  }
  if (order === "worst") {
    const badness = meanBytes(timeline, WORST_OF_WINDOWS);
    return places.sort((a, b) => badness[b] - badness[a] || rankAt(a) - rankAt(b));
  }
  return places;
}

/** Mean of the newest windows of each rank, in bytes (so of logarithms); 0 without data. */
function meanBytes(timeline, windows) {
  const n = timeline.ranks.length;
  const [sums, counts] = [new Float64Array(n), new Uint16Array(n)];
  const first = Math.max(0, timeline.columns.length - windows);
  for (let at = first * n; at < timeline.bytes.length; at += 1) {
    if (timeline.bytes[at] === 0) continue;
    sums[at % n] += timeline.bytes[at];
    counts[at % n] += 1;
  }
  return sums.map((sum, i) => (counts[i] ? sum / counts[i] : 0));
}

/** Rows of flagged ranks, and those of them that are only suspected. */
export function flaggedRowsOf(keys, flagged) {
  const [flaggedRows, suspectRows] = [[], new Set()];
  if (flagged.size === 0) return { flaggedRows, suspectRows };
  keys.forEach((rank, row) => {
    const found = flagged.get(rank);
    if (!found) return;
    flaggedRows.push(row);
    if (!found.isSure) suspectRows.add(row);
  });
  return { flaggedRows, suspectRows };
}

/** `[{rank, node, slowdown, isLone, state, why}]` of the newest window: flagged ranks, then the slowest. */
export function worstRanks(picture, known, flagged, most = 20) {
  const slowdownAt = picture.slowdowns?.overall ?? [];
  const { rank: ranks } = picture.ranks;
  const isAlone = aloneAmong(picture.ranks, slowdownAt);
  const badness = ranks.map((rank, i) => (flagged.has(rank) ? 1e6 : 0) + (slowdownAt[i] ?? -1));
  const places = ranks.map((_, i) => i).filter((i) => badness[i] >= 0);
  places.sort((a, b) => badness[b] - badness[a] || a - b);
  return places.slice(0, most).map((i) => ({
    rank: ranks[i],
    slowdown: slowdownAt[i] ?? null,
    isLone: isAlone(i),
    node: known.get(ranks[i]).node,
    state: known.get(ranks[i]).state,
    why: flagged.get(ranks[i])?.why ?? null,
  }));
}
