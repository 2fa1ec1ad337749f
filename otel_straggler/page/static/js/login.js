// The form that asks for a token, where the collector wants to know who looks.

import { el, patch } from "./dom.js";

/** Shown while the connection is locked; `actions.login(token)` answers a sentence, or null. */
export function createLogin(container, actions) {
  let problem = null;
  let isAsking = false;
  const draw = () => patch(container, loginTree(problem, isAsking, submit));

  async function submit(event) {
    event.preventDefault();
    const input = container.querySelector("input");
    if (isAsking || !input.value.trim()) return;
    isAsking = true;
    draw();
    problem = await actions.login(input.value.trim());
    isAsking = false;
    if (problem === null) input.value = "";
    draw();
    if (problem !== null) input.focus();
  }

  return {
    update(connection) {
      const isNew = container.hidden && connection.state === "locked";
      container.hidden = connection.state !== "locked";
      if (container.hidden) return;
      draw();
      if (isNew) container.querySelector("input").focus();
    },
  };
}

/** The form, and what the collector said of the last token. */
export function loginTree(problem, isAsking, submit) {
  return [
    el("h1", {}, "This collector asks for a token"),
    el("p", {}, "Use one with the role read. It is kept until the browser is closed."),
    el(
      "form",
      { onsubmit: submit },
      el("label", { for: "login-token" }, "Token"),
      el("input", {
        id: "login-token",
        type: "password",
        autocomplete: "current-password",
        spellcheck: "false",
        "aria-describedby": "login-problem",
      }),
      el("button", { type: "submit", disabled: isAsking }, "Log in"),
    ),
    el("p", { id: "login-problem", role: "alert" }, problem ? `Not accepted: ${problem}.` : ""),
  ];
}
