// Says a changed headline once to who listens; and names the window and its icon after it.

import { toneMark, toneName } from "./answer.js";
import { printableText } from "./dom.js";
import { sayAloud } from "./speech.js";

const QUIET_MS = 10000;

/**
 * Changes that come faster than every ten seconds are said together, but for those that the viewer
 * asked for: another run or group. `update(picture, connection, problem)`.
 */
export function createAnnouncer() {
  let wanted = null;
  let subject = null;
  let wasAway = false;
  let saidAt = -Infinity;
  let timer = null;
  const say = (text) => {
    saidAt = Date.now();
    sayAloud(text);
  };
  return {
    update(picture, connection, problem) {
      const isAway = connection.state === "reconnecting";
      const text = wordsAloud(picture, isAway, problem);
      document.title = printableText(titleOf(picture, isAway));
      document.documentElement.dataset.tone = isAway ? "unknown" : (picture?.answer.tone ?? "unknown");
      if (text === wanted) return;
      const isFirst = wanted === null;
      const isAsked = subject !== subjectOf(picture) && picture !== null;
      const told = wasAway && !isAway ? `The collector responds again. ${text}` : text;
      wanted = text;
      wasAway = isAway;
      if (picture) subject = subjectOf(picture);
      if (isFirst) return; // who opens the page reads it anyway
      window.clearTimeout(timer);
      const wait = isAsked ? 0 : saidAt + QUIET_MS - Date.now();
      timer = window.setTimeout(() => say(told), Math.max(0, wait));
    },
  };
}

function wordsAloud(picture, isAway, problem) {
  if (isAway) return "The collector does not respond. The data on this page is getting stale.";
  if (problem) return problem;
  return picture ? `${toneName(picture.answer.tone)}: ${picture.answer.headline}` : "";
}

function subjectOf(picture) {
  return picture ? JSON.stringify([picture.run.run_id, picture.run.group]) : null;
}

/** Title of the window: the tone first, because a tab shows little. */
export function titleOf(picture, isAway = false) {
  if (!picture) return "otel-straggler";
  const { answer, run } = picture;
  if (isAway) return `${toneMark("unknown")} The collector does not respond · ${run.job || run.run_id}`;
  return `${toneMark(answer.tone)} ${answer.headline} · ${run.job || run.run_id}`;
}
