// What is shown while there is no run at all: what to do to see one.

import { commandTree } from "./bars.js";
import { el, patch } from "./dom.js";

/** The page of somebody who has just started a collector. */
export function createFirstSteps(container) {
  return {
    update(picture, ui, runs) {
      const isEmpty = runs !== null && runs.runs.length === 0 && !ui.run; // a link names one
      container.hidden = !isEmpty;
      if (isEmpty) patch(container, firstStepsTree(window.location.hostname || "127.0.0.1", window.location.protocol));
    },
  };
}

/** The lines to add, with the address of this machine in them. */
export function firstStepsTree(host, protocol = "http:") {
  const shown = host.includes(":") && !host.startsWith("[") ? `[${host}]` : host;
  const endpoint = `${protocol}//${shown}:4318`;
  return [
    el("p", { class: "eyebrow" }, "No runs yet"),
    el("h1", {}, "The collector is running, but no training run has reported"),
    el("p", {}, "Add four lines around the training loop and start it. The page updates automatically."),
    el("pre", { tabindex: "0", "aria-label": "Four lines of Python around a loop" }, el("code", {}, fourLines(endpoint))),
    el("p", {}, "Or change nothing, and start it with this instead of torchrun:"),
    commandTree(`OTEL_STRAGGLER_ENDPOINT=${endpoint} otel-straggler run --nproc-per-node 4 train.py`),
    el(
      "p",
      {},
      "Ranks send to ",
      el("code", {}, endpoint),
      " unless the collector was started with another address. It listens on this machine only" +
        " unless configured otherwise (",
      el("code", {}, "--otlp-http 0.0.0.0:4318"),
      ", with grants or ",
      el("code", {}, "--insecure"),
      ").",
    ),
    el("h2", {}, "Nothing arrives?"),
    el("p", {}, "Run this in the environment of the job:"),
    commandTree("otel-straggler doctor"),
    el("h2", {}, "Just trying it out?"),
    el("p", {}, "This sends the telemetry of eight ranks, one of them slow, in real time:"),
    commandTree(`otel-straggler simulate --steps 2000 --speed 1 --send ${endpoint}`),
  ];
}

function fourLines(endpoint) {
  return [
    "import otel_straggler as ots",
    "",
    `ots.configure(endpoint="${endpoint}")  # after init_process_group, if there is one`,
    "ots.watch(model, optimizer, dataloader)",
    "for batch in dataloader:",
    "    ...  # as it is: forward, backward, optimizer.step()",
    "ots.shutdown()",
  ].join("\n");
}
