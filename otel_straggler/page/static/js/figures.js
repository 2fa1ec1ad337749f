// A row of key figures: how fast, what is lost, who is heard, how far, how fine it can be seen.

import { el, patch } from "./dom.js";
import {
  formatDuration,
  formatLostTime,
  formatNumber,
  formatPercent,
  formatSeconds,
  formatTimes,
  isKnown,
  wordsOf,
} from "./format.js";

const WORST_PART = 0.03; // of the workers count as the worst, at least one
const SOON_S = 30; // who lives is heard of within that time
const MUCH_WASTE = 0.1;
const SOME_WASTE = 0.048; // from there on the answer no longer says that all is well

/** Key figures of the run. */
export function createFigures(container) {
  return {
    update(picture) {
      container.hidden = !picture;
      if (picture) patch(container, figuresOf(picture).map(figureTree));
    },
  };
}

/** What the figures say: title, large text, of how many, small text, tone. */
export function figuresOf(picture) {
  const { run } = picture;
  const isOver = picture.answer.kind === "ended";
  return [
    stepTime(run),
    timeLost(run, isOver),
    lostSoFar(picture, isOver),
    reporting(picture, isOver),
    progress(picture),
    resolvable(run),
  ];
}

function figureTree({ title, large, of, unit, small, tone }) {
  const rest = of ? `of ${of}` : unit;
  return el(
    "div",
    { class: "figure", key: title, "data-tone": tone || false },
    el("dt", {}, title),
    el("dd", { class: "figure-large" }, large, rest && el("span", { class: "figure-of" }, ` ${rest}`)),
    el("dd", { class: "figure-small" }, small || " "),
  );
}

function stepTime(run) {
  const own = run.slowest_step_s;
  const whose = run.world_size === 1 ? "" : " of the slowest rank";
  const most = isKnown(own) ? `of it ${formatSeconds(own)} own work${whose}` : "";
  return { title: "Step time", large: formatSeconds(run.step_s), small: most };
}

function timeLost(run, isOver) {
  // What is lost in an hour stands in the answer, of whom it names: another number beside it would
  // be of all ranks together, and be taken for the same.
  const isIdle = isKnown(run.waste) && run.waste >= 1;
  const takes = isOver ? "took" : "takes";
  const times = isKnown(run.slowdown) ? `${takes} ${formatTimes(run.slowdown)} as long as it could` : "";
  return {
    title: "Time lost",
    large: formatPercent(run.waste),
    small: isIdle ? "no progress" : times,
    tone: isKnown(run.waste) ? wasteTone(run.waste) : null,
  };
}

function wasteTone(waste) {
  if (waste >= MUCH_WASTE) return "bad";
  return waste >= SOME_WASTE ? "watch" : "good";
}

function lostSoFar({ run, heat }, isOver) {
  const isOne = Math.round(WORST_PART * (heat?.cells?.length ?? 0)) <= 1;
  // Each is what would be won by that alone: they are no parts of one sum, so the larger one stands.
  const [part, whose] = [
    [run.m_w, `the worst worker${isOne ? "" : "s"}`],
    [run.m_s, "the last stage"],
  ].reduce((most, each) => ((each[0] ?? 0) > (most[0] ?? 0) ? each : most));
  const why = isKnown(part) && part >= 0.5 ? `${formatPercent(Math.min(1, part))} of it by ${whose}` : "";
  const [large, unit] = formatLostTime(run.gpu_seconds_lost, run.on_gpu).split(" ");
  return { title: isOver ? "Lost in all" : "Lost so far", large, unit, small: why };
}

/** Ranks of the newest window report until they are lost. */
function reporting({ run, ranks }, isOver) {
  const code = isOver ? -1 : ranks.states.indexOf("lost");
  const lost = code === -1 ? 0 : ranks.state.filter((state) => state === code).length;
  const heard = lost ? Math.min(run.ranks_reporting, ranks.rank.length - lost) : run.ranks_reporting;
  const missing = isKnown(run.world_size) ? Math.max(0, run.world_size - heard - lost) : 0;
  const words = [lost && `${formatNumber(lost)} lost`, missing && `${formatNumber(missing)} missing`];
  return {
    title: isOver ? "Ranks that reported" : "Ranks reporting",
    large: formatNumber(heard),
    of: isKnown(run.world_size) ? formatNumber(run.world_size) : null,
    small: words.filter(Boolean).join(", ") || "all of them",
    tone: lost || missing ? "bad" : null,
  };
}

function progress(picture) {
  const { run } = picture;
  const hasEnded = isKnown(run.finished_at_s) || picture.answer.kind === "ended";
  const endS = hasEnded ? run.finished_at_s ?? run.received_at_s ?? picture.now_s : picture.now_s;
  // A run that hangs does so since its last progress, and not since it began.
  const fromS = picture.answer.kind === "hang" ? picture.answer.since_s : run.began_at_s;
  const parts = [hasEnded && run.state === "training" ? "last seen training" : stateWords(run)];
  if (isKnown(fromS) && !isKnown(run.awaited_since_s)) {
    parts[0] += `${lastingWords(picture, hasEnded, fromS)} ${formatDuration(Math.max(0, endS - fromS))}`;
  }
  if (isKnown(run.attempt) && run.attempt > 0) parts.push(`attempt ${run.attempt}`);
  return { title: "Step", large: formatNumber(run.step), small: parts.join(", ") };
}

/** A run that was heard of as soon as the collector was there may be older than that. */
function lastingWords({ run, started_at_s: startedS }, hasEnded, fromS) {
  if (hasEnded) return " after";
  const isKnownToLive = run.state !== "unknown";
  const isOlder = isKnownToLive && isKnown(startedS) && fromS === run.began_at_s && fromS - startedS < SOON_S;
  return isOlder ? ", monitored for" : " for";
}

function stateWords(run) {
  if (isKnown(run.awaited_since_s)) return "before the collector was restarted";
  return run.state === "unknown" ? "without heartbeats" : wordsOf(run.state);
}

function missingWords({ gpu_times: times }) {
  return times && times.text ? `; ${times.text}` : "";
}

function resolvable(run) {
  const least = run.resolvable_slowdown;
  const isPart = (run.groups ?? []).length > 1 ? " of this group" : "";
  return {
    title: "Detection limit",
    large: isKnown(least) ? formatPercent(least - 1) : formatPercent(null),
    small: `slowdown of one rank${isPart}${run.time_basis ? `, by ${wordsOf(run.time_basis)}` : ""}${missingWords(run)}`,
  };
}
