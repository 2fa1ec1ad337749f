// The alerts that fire for this run.

import { nameTree, nothingTree, proseTree, rankTree } from "./bars.js";
import { el, patch } from "./dom.js";
import { asSentence, formatDuration } from "./format.js";

const SEVERITIES = ["critical", "warning", "info"];
const SEVERITY_MARKS = { critical: "✕", warning: "!", info: "i" };
const HIDDEN_LABELS = ["alertname", "severity", "run_id", "job_name", "cluster", "rank", "node"];

/** A list; the gravest first. */
export function createAlerts(container, actions) {
  return {
    update(picture) {
      patch(container, picture ? alertsTree(picture, actions) : null);
    },
  };
}

/** The alerts as a tree. */
export function alertsTree(picture, actions) {
  const alerts = sortedAlerts(picture.alerts || []);
  const { is_live: isLive, heard_at_s: heardS } = picture.run;
  const untilS = isLive ? picture.now_s : heardS ?? picture.now_s;
  const observed =
    picture.run.mode === "observe"
      ? el("p", { class: "nothing" }, "The collector only observes: what would fire stands here, and nobody is called.")
      : null;
  if (!alerts.length) return [nothingTree("Nothing fires."), isLive ? observed : null];
  return [
    isLive ? observed : el("p", { class: "nothing" }, "Nobody follows the run now: these fired when it was last heard of."),
    el("ul", { class: "cards" }, alerts.map((alert) => alertTree(alert, untilS, actions))),
  ];
}

function sortedAlerts(alerts) {
  const place = (alert) => (SEVERITIES.indexOf(alert.labels.severity) + 4) % 4;
  return [...alerts].sort((a, b) => place(a) - place(b) || b.since_ns - a.since_ns);
}

function alertTree(alert, nowS, actions) {
  const { labels, annotations } = alert;
  const severity = labels.severity || "info";
  const rank = /^\d{1,9}$/.test(labels.rank ?? "") ? Number(labels.rank) : null;
  return el(
    "li",
    { key: JSON.stringify(labels), "data-tone": severity === "critical" ? "bad" : "watch" },
    el("span", { class: "tone-mark", title: severity }, SEVERITY_MARKS[severity] || "!"),
    el(
      "div",
      {},
      el(
        "p",
        { class: "card-title" },
        nameTree(alert.name),
        el("small", {}, ` ${severity}, for ${formatDuration(Math.max(0, Math.round(nowS - alert.since_ns / 1e9)))}`),
      ),
      el("p", { dir: "auto" }, proseTree(asSentence(annotations.summary || annotations.description || ""))),
      annotations.summary && annotations.description && annotations.description !== annotations.summary
        ? el("p", { class: "muted", dir: "auto" }, annotations.description)
        : null,
      el(
        "p",
        { class: "card-foot" },
        rank === null ? null : rankTree(rank, actions),
        labels.node ? nameTree(labels.node) : null,
        otherLabels(labels).map(([name, value]) => el("span", { class: "label", key: name }, nameTree(`${name}=${value}`))),
        runbookTree(annotations.runbook_url),
      ),
    ),
  );
}

function otherLabels(labels) {
  return Object.entries(labels).filter(([name]) => !HIDDEN_LABELS.includes(name)).slice(0, 6);
}

/** A link only where it is one: an address from the network may be anything. */
function runbookTree(address) {
  if (!/^https?:\/\//i.test(address ?? "")) return null;
  return el("a", { href: address, rel: "noreferrer noopener", target: "_blank" }, "Runbook");
}
