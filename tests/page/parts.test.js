import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { alertsTree } from "./js/alerts.js";
import { titleOf } from "./js/announcer.js";
import { answerTree } from "./js/answer.js";
import { addressedCommand, proseTree } from "./js/bars.js";
import { connectionTold } from "./js/connection.js";
import { el, findTrees, printableText, textOf } from "./js/dom.js";
import { earlierHangsTree } from "./js/earlier_hangs.js";
import { evidenceTree, spreadOf } from "./js/evidence.js";
import { figuresOf } from "./js/figures.js";
import { firstStepsTree } from "./js/first_steps.js";
import { isAlone, ledgerTree } from "./js/ledger.js";
import { countsTree, namedTree, rankText } from "./js/liveness.js";
import { loginTree } from "./js/login.js";
import { foundRuns, shardAddress } from "./js/picker.js";
import { panelTree } from "./js/rank_details.js";
import { agesOf, countedStates, awaitedRanks, graveRanks, tilesOfStrip } from "./js/rank_states.js";
import { pathOfValues } from "./js/sparkline.js";
import { verdictsTree } from "./js/verdicts.js";
import { waitsTree } from "./js/waits.js";

const CASES = JSON.parse(readFileSync(new URL("./cases.json", import.meta.url)));
const { pictures } = CASES;

function field(tree, name) {
  return textOf(findTrees(tree, (each) => each.props["data-field"] === name));
}

function clicked(tree, text) {
  const [button] = findTrees(tree, (each) => each.tag === "button" && textOf(each) === text);
  assert.ok(button, `a button ${text}`);
  button.props.onclick();
}

