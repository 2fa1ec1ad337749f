import assert from "node:assert/strict";
import test from "node:test";
import { chosenAfter, createState, hashOf, parseHash, shownSection } from "./js/state.js";

const NOTHING = { run: null, group: null, section: null, rank: null };

test("a choice goes into the address and comes back the same", () => {
  const choices = [
    NOTHING,
    { run: "demo", group: "", section: null, rank: 0 },
    { run: "demo", group: null, section: "", rank: null },
    { run: "a&b=c#d/é <img>", group: "actor", section: "forward %2F", rank: 9999 },
  ];
  for (const chosen of choices) assert.deepEqual(parseHash(hashOf(chosen)), chosen);
});

test("nothing chosen is an empty fragment", () => {
  assert.equal(hashOf(NOTHING), "");
  assert.deepEqual(parseHash(""), NOTHING);
  assert.deepEqual(parseHash("#"), NOTHING);
});

test("a rank that is no number is none", () => {
  for (const rank of ["x", "-1", "1.5", "1e3", "", "99999999999"]) {
    assert.equal(parseHash(`#rank=${rank}`).rank, null, rank);
  }
});

test("another run begins without group, section and rank", () => {
  const chosen = { run: "a", group: "g", section: "s", rank: 3 };
  assert.deepEqual(chosenAfter(chosen, { run: "b" }), { ...NOTHING, run: "b" });
  assert.deepEqual(chosenAfter(chosen, { run: "b", rank: 7 }), { ...NOTHING, run: "b", rank: 7 });
  assert.deepEqual(chosenAfter(chosen, { run: "a" }), chosen);
});

test("another group keeps the run, and begins without a section", () => {
  const chosen = { run: "a", group: "g", section: "s", rank: 3 };
  assert.deepEqual(chosenAfter(chosen, { group: "h" }), { ...NOTHING, run: "a", group: "h" });
  assert.equal(chosenAfter(chosen, { section: "" }).section, ""); // all of them, by choice
  assert.equal(chosenAfter(chosen, { rank: null }).rank, null);
});

test("charts open in the section of the verdict, until somebody chooses another or all", () => {
  const answer = { section: "forward", peers: { slowdown: 1.5 } };
  const picture = { answer, sections: [{ name: "forward" }, { name: "backward" }] };
  assert.equal(shownSection(picture, NOTHING), "forward");
  assert.equal(shownSection(picture, { ...NOTHING, section: "backward" }), "backward");
  assert.equal(shownSection(picture, { ...NOTHING, section: "" }), "");
  const inNone = { ...picture, answer: { ...answer, section: null } };
  const inAnUnknown = { ...picture, answer: { ...answer, section: "gone" } };
  const hung = { ...picture, answer: { ...answer, peers: null } };
  for (const other of [inNone, inAnUnknown, hung, null]) assert.equal(shownSection(other, NOTHING), "");
});

function fakeWindow(hash) {
  const listeners = {};
  const made = [];
  return {
    made,
    listeners,
    location: { hash, pathname: "/", search: "" },
    history: {
      pushState: (_, __, address) => made.push(["push", address]),
      replaceState: (_, __, address) => made.push(["replace", address]),
    },
    addEventListener: (name, listener) => (listeners[name] = listener),
  };
}

test("a new run can be left with back, a rank does not fill the history", () => {
  const win = fakeWindow("");
  const seen = [];
  const state = createState(win, (chosen) => seen.push(chosen));
  state.select({ run: "demo" });
  state.select({ rank: 5 });
  state.select({ rank: 5 });
  state.select({ run: null });
  assert.deepEqual(win.made, [["push", "#run=demo"], ["replace", "#run=demo&rank=5"], ["push", "/"]]);
  assert.equal(seen.length, 3);
});

test("back and an address typed by hand are followed", () => {
  const win = fakeWindow("#run=a");
  const seen = [];
  createState(win, (chosen) => seen.push(chosen.run));
  win.location.hash = "#run=b";
  win.listeners.popstate();
  assert.deepEqual(seen, ["b"]);
});
