// Puts the parts together: data and choice go to all of them, choices come back.

import { createAlerts } from "./alerts.js";
import { createAnnouncer } from "./announcer.js";
import { createAnswer } from "./answer.js";
import { createConnection } from "./connection.js";
import { createFigures } from "./figures.js";
import { createFirstSteps } from "./first_steps.js";
import { createLedger } from "./ledger.js";
import { createLiveness } from "./liveness.js";
import { createLogin } from "./login.js";
import { createMatrix } from "./matrix.js";
import { createPicker } from "./picker.js";
import { createRankDetails } from "./rank_details.js";
import { createRankTime } from "./rank_time.js";
import { createSectionHeat } from "./section_heat.js";
import { openSource } from "./source.js";
import { sayAloud } from "./speech.js";
import { createState, shownSection } from "./state.js";
import { createTheme } from "./theme.js";
import { createVerdicts } from "./verdicts.js";
import { createWaits } from "./waits.js";

const MAX_FEW_SECTIONS = 9; // sections
const FEW_RANKS = 5;
const SOME_RANKS = 14; // their charts are no higher than the ledger

/** Builds the page and keeps it fresh. */
export function startPage() {
  const source = openSource();
  let view = null;
  let theme = document.documentElement.dataset.theme;
  let isDue = false;

  let section = null;
  const state = createState(window, (chosen) => {
    const now = shownSection(view?.picture, chosen);
    if (now !== section) sayAloud(`Since when: ${now || "all sections"}`);
    section = now;
    due();
    source.look(chosen);
  });
  section = shownSection(null, state.chosen());
  const actions = { select: state.select, retry: source.retry, login: source.login };
  const parts = createParts(actions);

  function draw() {
    isDue = false;
    if (view) drawPage(parts, view, chosenOf(view, state.chosen(), theme));
  }

  function due() {
    if (document.hidden) return draw(); // for the title: a hidden tab has no frames
    if (isDue) return;
    isDue = true;
    window.requestAnimationFrame(draw);
  }

  followBar(document.querySelector(".top-bar"));
  createTheme(partElement("theme"), (now) => {
    theme = now;
    due();
  });
  source.start((now) => {
    view = now;
    due();
  }, state.chosen());
}

/** Tells the styles how high the bar is: it stays in sight above the panel on the side. */
function followBar(bar) {
  const tell = () => document.documentElement.style.setProperty("--bar-height", `${bar.offsetHeight}px`);
  new ResizeObserver(tell).observe(bar);
  tell();
}

function createParts(actions) {
  const make = (create, name) => create(partElement(name), actions);
  return {
    alerts: make(createAlerts, "alerts"),
    announcer: createAnnouncer(),
    answer: make(createAnswer, "answer"),
    connection: createConnection(partElement("connection"), partElement("notice"), actions),
    figures: make(createFigures, "figures"),
    firstSteps: make(createFirstSteps, "first-steps"),
    ledger: make(createLedger, "ledger"),
    liveness: make(createLiveness, "liveness"),
    login: make(createLogin, "login"),
    matrix: make(createMatrix, "matrix"),
    picker: make(createPicker, "picker"),
    rank: make(createRankDetails, "rank"),
    rankTime: make(createRankTime, "rank-time"),
    sectionHeat: make(createSectionHeat, "sections"),
    verdicts: make(createVerdicts, "verdicts"),
    waits: make(createWaits, "waits"),
  };
}

function partElement(name) {
  return document.querySelector(`[data-part="${name}"]`);
}

/** What the viewer looks at: the choice, completed by what the collector took where none was made. */
function chosenOf(view, chosen, theme) {
  const run = view.picture?.run;
  return {
    run: run?.run_id ?? chosen.run,
    group: run?.group ?? chosen.group,
    section: shownSection(view.picture, chosen),
    rank: chosen.rank,
    theme,
  };
}

function drawPage(parts, view, ui) {
  const { picture, runs, timeline, rank, connection, problem } = view;
  parts.connection.update(picture, ui, connection, problem, runs?.history_problem, runs?.problems);
  parts.login.update(connection);
  parts.picker.update(picture, ui, runs);
  parts.firstSteps.update(picture, ui, runs);
  layCharts(document.querySelector("[data-part=charts]"), picture);
  const plain = ["answer", "figures", "ledger", "waits", "liveness", "alerts", "verdicts"];
  for (const name of plain) parts[name].update(picture, ui);
  if (picture) {
    parts.matrix.update(picture, ui);
    parts.sectionHeat.update(picture, ui);
    parts.rankTime.update(picture, ui, timeline);
  }
  parts.rank.update(picture, ui, rank, connection.state === "saved");
  parts.announcer.update(picture, connection, problem);
  if (picture || runs || connection.state === "locked") document.body.dataset.ready = "";
}

/** With few sections the ledger stands to their right, with many below; with few ranks alone there. */
function layCharts(grid, picture) {
  grid.hidden = !picture;
  if (!picture) return;
  grid.dataset.sections = picture.sections.length > MAX_FEW_SECTIONS ? "many" : "few";
  const count = picture.ranks.rank.length;
  grid.dataset.ranks = count > SOME_RANKS ? "many" : count > FEW_RANKS ? "some" : "few";
}

startPage();
