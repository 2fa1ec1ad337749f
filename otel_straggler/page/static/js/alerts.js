// The alerts that fire for this run; many of them by name, the gravest name open.

import { nameTree, nothingTree, proseTree, rankTree } from "./bars.js";
import { el, patch } from "./dom.js";
import { moreTree } from "./folding.js";
import { asSentence, formatDuration, formatNumber } from "./format.js";

const SEVERITIES = ["critical", "warning", "info"];
const SEVERITY_MARKS = { critical: "✕", warning: "!", info: "i" };
const HIDDEN_LABELS = ["alertname", "severity", "run_id", "job_name", "cluster", "rank", "node"];

const FEW_ALERTS = 4; // so many stand there as they are
const FEW_OF_NAME = 3;

/** A list; the gravest first. What somebody has opened stays open. */
export function createAlerts(container, actions) {
  const opened = new Map();
  let last = null;
  const draw = () => patch(container, last ? alertsTree(last, actions, opened, open) : null);
  const open = (name, how) => {
    opened.set(name, how);
    draw();
  };
  return {
    update(picture) {
      last = picture;
      draw();
    },
  };
}

/**
 * The alerts as a tree. `opened` has for names how much of them is shown: "none", "few" or "all"; of
 * those not in it the first shows a few. `open(name, how)` changes that.
 */
export function alertsTree(picture, actions, opened = new Map(), open = () => {}) {
  const alerts = sortedAlerts(picture.alerts || []);
  const { is_live: isLive, received_at_s: heardS } = picture.run;
  const untilS = isLive ? picture.now_s : heardS ?? picture.now_s;
  const observed =
    picture.run.mode === "observe"
      ? el("p", { class: "nothing" }, "The collector is in observe mode: firing alerts are listed here, and no notifications are sent.")
      : null;
  if (!alerts.length) return [nothingTree("No alerts are firing."), isLive ? observed : null];
  return [
    isLive ? observed : el("p", { class: "nothing" }, "No rank is reporting: these fired when the run was last seen."),
    alerts.length > FEW_ALERTS
      ? el(
          "ul",
          { class: "cards", key: "names" },
          namesOf(alerts).map(([name, those], place) =>
            nameOfAlertsTree(name, those, opened.get(name) ?? (place ? "none" : "few"), untilS, open, actions),
          ),
        )
      : el("ul", { class: "cards", key: "alerts" }, alerts.map((alert) => alertTree(alert, untilS, actions))),
  ];
}

/** `[name, alerts]`, names in the order of their first alert. */
function namesOf(alerts) {
  const names = new Map();
  for (const alert of alerts) names.set(alert.name, [...(names.get(alert.name) ?? []), alert]);
  return [...names];
}

/** All alerts of a name under a button that shows and hides them. */
function nameOfAlertsTree(name, alerts, how, untilS, open, actions) {
  const [first] = alerts;
  const isOpen = how !== "none";
  const shown = how === "all" ? alerts : alerts.slice(0, FEW_OF_NAME);
  const more = () => open(name, how === "all" ? "few" : "all");
  return el(
    "li",
    { key: `name ${name}`, "data-tone": toneOf(first), "data-alert": name },
    markTree(first),
    el(
      "div",
      {},
      el(
        "p",
        { class: "card-title" },
        el(
          "button",
          { type: "button", class: "text-link", "aria-expanded": String(isOpen), onclick: () => open(name, isOpen ? "none" : "few") },
          nameTree(name),
        ),
        el("span", { class: "label" }, formatNumber(alerts.length), el("span", { class: "visually-hidden" }, " of them")),
        el("small", {}, ` ${severityOf(first)}, ${alerts.length > 1 ? "newest " : ""}for ${ageOf(first, untilS)}`),
      ),
      isOpen
        ? el("ul", { class: "cards" }, shown.map((alert) => alertTree(alert, untilS, actions, alerts.length > 1 ? "of some" : "alone")))
        : el("p", { class: "one-line muted", dir: "auto" }, proseTree(asSentence(summaryOf(first)))),
      isOpen ? moreTree(alerts.length, FEW_OF_NAME, how === "all", more) : null,
    ),
  );
}

function severityOf(alert) {
  return alert.labels.severity || "info";
}

function toneOf(alert) {
  return severityOf(alert) === "critical" ? "bad" : "watch";
}

function markTree(alert) {
  const severity = severityOf(alert);
  return el("span", { class: "tone-mark", title: severity, "aria-hidden": "true" }, SEVERITY_MARKS[severity] || "!");
}

function ageOf(alert, untilS) {
  return formatDuration(Math.max(0, Math.round(untilS - alert.since_ns / 1e9)));
}

function summaryOf({ annotations }) {
  return annotations.summary || annotations.description || "";
}

function sortedAlerts(alerts) {
  const place = (alert) => (SEVERITIES.indexOf(alert.labels.severity) + 4) % 4;
  const isOfRank = ({ labels }) => ("rank" in labels ? 1 : 0); // what is of the whole run says most
  return [...alerts].sort((a, b) => place(a) - place(b) || isOfRank(a) - isOfRank(b) || b.since_ns - a.since_ns);
}

/** One alert; `under` a name that stands above it, with its age if it is "alone" there. */
function alertTree(alert, untilS, actions, under = "") {
  const { labels, annotations } = alert;
  const rank = /^\d{1,9}$/.test(labels.rank ?? "") ? Number(labels.rank) : null;
  return el(
    "li",
    { key: JSON.stringify(labels), "data-tone": toneOf(alert) },
    under ? null : markTree(alert),
    el(
      "div",
      {},
      under === "alone"
        ? null
        : el(
            "p",
            { class: "card-title" },
            under ? null : nameTree(alert.name),
            el("small", {}, ` ${severityOf(alert)}, for ${ageOf(alert, untilS)}`),
          ),
      el("p", { dir: "auto" }, proseTree(asSentence(summaryOf(alert)))),
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
