// Colours of both themes. `cases.json`, with what charts.css says, comes from test_charts_maths.py.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { byteOf } from "./js/bytes.js";
import { contrastOf, heatPixels, heatPosition, heatRgb, inkOn, rgbOfHex } from "./js/colours.js";

const cases = JSON.parse(readFileSync(new URL("cases.json", import.meta.url)));

/** How light a colour is: its contrast to black. */
const lightness = (rgb) => contrastOf(rgb, [0, 0, 0]);

for (const [theme, palette] of Object.entries(cases.palettes)) {
  const colour = (byte) => heatRgb(palette, heatPosition(byte));

  test(`${theme}: the scale is neutral at 1.0 and gets ever stronger to both sides`, () => {
    assert.equal(heatPosition(128), 0);
    for (let byte = 2; byte < 256; byte += 1)
      assert.ok(heatPosition(byte) >= heatPosition(byte - 1));
    for (let byte = 66; byte <= 192; byte += 1)
      assert.ok(heatPosition(byte) > heatPosition(byte - 1));
    assert.deepEqual(
      [heatPosition(192), heatPosition(64)].map((p) => Math.round(p * 1e9) / 1e9),
      [1, -1],
    );
    assert.deepEqual(colour(128).map(Math.round), rgbOfHex(palette.even));
    const sign = theme === "dark" ? 1 : -1;
    for (const side of [1, -1]) {
      for (let step = 1; step <= 40; step += 1) {
        const [weaker, stronger] = [step - 1, step].map((i) =>
          lightness(heatRgb(palette, (side * i) / 40)),
        );
        assert.ok(sign * (stronger - weaker) > 0, `${side} ${step}`);
      }
    }
  });

  test(`${theme}: figures are read on every colour`, () => {
    for (let byte = 1; byte < 256; byte += 1) {
      assert.ok(contrastOf(colour(byte), rgbOfHex(inkOn(colour(byte)))) >= 4.5, `${byte}`);
    }
  });

  test(`${theme}: words are read on the ground, and marks are seen`, () => {
    for (const name of ["ink", "quiet", "flag", "accent"]) {
      assert.ok(contrastOf(rgbOfHex(palette[name]), rgbOfHex(palette.surface)) >= 4.5, name);
    }
    assert.ok(contrastOf(rgbOfHex(palette.quiet), rgbOfHex(palette.raised)) >= 4.5);
    assert.ok(contrastOf(colour(byteOf(1.5)), rgbOfHex(palette.even)) >= 1.9, "hot beside even");
  });

  test(`${theme}: fast and slow differ for those who do not see red, green or blue`, () => {
    for (const [kind, matrix] of Object.entries(BLINDNESS)) {
      for (const slowdown of [1.15, 1.3, 1.6, 2]) {
        const [slow, fast] = [slowdown, 1 / slowdown].map((each) =>
          seenBy(matrix, colour(byteOf(each))),
        );
        assert.ok(distance(slow, fast) > 30, `${kind} ${slowdown}: ${distance(slow, fast)}`);
      }
    }
  });

  test(`${theme}: a pixel of no data is clear, all others are opaque`, () => {
    const bytes = new Uint8Array(heatPixels(palette).buffer);
    for (let byte = 0; byte < 256; byte += 1) assert.equal(bytes[byte * 4 + 3], byte ? 255 : 0);
  });
}

// Machado, Oliveira and Fernandes 2009, severity 1.0, on linear colours.
const BLINDNESS = {
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

function seenBy(matrix, rgb) {
  const linear = rgb.map((channel) => (channel / 255) ** 2.2);
  return matrix.map((row) => {
    const sum = row.reduce((total, share, i) => total + share * linear[i], 0);
    return 255 * Math.min(1, Math.max(0, sum)) ** (1 / 2.2);
  });
}

function distance(one, other) {
  return Math.hypot(...one.map((channel, i) => channel - other[i]));
}
