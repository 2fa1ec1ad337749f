// The frame that all charts have: head with tools, canvas with tooltip, legend, and words for those
// who do not see it.

import {
  chartButton,
  chartElement,
  chartLegend,
  chartTooltip,
  spokenWords,
  worstTable,
} from "./chart_dom.js";
import { createHeatMinimap } from "./heat_minimap.js";
import { createHeatView } from "./heat_view.js";

const KEYS_HELP =
  "Arrow keys move from cell to cell, Home and End to the ends, Enter chooses the rank. " +
  "Plus and minus zoom, brackets zoom across, 0 shows all, Shift with arrows pans, Escape leaves.";

/** Where charts stand one below the other each leaves room for the next. */
const NARROW = "(max-width: 40rem)";
const MAX_WHERE_NARROW = 250;

/**
 * A chart in `container`; `on` is what `createHeatView` calls back.
 * Answers `{heat, setHeight, canvas, tools, stage, note, body, table, destroy}`.
 */
export function createChartFrame(
  container,
  { part, label, layout, marks, hasMinimap, tableCaption, tableColumn, on },
) {
  if (!container.dataset.part) container.dataset.part = part;
  container.classList.add("chart");
  const help = chartElement("p", "chart-keys", { id: `${part}-keys` }, KEYS_HELP);
  const canvas = chartElement("canvas", "chart-canvas", {
    tabindex: "0",
    role: "application",
    "aria-roledescription": "heat map",
    "aria-label": label,
    "aria-describedby": `${part}-keys`,
  });
  const stage = chartElement("div", "chart-stage", {}, canvas);
  const strip = chartElement("canvas", "chart-minimap", { "aria-hidden": "true" });
  const note = chartElement("p", "chart-note");
  const tools = chartElement("div", "chart-tools");
  const legend = chartLegend(marks);
  const spoken = spokenWords();
  const table = worstTable(tableCaption, tableColumn);
  const body = chartElement("div", "chart-body", {}, stage, ...(hasMinimap ? [strip] : []));
  const foot = chartElement("div", "chart-foot", {}, legend.element, note);
  container.replaceChildren(tools, body, foot, help, spoken, table.element);
  let palette = null;
  let minimap = null;
  const changed = (it) => {
    if (it.palette !== palette) legend.setPalette((palette = it.palette));
    minimap?.update(it);
    on.changed(it);
  };
  const heat = createHeatView({
    host: stage,
    canvas,
    tooltip: chartTooltip(stage),
    spoken,
    layout,
    on: { ...on, changed },
  });
  if (hasMinimap) minimap = createHeatMinimap(strip, heat.show);
  const destroy = () => {
    heat.destroy();
    container.replaceChildren();
    container.classList.remove("chart");
  };
  const setHeight = (units) => {
    const limit = window.matchMedia(NARROW).matches ? MAX_WHERE_NARROW : units;
    const height = `${Math.min(units, limit) / 16}rem`;
    if (body.style.height !== height) body.style.height = height;
  };
  return { heat, setHeight, canvas, tools, stage, note, body, table, destroy };
}

/** Buttons that zoom: rows, columns if there is a word for them, all. */
export function zoomButtons(actions, rows, columns) {
  const group = (name, inward, outward) =>
    chartElement(
      "span",
      "chart-group",
      { role: "group", "aria-label": `zoom ${name}` },
      chartElement("span", "chart-group-word", {}, name),
      chartButton("−", `${name}: zoom out`, outward),
      chartButton("+", `${name}: zoom in`, inward),
    );
  const groups = [
    group(
      rows,
      () => actions.zoomBy(1, 1.6),
      () => actions.zoomBy(1, 1 / 1.6),
    ),
  ];
  if (columns)
    groups.push(
      group(
        columns,
        () => actions.zoomBy(1.6, 1),
        () => actions.zoomBy(1 / 1.6, 1),
      ),
    );
  return [...groups, chartButton("all", "show all", () => actions.fit())];
}
