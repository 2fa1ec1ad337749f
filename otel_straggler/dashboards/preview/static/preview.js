"use strict";
// Draws the figures that stand in the page. Every text in them was made safe where they were made.
(function () {
  const drawing = JSON.parse(document.getElementById("drawing").textContent);
  const axis = { gridcolor: drawing.grid, zeroline: false, linecolor: drawing.grid, automargin: true };
  const settings = { responsive: true, displaylogo: false, displayModeBar: false, doubleClick: "reset" };

  function wholeLayout(layout) {
    return Object.assign({}, layout, {
      autosize: true,
      margin: { l: 8, r: 12, t: 6, b: 8 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: drawing.text, size: 11 },
      hoverlabel: { align: "left", namelength: -1 },
      xaxis: Object.assign({}, axis, layout.xaxis),
      yaxis: Object.assign({}, axis, layout.yaxis),
      yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
    });
  }

  function letLegendHide(panel, chart) {
    for (const entry of panel.querySelectorAll(".legend li")) {
      entry.addEventListener("click", (event) => {
        if (event.target.closest("a")) return;
        const isOff = entry.classList.toggle("off");
        Plotly.restyle(chart, { visible: !isOff }, [Number(entry.dataset.series)]);
      });
    }
  }

  async function drawAll() {
    for (const [id, figure] of Object.entries(drawing.figures)) {
      const panel = document.getElementById(id);
      const chart = panel.querySelector(".chart");
      await Plotly.newPlot(chart, figure.data, wholeLayout(figure.layout), settings);
      letLegendHide(panel, chart);
    }
    document.body.dataset.ready = "true";
  }

  drawAll();
})();
