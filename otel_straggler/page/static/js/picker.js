// Which run, and which group of it. One run or five hundred: a list that is searched by typing.

import { toneMark, toneName } from "./answer.js";
import { nameTree } from "./bars.js";
import { el, patch } from "./dom.js";
import { formatAge, formatCount, formatNumber, isKnown } from "./format.js";
import { hashOf } from "./state.js";

const MOST_LISTED = 100;

/** The button that names the run, the list below it, and the groups. */
export function createPicker(container, actions) {
  let typed = "";
  let isOpen = false;
  let marked = 0;
  let last = { runs: null, picture: null };

  const draw = () => patch(container, pickerTree());
  const found = () => foundRuns(last.runs?.runs ?? [], typed);

  function open(wanted) {
    if (isOpen === wanted) return;
    isOpen = wanted;
    typed = "";
    const ids = found().map((run) => run.run_id);
    marked = Math.max(0, ids.indexOf(last.picture?.run.run_id));
    draw();
    if (isOpen) container.querySelector("input").focus();
  }

  function close() {
    open(false);
    container.querySelector(".run-button").focus();
  }

  function choose(run) {
    close();
    actions.select({ run: run.run_id });
  }

  function onKey(event) {
    const runs = found().slice(0, MOST_LISTED);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    if (event.key in steps) {
      marked = Math.min(runs.length - 1, Math.max(0, marked + steps[event.key]));
      draw();
      container.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      if (runs[marked]) choose(runs[marked]);
    } else if (event.key === "Escape") {
      close();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  function pickerTree() {
    const run = last.picture?.run ?? null;
    return [
      el(
        "button",
        {
          type: "button",
          class: "run-button",
          "aria-haspopup": "listbox",
          "aria-expanded": String(isOpen),
          onclick: () => open(!isOpen),
        },
        el("span", { class: "visually-hidden" }, "Run: "),
        run ? runNameTree(run) : "Choose a run",
        countTree(last.runs),
        el("span", { "aria-hidden": "true" }, "▾"),
      ),
      isOpen ? popupTree() : null,
      groupTree(run, actions),
      shardTree(last.runs?.runs.find((each) => each.run_id === run?.run_id)),
    ];
  }

  function popupTree() {
    const runs = found();
    const shown = runs.slice(0, MOST_LISTED);
    return el(
      "div",
      { class: "popup", onkeydown: onKey, key: "popup" },
      el("input", {
        type: "search",
        role: "combobox",
        "aria-label": "Find a run by name, job or state",
        "aria-expanded": "true",
        "aria-controls": "run-list",
        "aria-activedescendant": shown[marked] ? `run-${marked}` : false,
        placeholder: "Find a run",
        autocomplete: "off",
        spellcheck: "false",
        value: typed,
        oninput: (event) => {
          typed = event.target.value;
          marked = 0;
          draw();
        },
      }),
      el(
        "ul",
        { role: "listbox", id: "run-list", "aria-label": "Runs" },
        shown.map((run, place) => optionTree(run, place, place === marked, choose)),
      ),
      el("p", { class: "popup-note", role: "status" }, foundText(runs.length, shown.length, typed)),
    );
  }

  function optionTree(run, place, isMarked, chosen) {
    const age = isKnown(run.received_at_s) ? last.runs.now_s - run.received_at_s : null;
    return el(
      "li",
      {
        role: "option",
        id: `run-${place}`,
        key: run.run_id,
        "aria-selected": String(isMarked),
        "data-tone": run.tone,
        onclick: () => chosen(run),
      },
      el("span", { class: "tone-mark", title: toneName(run.tone), "aria-hidden": "true" }, toneMark(run.tone)),
      el("span", { class: "visually-hidden" }, `${toneName(run.tone)}: `),
      el("span", { class: "option-name" }, runNameTree(run)),
      el("span", { class: "option-says", dir: "auto" }, run.headline),
      el("span", { class: "option-size" }, sizeText(run, age), optionShardTree(run)),
    );
  }

  document.addEventListener("pointerdown", (event) => {
    if (isOpen && !container.contains(event.target)) open(false);
  });
  container.addEventListener("focusout", (event) => {
    if (isOpen && event.relatedTarget && !container.contains(event.relatedTarget)) open(false);
  });

  return {
    update(picture, ui, runs) {
      last = { runs, picture };
      container.hidden = !runs || runs.runs.length === 0;
      draw();
    },
  };
}

/** Runs whose names, state or headline contain all typed words, in the order of the list. */
export function foundRuns(runs, typed) {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  return runs.filter((run) => {
    const text = `${run.run_id} ${run.job ?? ""} ${run.state ?? ""} ${run.tone} ${run.headline ?? ""}`;
    return words.every((word) => text.toLowerCase().includes(word));
  });
}

function runNameTree(run) {
  const isNamed = run.job && run.job !== run.run_id;
  return [
    nameTree(isNamed ? run.job : run.run_id, "run-job"),
    isNamed ? nameTree(run.run_id, "run-id") : null,
  ];
}

function countTree(runs) {
  const more = (runs?.runs.length ?? 0) - 1;
  if (more <= 0) return null;
  return el("span", { class: "run-count" }, `+${formatNumber(more)}`, el("span", { class: "visually-hidden" }, " more"));
}

/** What the list does not show by itself; also read aloud when it changes. */
function foundText(found, shown, typed) {
  if (found === 0) return "No matching run";
  if (found > shown) return `${found - shown} more: type to filter`;
  return typed ? `${formatCount(found, "run")} found` : "";
}

function sizeText(run, age) {
  const ranks = isKnown(run.world_size) ? formatCount(run.world_size, "rank") : "";
  if (!run.is_live) return `${ranks}, from history`;
  return isKnown(age) ? `${ranks}, ${formatAge(age)} ago` : ranks;
}

/** The page of the shard that scores a run, at this run; null if that is this collector. */
export function shardAddress(run) {
  if (!/^https?:\/\//.test(run?.page_url ?? "")) return null;
  return `${run.page_url}/${hashOf({ run: run.run_id })}`;
}

/** Next to the name of a run that another shard scores: decisions about it are made there. */
function shardTree(run) {
  const address = shardAddress(run);
  if (address === null) return null;
  return el(
    "a",
    { class: "shard-link", key: "shard", href: address, title: "Its alerts and decisions are there" },
    el("span", { class: "visually-hidden" }, "Open the page of its shard, "),
    `on ${run.collector ?? run.page_url}`,
  );
}

/** The same in the list, for the pointer: Enter chooses the run, and the link is then next to its name. */
function optionShardTree(run) {
  const address = shardAddress(run);
  if (address === null) return null;
  return [
    ", ",
    el(
      "a",
      { class: "shard-link", href: address, tabindex: "-1", onclick: (event) => event.stopPropagation() },
      `on ${run.collector ?? run.page_url}`,
    ),
  ];
}

function groupTree(run, actions) {
  const groups = run?.groups ?? [];
  if (groups.length < 2) return null;
  return el(
    "label",
    { class: "group-picker", key: "group" },
    el("span", {}, "Group"),
    el(
      "select",
      {
        value: run.group,
        onchange: (event) => actions.select({ group: event.target.value }),
      },
      groups.map((group) =>
        el("option", { value: group, selected: group === run.group, key: group }, group || "(default)"),
      ),
    ),
  );
}