test("the answer says who, where, since when, why, what it costs and what to do", () => {
  const tree = answerTree(pictures.straggler, {});
  assert.equal(field(tree, "headline"), "Rank 21 on node-2 is slow in forward");
  assert.match(field(tree, "sentence"), /^Rank 21 on node-2 takes 1.50x as long as its 15 peers/);
  assert.equal(field(tree, "cause"), "slow GPU");
  assert.match(field(tree, "since"), /^step 17,440, 5 min 6 s ago \(/);
  assert.equal(field(tree, "cost"), "9.2 GPU-h per hour, 2.5 GPU-h so far");
  const onCpu = { ...pictures.straggler, run: { ...pictures.straggler.run, on_gpu: false } };
  assert.equal(field(answerTree(onCpu, {}), "cost"), "9.2 rank-h per hour, 2.5 rank-h so far");
  assert.equal(field(tree, "evidence"), "CUDA events, 97 % sure");
  assert.match(field(tree, "advice"), /Compare its clocks/);
  assert.match(field(tree, "peers"), /1.50× as long as its 15 peers in forward.*Rank 21.*165 ms.*Its 15 peers.*110 ms/);
});

test("a button of the answer leads to the rank", () => {
  const chosen = [];
  clicked(answerTree(pictures.straggler, { select: (change) => chosen.push(change) }), "All about rank 21");
  assert.deepEqual(chosen, [{ rank: 21 }]);
});

test("hangs that are over are told, newest first", () => {
  const hang = {
    since_s: 1000,
    duration_s: 2400,
    is_end_seen: true,
    gpu_seconds_lost: 19200,
    sentence: "Rank 5 on node-1 was silent.",
    then: "it went on by itself",
  };
  const missed = { ...hang, is_end_seen: false, gpu_seconds_lost: null };
  const world = { earlier: [hang, missed, ...Array(10).fill(hang)], earlier_left_out: 3 };
  const run = { on_gpu: true };
  const trees = earlierHangsTree({ now_s: 9000, run, hangs: [world] });
  const rows = findTrees(trees, (each) => each.tag === "tr").map(textOf);
  assert.equal(rows.length, 11);
  assert.match(rows[1], /40 min.*Rank 5 on node-1 was silent\..*5.3 GPU-h.*it went on by itself/);
  assert.match(rows[2], /at least 40 min.*unknown/);
  assert.match(textOf(trees), /and 5 shorter ones/);
  const long = { ...hang, duration_s: 4800 };
  const after = earlierHangsTree({ now_s: 9000, run, hangs: [{ earlier: [...Array(12).fill(hang), long] }] });
  assert.match(textOf(after), /1 h 20 min/); // what cost most is not pushed out by what came later
  const brief = { sentence: "40 shorter than 2 min, at least 9 min together.", gpu_seconds_lost: 1800, is_all: false };
  const many = { earlier: [hang, ...Array(9).fill({ ...hang, is_brief: true })], earlier_left_out: 31, earlier_brief: brief };
  const summed = earlierHangsTree({ now_s: 9000, run, hangs: [many] });
  assert.equal(findTrees(summed, (each) => each.tag === "tr").length, 2); // the head, and the long one
  assert.match(textOf(summed), /and 40 shorter than 2 min, at least 9 min together\. Cost at least: 30 GPU-min\.$/);
  const only = earlierHangsTree({ now_s: 9000, run, hangs: [{ ...many, earlier: many.earlier.slice(1) }] });
  assert.match(textOf(only), /^Earlier hangs40 shorter/);
  assert.equal(earlierHangsTree({ now_s: 9000, hangs: [{ earlier: [] }] }), null);
  assert.equal(earlierHangsTree({ now_s: 9000, hangs: [{}] }), null); // of an older collector
});

test("a run that was restarted says when and after what", () => {
  const shown = (launches) => {
    const picture = { ...pictures.healthy, now_s: 9000 };
    const trees = answerTree({ ...picture, run: { ...picture.run, launches } }, {});
    return findTrees(trees, (each) => each.props["data-field"] === "launches").map(textOf);
  };
  const newest = { attempt: 3, started_at_s: 8280 };
  const launches = { restarts: 3, attempts: [{ attempt: 2 }, newest], text: "after rank 1 ended by SIGKILL" };
  assert.deepEqual(shown(launches), ["Attempt 3; restarted 12 min ago after rank 1 ended by SIGKILL"]);
  assert.deepEqual(shown({ ...launches, text: "" }), ["Attempt 3; restarted 12 min ago"]);
  const unseen = { ...launches, attempts: [{ attempt: 3, started_at_s: null }] };
  assert.deepEqual(shown(unseen), ["Attempt 3; restarted after rank 1 ended by SIGKILL"]);
  assert.deepEqual(shown({ restarts: 0, attempts: [{ attempt: 0, started_at_s: 1 }], text: null }), []);
  assert.deepEqual([shown(null), shown(undefined)], [[], []]); // no launcher; an older collector
});

test("every scenario has an answer without a hole in it", () => {
  for (const [name, picture] of Object.entries(pictures)) {
    const trees = [
      answerTree(picture, {}),
      figuresOf(picture).map(({ large, small }) => `${large} ${small}`),
      ledgerTree(picture.ledger, {}),
      waitsTree(picture.waits, true, () => {}, {}),
      countsTree(picture),
      alertsTree(picture, {}),
      verdictsTree(picture, true, () => {}, {}),
    ];
    assert.doesNotMatch(textOf(trees), /undefined|NaN|null|Infinity|\[object/, name);
    assert.ok(field(trees, "headline"), name);
  }
});

test("a hang is drawn as silence beside that of the others", () => {
  assert.match(textOf(evidenceTree(pictures.hang)), /1 min 14 s since the last heartbeat.*Rank 11/);
});

test("who does not join the others is told apart by how far it has come", () => {
  const { ranks, ...rest } = pictures.hang;
  const place = ranks.rank.indexOf(11);
  const openSections = ["forward", "gradient_sync"];
  const stuck = {
    ...rest,
    answer: { ...rest.answer, cause: "never_joined" },
    ranks: {
      ...ranks,
      state: ranks.state.map(() => ranks.states.indexOf("stuck")),
      step: ranks.step.map(() => 400),
      open_sections: openSections,
      open_section: ranks.rank.map((_, each) => (each === place ? 0 : 1)),
    },
  };
  const told = textOf(evidenceTree(stuck));
  assert.match(told, /Rank 11 ?step 400, in forward ?Most of the others ?step 400, in gradient_sync/);
  assert.doesNotMatch(told, /progress/); // which is equally old everywhere
});

test("a figure's unit is not larger than it needs to be", () => {
  const [stepTime, , lost] = figuresOf(pictures.straggler);
  assert.deepEqual([lost.large, lost.unit], ["2.5", "GPU-h"]);
  assert.match(stepTime.small, /of the slowest rank$/);
  const one = { ...pictures.straggler, run: { ...pictures.straggler.run, world_size: 1, gpu_seconds_lost: null } };
  const [alone, , unknown] = figuresOf(one);
  assert.match(alone.small, /own work$/);
  assert.deepEqual([unknown.large, unknown.unit], ["–", undefined]);
});

test("who would be called is said to be only where somebody is", () => {
  const labels = (mode) => {
    const picture = { ...pictures.straggler, run: { ...pictures.straggler.run, mode } };
    const tree = verdictsTree({ ...picture, verdicts: [{ ...picture.verdicts[0], pages: true }] }, true, () => {}, {});
    return findTrees(tree, (each) => each.props.class === "label strong").map(textOf);
  };
  assert.deepEqual([labels("page"), labels("observe")], [["pages"], ["would page"]]);
});

test("a hang counts from its last progress, and the loss is told once", () => {
  const { now_s: nowS } = pictures.hang;
  const hung = { ...pictures.hang, answer: { ...pictures.hang.answer, since_s: nowS - 42 } };
  hung.run = { ...hung.run, state: "stuck", began_at_s: nowS - 500, waste: 1, slowdown: null };
  const [, lost, , , step] = figuresOf(hung);
  assert.equal(step.small, "stuck for 42 s");
  assert.deepEqual([lost.large, lost.small], ["100 %", "no progress"]);
  for (const picture of Object.values(pictures)) {
    assert.doesNotMatch(figuresOf(picture).map(({ small }) => small).join(), /per hour/);
  }
});

test("a run that nobody follows any more lasted until it was last heard", () => {
  const { now_s: nowS } = pictures.healthy;
  const gone = { ...pictures.healthy, answer: { ...pictures.healthy.answer, kind: "ended" } };
  const times = { began_at_s: nowS - 5000, received_at_s: nowS - 4940, finished_at_s: null };
  gone.run = { ...gone.run, state: "training", attempt: 0, ...times };
  assert.equal(figuresOf(gone)[4].small, "last seen training after 1 min");
});

test("a healthy run is drawn as the spread of its ranks, with the slowest named", () => {
  const { answer } = pictures.straggler;
  const run = { ...answer, scope: "run", rank: null, node: null, cause: "unknown", section: null };
  const ofRun = (cause) => textOf(evidenceTree({ ...pictures.straggler, answer: { ...run, cause } }));
  assert.match(ofRun("unknown"), /The run.*165 ms.*Before.*110 ms/); // it has no peers
  assert.match(ofRun("stage_imbalance"), /If all did the same work/);
  assert.match(textOf(evidenceTree(pictures.healthy)), /× as long as its peers: the slowest of all, rank \d+/);
  const alone = { ...pictures.healthy, slowdowns: { ...pictures.healthy.slowdowns, overall: [1] } };
  assert.equal(evidenceTree(alone), null); // who is alone is not the slowest of all
  assert.equal(spreadOf([null, null]), null);
  const spread = spreadOf([1, 1, null, 1.5, 0.95]);
  assert.equal(spread.slowest_place, 3);
  assert.equal(spread.bins.reduce((sum, count) => sum + count), 4);
});

test("missing ranks and wasted time stand out among the figures", () => {
  const toneOf = (picture, title) => figuresOf(picture).find((each) => each.title === title).tone;
  assert.equal(toneOf(pictures.hang, "Ranks reporting"), "bad");
  assert.equal(toneOf(pictures.healthy, "Ranks reporting"), null);
  assert.equal(toneOf(pictures.straggler, "Time lost"), "bad");
  assert.equal(toneOf(pictures.healthy, "Time lost"), "good");
  assert.equal(toneOf(pictures.waiting, "Time lost"), null);
});

test("the ledger names sections, times and leaders", () => {
  const text = textOf(ledgerTree(pictures.straggler.ledger, {}));
  assert.match(text, /forward165 ms 36 %110 msrank 21/);
  assert.match(textOf(ledgerTree([], {})), /No step/);
});

test("culprits and victims are told apart", () => {
  const rows = findTrees(waitsTree(pictures.straggler.waits, false, () => {}, {}), (each) => each.props["data-part-in-it"]);
  assert.equal(rows.length, 8);
  assert.equal(rows[0].props["data-part-in-it"], "culprit");
  assert.match(textOf(rows[0]), /^rank 21/);
  assert.ok(rows.slice(1).every((row) => row.props["data-part-in-it"] === "victim"));
});

test("the state of every rank is counted, the gravest first", () => {
  const counted = countedStates(pictures.hang.ranks).map(({ state, count }) => [state, count]);
  assert.deepEqual(counted, [["lost", 1], ["stuck", 63]]);
  const { places, left_out: leftOut } = graveRanks(pictures.hang.ranks, 8);
  assert.equal(places[0], 11);
  assert.equal(leftOut, 56);
  assert.match(rankText(pictures.hang.ranks, 11), /^rank 11 on node-1: lost, heartbeat 1 min 14 s ago, step 18,240/);
  assert.deepEqual(agesOf([null, 3, 1, 2]), { oldest: 3, median: 2 });
  assert.equal(agesOf([null]), null);
});

test("the rank for whom others wait comes first among all that are stuck", () => {
  const { ranks } = pictures.hang;
  const { places } = graveRanks(ranks, 3, new Set([40]));
  assert.deepEqual(places.map((place) => ranks.rank[place]), [40, 11, 0]);
  assert.deepEqual([...awaitedRanks(pictures.hang.hangs)], [11]);
});

test("one rank or ten thousand fit their strip", () => {
  for (const count of [1, 8, 64, 1000, 10000, 100000]) {
    for (const width of [300, 1376, 3000]) {
      const lies = tilesOfStrip(count, width, 132);
      assert.ok(lies.columns * lies.rows >= count, `${count} in ${width}`);
      assert.ok(lies.columns * lies.width <= width + 1e-6);
      assert.ok(lies.total <= 132 || lies.height === 1);
    }
  }
});

test("runs are found by all typed words, whatever their order and case", () => {
  const { runs } = CASES.runs;
  assert.equal(foundRuns(runs, "").length, runs.length);
  assert.ok(foundRuns(runs, "LLAMA alike").length > 0);
  assert.equal(foundRuns(runs, "alike no-such").length, 0);
});

test("a run of another shard leads to its page, and only to one that is a page", () => {
  const at = (page_url) => shardAddress({ run_id: "a/b &c", page_url });
  assert.equal(at("https://shard-1.example.org/x"), "https://shard-1.example.org/x/#run=a%2Fb+%26c");
  for (const none of [null, undefined, "", "javascript:alert(1)"]) assert.equal(at(none), null);
});

test("the panel shows sections beside peers, the past and what to run", () => {
  const tree = panelTree(pictures.straggler, { rank: 21 }, CASES.rank, {});
  const text = textOf(tree);
  assert.match(text, /^Rank 21/);
  assert.match(text, /Hostnode-2/);
  assert.match(text, /forward compute1.5\d× its peers16\d ms110 ms/);
  assert.match(text, /otel-straggler verdict explain 21/);
  assert.equal(findTrees(tree, (each) => each.tag === "svg").length, 5);
  const unknown = panelTree(pictures.straggler, { rank: 999 }, null, {});
  assert.match(textOf(unknown), /Unknown rank/);
  const saved = panelTree(pictures.straggler, { rank: 5 }, null, { isSaved: true });
  assert.match(textOf(saved), /This report has no details of this rank/);
});

test("a rank that waits longer is not marked as slow", () => {
  const sections = [{ name: "sync", kind: "wait", slowdown: 4, step_s: 0.4, peers_step_s: 0.1, n_peers: 3 }];
  const rank = { ...CASES.rank, sections };
  const tree = panelTree(pictures.straggler, { rank: 21 }, rank, {});
  const [row] = findTrees(tree, (each) => each.tag === "li" && /sync/.test(textOf(each)));
  assert.equal(row.props["data-tone"], false);
});

test("a line has a gap where nothing is known, and a dot for a value alone", () => {
  const path = pathOfValues([1, 2, null, 3], (place) => place, (value) => value);
  assert.equal(path, "M0.0 1.0h0.01L1.0 2.0M3.0 3.0h0.01");
});

test("only addresses of the web become links", () => {
  const told = (address) => {
    const alerts = [{ ...pictures.hang.alerts[0], annotations: { runbook_url: address } }];
    return findTrees(alertsTree({ ...pictures.hang, alerts }, {}), (each) => each.tag === "a").length;
  };
  assert.equal(told("https://runbooks.example/a"), 1);
  for (const address of ["javascript:alert(1)", "data:text/html,x", " https://x", undefined]) {
    assert.equal(told(address), 0, address);
  }
});

test("the age of the data is told in every state", () => {
  const picture = pictures.straggler;
  const nowMs = picture.run.received_at_s * 1000 + 4000;
  const told = (state, more = {}) =>
    connectionTold(picture, { state, since_ms: nowMs - 12000, retry_ms: nowMs + 3000, clock_s: 0, ...more }, null, nowMs);
  assert.equal(told("live").age, "data 4 s ago");
  assert.equal(told("live").notice, null);
  assert.equal(told("live", { clock_s: 60 }).isOld, true);
  const away = told("reconnecting");
  assert.match(away.notice, /has not responded for 12 s. The data is 4 s old. Trying again in 3 s./);
  assert.equal(away.canRetry, true);
  assert.match(told("reconnecting", { told: "/h.db: no file." }).notice, /cannot show this: \/h.db: no file. .*again in 3 s./);
  assert.match(told("saved").notice, /^A report of /);
  const over = (name) => connectionTold(pictures[name], { state: "ended", since_ms: 0, clock_s: 0 }, null, nowMs).notice;
  assert.match(over("ended"), /^This run finished at \d\d:\d\d:\d\d\.$/);
  assert.match(over("history"), /history: no rank is reporting/);
  const live = { state: "live", since_ms: 0, clock_s: 0 };
  for (const shown of [picture, null]) {
    const crowded = connectionTold(shown, live, null, nowMs, null, ["100 runs are watched. Give one name"]);
    assert.equal(crowded.notice, "100 runs are watched. Give one name.");
    assert.equal(crowded.kind, "collector-problem");
    const told = connectionTold(shown, live, null, nowMs, "/h.db: no file.");
    assert.equal(told.notice, "Past runs cannot be shown: /h.db: no file.");
  }
  const { history } = pictures;
  const run = { ...history.run, seen_at_s: history.now_s - 60, awaited_since_s: history.now_s - 5 };
  const waits = connectionTold({ ...history, run }, { state: "ended", since_ms: 0, clock_s: 0 }, null, nowMs);
  assert.match(waits.notice, /^This is the run as of [\d:]+\. The collector was restarted at [\d:]+, and has received nothing/);
  assert.equal(waits.kind, "awaited");
});

test("of a run that is awaited the step is of before", () => {
  const { run } = pictures.straggler;
  const small = (more) => figuresOf({ ...pictures.straggler, run: { ...run, ...more } })[4].small;
  assert.equal(small({ state: "unknown", awaited_since_s: 5 }), "before the collector was restarted");
  assert.match(small({ state: "unknown" }), /^without heartbeats for /);
});

test("the page of a collector without runs tells its address", () => {
  const text = textOf(firstStepsTree("trainer-0"));
  assert.match(text, /ots.configure\(endpoint="http:\/\/trainer-0:4318"\)/);
  assert.match(textOf(firstStepsTree("::1")), /http:\/\/\[::1\]:4318/);
});

test("the lines for a loop are complete: what they begin they end", () => {
  const [code] = findTrees(firstStepsTree("h"), (each) => each.tag === "pre");
  const lines = textOf(code).split("\n");
  assert.ok(lines.length <= 7);
  assert.match(lines[0], /^import otel_straggler as ots$/);
  assert.equal(lines[3], "ots.watch(model, optimizer, dataloader)");
  assert.equal(lines.at(-1), "ots.shutdown()");
});

test("every ratio of a verdict names what it is a ratio of", () => {
  const told = (more) => {
    const verdicts = [{ ...pictures.straggler.verdicts[0], ...more }];
    return textOf(verdictsTree({ ...pictures.straggler, verdicts }, true, () => {}, {}));
  };
  assert.match(told({}), /1.50× as long as its peers/);
  assert.match(told({ scope: "run", rank: null, cause: "uniform_slowdown" }), /1.50× as long as before/);
  assert.match(told({ scope: "role", rank: null, cause: "stage_imbalance" }), /1.50× as long as if all did the same work/);
});

test("dismissing is folded away below what explains", () => {
  const commands = ["otel-straggler verdict explain 21 --run r", "otel-straggler verdict dismiss 21 --reason WHY --run r"];
  const { answer } = pictures.straggler;
  const tree = answerTree({ ...pictures.straggler, answer: { ...answer, commands } }, {});
  const [folded] = findTrees(tree, (each) => each.tag === "details");
  assert.ok(!folded.props.open);
  assert.match(textOf(folded), /verdict dismiss/);
  assert.doesNotMatch(textOf(folded), /verdict explain/);
  assert.match(textOf(tree), /verdict explain/);
});

test("what the worst worker and the last stage would win are not added up", () => {
  const lost = (more) => figuresOf({ ...pictures.straggler, run: { ...pictures.straggler.run, ...more } })[2].small;
  assert.match(lost({ m_w: 1.06, m_s: 1.02 }), /^100 % of it by the worst workers?$/);
  assert.match(lost({ m_w: 0.1, m_s: 0.9 }), /^90 % of it by the last stage$/);
  assert.equal(lost({ m_w: null, m_s: 0.3 }), "");
});

test("the detection limit is of one rank, and of the group where there are several", () => {
  const limit = (more) => figuresOf({ ...pictures.straggler, run: { ...pictures.straggler.run, ...more } })[5].small;
  assert.match(limit({ groups: [""], time_basis: "host" }), /^slowdown of one rank, by host clock$/);
  assert.match(limit({ groups: ["a", "b"] }), /of one rank of this group/);
});

test("characters that turn text around are shown as what they are", () => {
  assert.equal(printableText("a\u202eb\u0000c"), "a\ufffdb\ufffdc");
  assert.equal(printableText("a\tb\né"), "a\tb\né");
  assert.deepEqual(el("p", {}, "x\u202ey").children, ["x\ufffdy"]);
});

test("text stays the same where names are kept together", () => {
  const text = "rank 5 on node-17 is slow";
  assert.equal(textOf(proseTree(text)), text);
  assert.equal(textOf(proseTree(null)), "");
});

test("a command asks the collector of this page", () => {
  const explain = "otel-straggler verdict explain 21 --run demo";
  const at = (host) => ({ protocol: "http:", host, origin: `http://${host}` });
  assert.equal(addressedCommand(explain, at("127.0.0.1:9464")), explain);
  assert.equal(addressedCommand(explain, at("c:80")), `${explain} --collector http://c:80`);
  const onTheHost = "otel-straggler hang stacks --pid PID"; // asks no collector
  assert.equal(addressedCommand(onTheHost, at("c:80")), onTheHost);
  assert.match(addressedCommand("otel-straggler hang ask dump_stacks", at("c:80")), /--collector/);
  assert.equal(addressedCommand(explain, { protocol: "file:", origin: "null" }), explain);
  const ofShard = addressedCommand(explain, at("127.0.0.1:9464"), "http://shard-1:9464");
  assert.equal(ofShard, `${explain} --collector http://shard-1:9464`);
});

test("a window is named by its state first", () => {
  assert.equal(titleOf(pictures.straggler), "✕ Rank 21 on node-2 is slow in forward · llama-7b");
  assert.equal(titleOf(null), "otel-straggler");
});

test("a rank without a GPU is not said to be timed on one", () => {
  const gpuOf = (gpu) => textOf(panelTree(pictures.healthy, { rank: 5 }, { rank: 5, gpu }, {}));
  const none = { model: null, uuid: null, tier: "off", reason: "auto" };
  assert.match(gpuOf(none), /GPUnone reported/);
  assert.match(gpuOf({ ...none, model: "H200" }), /H200.*not timed/);
  assert.match(gpuOf({ ...none, model: "H200", reason: "no_memory" }), /not timed: no memory/);
  assert.match(gpuOf({ ...none, tier: "events" }), /timed by CUDA events/);
});

test("GPU times that are missing are counted on the rank and the run, with why", () => {
  const gpu = { model: "H200", uuid: null, tier: "events", reason: "no_marks", missing: 1203, lost: { gpu_late: 2 } };
  const panel = textOf(panelTree(pictures.healthy, { rank: 5 }, { rank: 5, gpu, gpu_age_s: 90 }, {}));
  assert.match(panel, /timed by CUDA events: no marks/);
  assert.match(panel, /times missing: 1,203, kernels that came too late: 2/);
  assert.match(panel, /GPU scoresof kernels 1 min 30 s before the end of the window/);
  const none = textOf(panelTree(pictures.healthy, { rank: 5 }, { rank: 5, gpu: { ...gpu, missing: 0, lost: {} }, gpu_age_s: 0 }, {}));
  assert.doesNotMatch(none, /missing|GPU scores/);
  const run = { ...pictures.straggler.run, groups: [""], time_basis: "events", gpu_times: { text: "3 GPU times are missing (1 of 8 ranks)" } };
  assert.match(figuresOf({ ...pictures.straggler, run })[5].small, /by CUDA events; 3 GPU times are missing \(1 of 8 ranks\)$/);
});

test("a section that no other rank has is compared with nobody", () => {
  const lone = { name: "log", kind: "compute", slowdown: 1, step_s: 0.4, peers_step_s: 0.4, n_peers: 0, relative_score: 1 };
  const told = textOf(panelTree(pictures.healthy, { rank: 5 }, { rank: 5, sections: [lone] }, {}));
  assert.match(told, /no other rank to compare with/);
  assert.doesNotMatch(told, /1\.00/);
});

test("a run that was there before the collector is not said to be as young as that", () => {
  const { run } = pictures.healthy;
  const smallOf = (beganS) =>
    figuresOf({ ...pictures.healthy, started_at_s: 1000, now_s: 1600, run: { ...run, began_at_s: beganS } })[4].small;
  assert.match(smallOf(1004), /^training, monitored for 9 min 56 s/);
  assert.match(smallOf(1100), /^training for 8 min 20 s/);
});

test("nobody waits for ranks of a run that is lost altogether", () => {
  const { hang } = pictures;
  const waited = textOf(namedTree(hang, {}));
  assert.equal(waited.split("the others wait for it").length, 2);
  const [told] = hang.hangs;
  const lost = { ...told, state: "lost", culprits: hang.ranks.rank, victims: 0 };
  const all = { ...hang, hangs: [lost], ranks: { ...hang.ranks, states: ["lost"], state: hang.ranks.rank.map(() => 0) } };
  assert.match(textOf(namedTree(all, {})), /rank 0/);
  assert.doesNotMatch(textOf(namedTree(all, {})), /wait/);
});

test("in the ledger of a single rank nobody is last, and nobody is typical", () => {
  const { ledger } = pictures.straggler;
  const lines = ledger.map((line) => ({ ...line, leader_rank: null }));
  const texts = [false, true].map((isLone) => textOf(ledgerTree(lines, {}, isLone)));
  assert.match(texts[0], /Last one.*varies/);
  assert.doesNotMatch(texts[1], /Last one|Typical|varies/);
  const one = { rank: [0] };
  assert.ok(isAlone({ ranks: one, slowdowns: { overall: [1] } }));
  assert.ok(isAlone({ ranks: { rank: [0, 1] }, slowdowns: { overall: [1, null] } }));
  assert.ok(isAlone({ ranks: one, slowdowns: { overall: [] } }));
  assert.ok(!isAlone(pictures.straggler));
});

test("many alerts stand by name, the gravest open, all within reach", () => {
  const [one] = pictures.hang.alerts;
  const of = (name, severity, ranks) =>
    Array.from({ length: ranks }, (_, rank) => ({
      ...one,
      name,
      labels: { ...one.labels, alertname: name, severity, rank: String(rank) },
      annotations: { summary: `${name} of rank ${rank}` },
    }));
  const alerts = [...of("Slow", "warning", 12), ...of("Lost", "critical", 8)];
  const opened = new Map();
  const tree = () => alertsTree({ ...pictures.hang, alerts }, {}, opened, (name, how) => opened.set(name, how));
  const buttons = () => findTrees(tree(), (each) => each.tag === "button" && "aria-expanded" in each.props);
  const told = () => buttons().map((each) => `${textOf(each)} ${each.props["aria-expanded"]}`);
  assert.deepEqual(told(), ["Lost true", "Show all 8 false", "Slow false"]);
  assert.equal(textOf(tree()).split("Lost of rank").length - 1, 3);
  assert.equal(textOf(tree()).split("Slow of rank").length - 1, 1);
  buttons()[1].props.onclick();
  assert.equal(textOf(tree()).split("Lost of rank").length - 1, 8);
  buttons().at(-1).props.onclick();
  buttons().at(-1).props.onclick();
  assert.equal(textOf(tree()).split("Slow of rank").length - 1, 12);
  buttons()[0].props.onclick();
  assert.deepEqual(told(), ["Lost false", "Slow true", "Show fewer true"]);
});

test("a rank that is lost does not report any more", () => {
  const told = (picture) => figuresOf(picture).find(({ title }) => title === "Ranks reporting");
  const { hang } = pictures;
  const all = { ...hang.ranks, states: ["lost"], state: hang.ranks.rank.map(() => 0) };
  const none = told({ ...hang, ranks: all, run: { ...hang.run, ranks_reporting: 64 } });
  assert.deepEqual([none.large, none.of, none.small, none.tone], ["0", "64", "64 lost", "bad"]);
  assert.deepEqual([told(hang).large, told(hang).small], ["63", "1 lost"]);
  assert.equal(told(pictures.healthy).small, "all of them");
});

test("of alerts as grave as each other that of the run comes first", () => {
  const [one] = pictures.hang.alerts;
  const { rank: _, ...ofRun } = one.labels;
  const run = { ...one, name: "Run", labels: ofRun, since_ns: one.since_ns - 60e9 };
  const [first] = findTrees(alertsTree({ ...pictures.hang, alerts: [one, run] }, {}), (each) => each.tag === "li");
  assert.match(textOf(first), /^✕Run/);
});

test("the login says what was wrong, and its field never shows the token", () => {
  const tree = loginTree("no grant has this token", false, () => {});
  assert.match(textOf(tree), /Not accepted: no grant has this token\./);
  const [input] = findTrees(tree, (each) => each.tag === "input");
  assert.equal(input.props.type, "password");
  const [label] = findTrees(tree, (each) => each.tag === "label");
  assert.equal(label.props.for, input.props.id);
});

test("profiles stand below the verdicts, with the sentence and both ranks' times", () => {
  const operator = { name: "aten::mm", slow_s: 0.12, peer_s: 0.039, difference_s: 0.081, ratio: 3.08, slow_calls: 1, peer_calls: 1, on_gpu: false };
  const only = { ...operator, name: "aten::sort", peer_s: 0, ratio: null };
  const pair = { slow_rank: 21, peer_rank: 3, sentence: "aten::mm takes 3.1x as long.", operators: [operator, only] };
  const waiting = { ...pair, sentence: "Ranks 21 and 3 are asked.", operators: [] };
  const tree = verdictsTree({ ...pictures.straggler, profiles: [pair, waiting, pair] }, false, () => {}, {});
  const [part] = findTrees(tree, (each) => each.props.class === "profiles");
  assert.match(textOf(part), /aten::mm takes 3.1x as long\..*Ranks 21 and 3 are asked\./);
  const rows = findTrees(part, (each) => each.tag === "tr").map(textOf);
  assert.equal(rows.length, 3);
  assert.match(rows[1], /^aten::mm120 ms39 ms3.08×1 \/ 1$/);
  const none = verdictsTree(pictures.straggler, false, () => {}, {});
  assert.equal(findTrees(none, (each) => each.props.class === "profiles").length, 0);
});
