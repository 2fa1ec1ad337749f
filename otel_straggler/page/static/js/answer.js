// The answer: is the run healthy, who is slow, since when, why, what does it cost, what to do.

import { commandTree, nameTree, proseTree } from "./bars.js";
import { el, patch } from "./dom.js";
import { evidenceTree } from "./evidence.js";
import {
  asSentence,
  formatClock,
  formatDuration,
  formatLostTime,
  formatNumber,
  formatPercent,
  isKnown,
  wordsOf,
} from "./format.js";

/** Marks that tell tones apart without their colours. */
const TONE_MARKS = { good: "✓", watch: "!", bad: "✕", unknown: "?", ended: "■" };

const TONE_NAMES = {
  good: "Healthy",
  watch: "Keep an eye on it",
  bad: "Act",
  unknown: "Not known yet",
  ended: "Ended",
};

/** The first thing seen. */
export function createAnswer(container, actions) {
  return {
    update(picture) {
      container.hidden = !picture;
      if (!picture) return;
      container.dataset.tone = picture.answer.tone;
      container.dataset.kind = picture.answer.kind;
      patch(container, answerTree(picture, actions));
    },
  };
}

/** All of the answer as a tree. */
export function answerTree(picture, actions) {
  const { answer } = picture;
  return [
    el("div", { class: "answer-mark", "aria-hidden": "true" }, TONE_MARKS[answer.tone] || "?"),
    el(
      "div",
      { class: "answer-says" },
      el("p", { class: "eyebrow" }, TONE_NAMES[answer.tone] || TONE_NAMES.unknown),
      el("h1", { "data-field": "headline", dir: "auto" }, proseTree(answer.headline)),
      el("p", { class: "sentence", "data-field": "sentence", dir: "auto" }, proseTree(asSentence(answer.sentence))),
      goodputTree(picture.run),
      launchesTree(picture),
      factsTree(picture),
      notesTree(picture),
      picture.checkpoint ? el("p", { class: "last-save", "data-field": "checkpoint" }, picture.checkpoint.text) : null,
    ),
    el(
      "div",
      { class: "answer-shows" },
      evidenceTree(picture),
      adviceTree(answer, picture.page_url),
      isKnown(answer.rank)
        ? el(
            "button",
            { type: "button", class: "quiet", onclick: () => actions.select({ rank: answer.rank }) },
            `All about rank ${answer.rank}`,
          )
        : null,
    ),
  ];
}

/** What makes all that is shown less certain, each once: the answer may say it already. */
function notesTree({ notes, answer }) {
  const further = (notes || []).filter((note) => !answer.sentence.includes(note.text));
  return further.map((note) =>
    el("p", { class: "sentence", key: note.kind, "data-field": "note", dir: "auto" }, proseTree(note.text)),
  );
}

/** The tone in a word, for the title of the window and for who does not see colours. */
export function toneName(tone) {
  return TONE_NAMES[tone] || TONE_NAMES.unknown;
}

/** The mark that goes with a tone. */
export function toneMark(tone) {
  return TONE_MARKS[tone] || "?";
}

/** What the run got for its time so far, in one line. */
function goodputTree(run) {
  const text = run?.goodput?.sentence;
  return text ? el("p", { class: "sentence", "data-field": "goodput", dir: "auto" }, proseTree(text)) : null;
}

/** What the launchers report: the present attempt, and why the one before it ended. */
function launchesTree({ run, now_s: nowS }) {
  const launches = run?.launches;
  const newest = launches?.attempts.at(-1);
  if (!newest || typeof launches.text !== "string") return null;
  const ago = isKnown(newest.started_at_s)
    ? ` ${formatDuration(Math.max(0, Math.round(nowS - newest.started_at_s)))} ago`
    : "";
  const text = [`Attempt ${newest.attempt}; restarted${ago}`, launches.text].filter(Boolean).join(" ");
  return el("p", { class: "sentence", "data-field": "launches", dir: "auto" }, proseTree(text));
}

function factsTree(picture) {
  const { answer } = picture;
  const facts = [
    ["Why", "cause", answer.cause_text || (answer.cause ? wordsOf(answer.cause) : null)],
    ["Where", "section", answer.section],
    ["Since", "since", sinceText(picture)],
    [isOver(picture) ? "Cost" : "Costs", "cost", costText(picture)],
    ["Evidence", "evidence", evidenceText(answer)],
  ].filter(([, , text]) => text);
  return facts.length ? el("dl", { class: "facts" }, facts.map(factTree)) : null;
}

function factTree([title, field, text]) {
  return el(
    "div",
    { key: field },
    el("dt", {}, title),
    el("dd", { "data-field": field }, nameTree(text)),
  );
}

function sinceText(picture) {
  const { since_step: step, since_s: atS } = picture.answer;
  const parts = [];
  if (isKnown(step)) parts.push(`step ${formatNumber(step)}`);
  if (isKnown(atS)) {
    const ago = formatDuration(Math.max(0, Math.round(picture.now_s - atS)));
    parts.push(`${ago} ago (${formatClock(atS, picture.now_s)})`);
  }
  return parts.join(", ");
}

/** Whether the run has ended, or nobody follows it any more. */
function isOver(picture) {
  return picture.answer.kind === "ended";
}

function costText(picture) {
  const { answer: { cost }, run } = picture;
  if (!cost) return "";
  const perHour = cost.gpu_seconds_lost_per_hour;
  const parts = [];
  if (isKnown(perHour) && perHour >= 1) parts.push(`${formatLostTime(perHour, run.on_gpu)} per hour`);
  if (isKnown(cost.gpu_seconds_lost) && cost.gpu_seconds_lost >= 1) {
    parts.push(`${formatLostTime(cost.gpu_seconds_lost, run.on_gpu)} ${isOver(picture) ? "in all" : "so far"}`);
  }
  return parts.join(", ");
}

function evidenceText(answer) {
  if (!answer.evidence) return "";
  const parts = [wordsOf(answer.evidence)];
  if (isKnown(answer.confidence)) parts.push(`${formatPercent(answer.confidence)} sure`);
  if (answer.is_localised === false) parts.push("cannot tell culprit from victims");
  return parts.join(", ");
}

function adviceTree(answer, shard) {
  const advice = answer.advice || [];
  const commands = answer.commands || [];
  if (!advice.length && !commands.length) return null;
  return el(
    "div",
    { class: "advice" },
    el("h2", {}, "What to do"),
    el(
      "ul",
      { "data-field": "advice" },
      advice.map((text) => el("li", { dir: "auto" }, asSentence(text))),
    ),
    commands.filter((each) => !isDismissal(each)).map((each) => commandTree(each, shard)),
    dismissalTree(commands.filter(isDismissal), shard),
  );
}

function isDismissal(command) {
  return / verdict dismiss /.test(command);
}

/** How to silence it, folded: who has not looked yet should look, and not silence. */
function dismissalTree(commands, shard) {
  if (!commands.length) return null;
  return el(
    "details",
    { class: "dismissal", key: "dismissal" },
    el("summary", {}, "Known, or not a problem?"),
    el("p", { class: "nothing" }, "This ends its notifications. Write your reason instead of WHY."),
    commands.map((each) => commandTree(each, shard)),
  );
}
