// Small pieces that several parts draw with: bars, names of ranks, commands to copy.

import { el } from "./dom.js";
import { formatNumber, isKnown } from "./format.js";
import { sayAloud } from "./speech.js";

const LONGEST_UNBROKEN = 28;

/** A bar as long as `value` is of `largest`; empty where it is not known. */
export function barTree(value, largest, kind = "") {
  const part = isKnown(value) && largest > 0 ? Math.min(1, Math.max(0, value / largest)) : 0;
  const fill = el("span", { class: "bar-fill", style: { width: `${(100 * part).toFixed(2)}%` } });
  return el("span", { class: `bar ${kind}`, "aria-hidden": "true" }, fill);
}

/** Text from the network: a line of its own for the eye, so that its direction turns nothing else. */
export function nameTree(text, kind = "") {
  return el("bdi", { class: `name ${kind}`, title: text ?? false }, text ?? "");
}

/** A sentence in which short names with hyphens, such as `node-17`, are not torn apart. */
export function proseTree(text) {
  const words = String(text ?? "").split(/(\S*-\S*)/);
  return words.map((word) =>
    word.includes("-") && word.length <= LONGEST_UNBROKEN ? el("span", { class: "unbroken" }, word) : word,
  );
}

/** A button that shows a rank. */
export function rankTree(rank, actions, more = {}) {
  return el(
    "button",
    {
      type: "button",
      class: "rank-link",
      title: `Show rank ${rank}`,
      onclick: () => actions.select({ rank }),
      ...more,
    },
    `rank ${formatNumber(rank)}`,
  );
}

const USUAL = ["127.0.0.1:9464", "localhost:9464"];
const ASKS_A_COLLECTOR = /^otel-straggler (verdict|hang ask|doctor)\b/;

/**
 * A command with the address of the collector that serves this page, where it would ask another.
 *
 * @param page the address of this page, as the browser's location.
 * @param shard address of the page of the shard that has the run, if that is another one.
 */
export function addressedCommand(command, page, shard = null) {
  if (shard && ASKS_A_COLLECTOR.test(command)) return `${command} --collector ${shard}`;
  const isServed = /^https?:$/.test(page?.protocol); // a report is a file
  if (!isServed || USUAL.includes(page.host)) return command;
  return ASKS_A_COLLECTOR.test(command) ? `${command} --collector ${page.origin}` : command;
}

/** A command with a button that copies it. */
export function commandTree(bare, shard = null) {
  const command = addressedCommand(bare, globalThis.location, shard);
  return el(
    "div",
    { class: "command", key: command },
    el("code", { dir: "ltr", tabindex: "0" }, command),
    el(
      "button",
      { type: "button", class: "copy", "aria-label": `Copy: ${command}`, onclick: copyCommand },
      "Copy",
    ),
  );
}

async function copyCommand(event) {
  const button = event.currentTarget;
  const code = button.previousElementSibling;
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
    sayAloud("Copied");
    window.setTimeout(() => (button.textContent = "Copy"), 1500);
  } catch {
    selectText(code); // no clipboard on plain http from elsewhere: one key is left to press
    button.textContent = "Press Ctrl+C";
    sayAloud("The command is selected: press Control and C to copy it");
  }
}

function selectText(node) {
  const range = document.createRange();
  range.selectNodeContents(node);
  const selection = window.getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}

/** A line for a part that has nothing to show. */
export function nothingTree(text) {
  return el("p", { class: "nothing" }, text);
}
