// How fresh the picture is: always in sight, counted on while nothing comes.

import { el, patch } from "./dom.js";
import { formatAge, formatClock, isKnown, wordsOf } from "./format.js";

const ENDS = { ok: "finished", failed: "failed", cancelled: "was cancelled", preempted: "was preempted" };
const DOT_OF_STATE = { live: "●", ended: "■", saved: "▣", reconnecting: "○", connecting: "○", locked: "○" };

/** The pill in the top bar, and the notice below it when something is not as usual. */
export function createConnection(container, notice, actions) {
  let last = null;
  const draw = () => {
    if (!last) return;
    const { picture, connection, problem, historyProblem, problems } = last;
    const told = connectionTold(picture, connection, problem, Date.now(), historyProblem, problems);
    container.dataset.state = last.connection.state;
    container.dataset.old = String(told.isOld);
    patch(
      container,
      el("span", { class: "dot", "aria-hidden": "true" }, DOT_OF_STATE[last.connection.state]),
      el("span", { class: "connection-state" }, told.state),
      told.age ? el("span", { class: "connection-age number" }, told.age) : null,
    );
    notice.hidden = !told.notice;
    notice.dataset.kind = told.kind || "";
    patch(notice, told.notice ? noticeTree(told, actions) : null);
    const isStale = last.connection.state === "reconnecting" || told.kind === "awaited";
    document.body.classList.toggle("is-stale", isStale);
  };
  window.setInterval(draw, 1000);
  return {
    update(picture, ui, connection, problem, historyProblem = null, problems = []) {
      last = { picture, connection, problem, historyProblem, problems };
      draw();
    },
  };
}

/**
 * What is said of the connection: `state` and `age` for the pill, `notice` for the line below the
 * bar, null where all is as usual.
 */
export function connectionTold(
  picture,
  connection,
  problem,
  nowMs,
  historyProblem = null,
  problems = [],
) {
  const now = nowMs / 1000 + connection.clock_s;
  const heard = picture?.run.received_at_s;
  const age = isKnown(heard) ? Math.max(0, now - heard) : null;
  const told = { state: wordsOf(connection.state), age: "", isOld: false, notice: null };
  if (connection.state === "saved") return savedTold(picture, told);
  if (connection.state === "reconnecting") return awayTold(picture, connection, nowMs, age, told);
  if (problem) return { ...told, notice: problem, kind: "problem" };
  if (historyProblem) {
    const notice = `Past runs cannot be shown: ${historyProblem}`;
    Object.assign(told, { notice, kind: "history-problem" });
  }
  if (problems.length) {
    const notice = [told.notice, ...problems.map(sentenceOf)].filter(Boolean).join(" ");
    Object.assign(told, { notice, kind: "collector-problem" });
  }
  if (!picture) return told;
  if (connection.state === "ended") return endedTold(picture, told);
  const isOld = age !== null && age > 30;
  return { ...told, age: `data ${formatAge(age)} ago`, isOld };
}

function sentenceOf(problem) {
  return `${problem[0].toUpperCase()}${problem.slice(1)}.`;
}

function savedTold(picture, told) {
  if (!picture) return told;
  const when = formatClock(picture.now_s, null);
  return { ...told, state: "saved", age: when, notice: `A report of ${when}. It no longer changes.`, kind: "saved" };
}

function awayTold(picture, connection, nowMs, age, told) {
  const wait = Math.max(0, Math.ceil(((connection.retry_ms ?? nowMs) - nowMs) / 1000));
  const since = formatAge((nowMs - connection.since_ms) / 1000);
  const seen = picture && age !== null ? ` The data is ${formatAge(age)} old.` : "";
  const next = wait > 0 ? `Trying again in ${wait} s.` : "Trying again now.";
  return {
    ...told,
    age: age === null ? "" : `data ${formatAge(age)} old`,
    isOld: true,
    notice: connection.told
      ? `The collector cannot show this: ${connection.told}${seen} ${next}`
      : `The collector has not responded for ${since}.${seen} ${next}`,
    kind: "away",
    canRetry: true,
  };
}

function endedTold(picture, told) {
  const { run } = picture;
  if (isKnown(run.awaited_since_s)) return awaitedTold(picture, told);
  const heard = formatClock(run.received_at_s, picture.now_s);
  if (!run.is_live) {
    const notice = `From the collector's history: no rank is reporting. Last seen ${heard}.`;
    return { ...told, state: "history", age: heard, notice, kind: "history" };
  }
  const at = formatClock(run.finished_at_s, picture.now_s);
  return { ...told, state: "ended", age: at, notice: `This run ${ENDS[run.outcome] ?? "ended"} at ${at}.`, kind: "ended" };
}

/** The collector was restarted, and knows only what it had kept. */
function awaitedTold({ run, now_s: nowS }, told) {
  const seen = formatClock(run.seen_at_s, nowS);
  const notice =
    `This is the run as of ${seen}. The collector was restarted at ` +
    `${formatClock(run.awaited_since_s, nowS)}, and has received nothing from this run since.`;
  return { ...told, state: "last view", age: seen, isOld: true, notice, kind: "awaited" };
}

function noticeTree(told, actions) {
  return [
    el("span", { dir: "auto" }, told.notice),
    told.canRetry
      ? el("button", { type: "button", class: "quiet", onclick: actions.retry }, "Try now")
      : null,
    told.kind === "problem"
      ? el(
          "button",
          { type: "button", class: "quiet", onclick: () => actions.select({ run: null, group: null, rank: null, section: null }) },
          "Show the first run",
        )
      : null,
  ];
}
