// Hangs that are over: when, for how long, because of whom, what each cost, and what came then.

import { nameTree } from "./bars.js";
import { el } from "./dom.js";
import { formatClock, formatCount, formatDuration, formatLostTime, isKnown } from "./format.js";

const MOST_EARLIER = 10;
const EARLIER_HEADS = ["Since", "For", "Why", "Cost", "Then"];

/** A table of the longest, newest first, and many brief ones in sum; nothing if there were none. */
export function earlierHangsTree(picture) {
  const worlds = picture.hangs || [];
  const hangs = worlds.flatMap((world) => world.earlier || []).filter((hang) => !hang.is_brief);
  const briefs = worlds.map((world) => world.earlier_brief).filter(Boolean);
  if (!hangs.length && !briefs.length) return null;
  const leftOut = worlds.reduce((sum, world) => sum + (world.earlier_brief ? 0 : world.earlier_left_out || 0), 0);
  const more = Math.max(0, hangs.length - MOST_EARLIER) + leftOut;
  return [
    el("h3", { key: "title" }, "Earlier hangs"),
    hangs.length ? el(
      "table",
      { key: "hangs", class: "rows", "data-field": "earlier-hangs" },
      el("caption", { class: "visually-hidden" }, "Past hangs, newest first"),
      el("thead", {}, el("tr", {}, EARLIER_HEADS.map((title) => el("th", { scope: "col", key: title, class: title === "Then" && "spare" }, title)))),
      el("tbody", {}, longestOf(hangs).map((hang, place) => rowOfHang(hang, place, picture))),
    ) : null,
    more ? el("p", { key: "more", class: "nothing" }, `and ${formatCount(more, "shorter one")}`) : null,
    briefs.map((brief, place) => briefTree(brief, place, hangs.length + more > 0, picture.run)),
  ];
}

function briefTree({ sentence, gpu_seconds_lost: lost, is_all: isAll }, place, isAfterOthers, run) {
  const cost = isKnown(lost) && lost >= 1 ? ` ${isAll ? "Cost" : "Cost at least"}: ${formatLostTime(lost, run.on_gpu)}.` : "";
  return el("p", { key: `brief-${place}`, "data-field": "brief-hangs" }, isAfterOthers ? "and " : "", nameTree(sentence), cost);
}

function longestOf(hangs) {
  const byLength = hangs.map((_, at) => at).sort((one, other) => hangs[other].duration_s - hangs[one].duration_s);
  const shown = new Set(byLength.slice(0, MOST_EARLIER));
  return hangs.filter((_, at) => shown.has(at));
}

function rowOfHang(hang, place, { now_s: nowS, run }) {
  const atLeast = hang.is_end_seen ? "" : "at least ";
  const cost = isKnown(hang.gpu_seconds_lost) ? formatLostTime(hang.gpu_seconds_lost, run.on_gpu) : "unknown";
  return el(
    "tr",
    { key: place },
    el("th", { scope: "row", class: "brief" }, formatClock(hang.since_s, nowS)),
    el("td", { class: "brief" }, `${atLeast}${formatDuration(hang.duration_s)}`),
    el("td", {}, nameTree(hang.sentence)),
    el("td", { class: "brief" }, cost),
    el("td", { class: "spare" }, nameTree(hang.then)),
  );
}
