// Which section the chart of ranks over time shows.

import { el, patch } from "./dom.js";

/** A list of all sections; hidden while there is none to choose. */
export function createSectionPicker(container, actions) {
  return {
    update(picture, ui) {
      const sections = picture?.sections ?? [];
      container.hidden = sections.length === 0;
      patch(
        container,
        el("span", {}, "Section"),
        el(
          "select",
          { value: ui.section ?? "", onchange: (event) => actions.select({ section: event.target.value }) },
          el("option", { value: "", key: "", selected: !ui.section }, "all together"),
          sections.map(({ name }) =>
            el("option", { value: name, key: name, selected: name === ui.section }, name),
          ),
        ),
      );
    },
  };
}
