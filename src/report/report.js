// Draws the charts of a report from the data in #charts, in the colours of the style sheet.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const shapes = ["circle", "rect", "triangle", "rectRot", "star", "crossRot"];
  const dashes = [[], [6, 3], [2, 2], [8, 3, 2, 3]];

  const short = (value) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    return size >= 1e5 || size < 1e-3 ? value.toExponential(size < 1e-3 ? 1 : 2).replace("e+", "e") : String(+value.toPrecision(4));
  };

  // A logarithmic axis says its powers of ten, and where it spans few of them what lies between.
  const logTick = function (value) {
    const digit = Math.round(value / 10 ** Math.floor(Math.log10(value) + 1e-9));
    const decades = Math.log10(this.max / this.min);
    return digit === 1 || (decades < 3 && (digit === 2 || digit === 5)) ? short(value) : "";
  };

  // The names of the points of a scatter, beside them where there is room; the legend has them all.
  const pointNames = {
    id: "pointNames",
    afterDatasetsDraw(chart) {
      if (chart.config.type !== "scatter" || chart.width < 420) return;
      const { ctx, chartArea } = chart;
      const points = chart.data.datasets.flatMap((set, index) =>
        chart.getDatasetMeta(index).data.map((point) => ({ label: set.label, x: point.x, y: point.y })));
      const taken = points.map((point) => ({ x: point.x - 7, y: point.y - 7, width: 14, height: 14 }));
      ctx.save();
      ctx.font = `12px ${Chart.defaults.font.family}`;
      ctx.fillStyle = chart.options.color;
      ctx.textBaseline = "top";
      for (const { label, x, y } of points) {
        const width = ctx.measureText(label).width;
        const places = [0, -14, 14, -28, 28].flatMap((dy) => [[x + 10, y - 6 + dy], [x - 10 - width, y - 6 + dy]]);
        const free = places.find(([left, top]) =>
          left >= chartArea.left && left + width <= chartArea.right && top >= chartArea.top && top + 12 <= chartArea.bottom &&
          !taken.some((box) => left < box.x + box.width && box.x < left + width && top < box.y + box.height && box.y < top + 12));
        if (!free) continue;
        taken.push({ x: free[0], y: free[1], width, height: 12 });
        ctx.fillText(label, ...free);
      }
      ctx.restore();
    },
  };

  const config = (chart, style) => {
    const colour = (i) => style.getPropertyValue(`--series-${i % 8}`).trim();
    const ink = style.getPropertyValue("--ink").trim();
    const soft = style.getPropertyValue("--soft").trim();
    const line = style.getPropertyValue("--line").trim();
    const scatter = chart.kind === "scatter";
    const flat = chart.kind === "stacked";
    const fall = chart.kind === "waterfall";
    const axis = (label, extra) => ({
      title: { display: Boolean(label), text: label, color: soft },
      ticks: { color: soft, maxRotation: chart.kind === "bar" || fall ? 50 : 0, autoSkipPadding: 12 },
      grid: { color: (context) => (context.tick?.label === "" ? "transparent" : line), borderColor: line },
      ...extra,
    });
    const logarithmic = chart.logY && { type: "logarithmic", ticks: { color: soft, autoSkip: false, callback: logTick } };
    const datasets = chart.series.map((series, i) => ({
      label: series.name,
      data: fall ? series.y.map((y, k) => [k ? series.y[k - 1] : 0, y]) : scatter ? series.y.map((y, k) => ({ x: series.x[k], y })) : chart.logY ? series.y.map((y) => (y > 0 ? y : null)) : series.y,
      borderColor: colour(i),
      backgroundColor: fall ? series.y.map((y, k) => colour(k === 0 ? 0 : y > series.y[k - 1] ? 1 : 2)) : colour(i),
      pointStyle: shapes[i % shapes.length],
      pointRadius: scatter ? 6 : chart.categories.length > 40 ? 0 : 2.5,
      pointHoverRadius: scatter ? 8 : 5,
      borderWidth: scatter || chart.kind === "line" ? 2 : 0,
      borderDash: chart.kind === "line" ? dashes[i % dashes.length] : [],
      maxBarThickness: 36,
      spanGaps: false,
    }));
    const values = axis(chart.yLabel, { ...logarithmic, stacked: flat, beginAtZero: !scatter && !chart.logY, grace: scatter ? "8%" : 0 });
    const names = axis(flat ? "" : chart.xLabel, { stacked: flat, ...(scatter && { type: "linear", grace: "8%" }) });
    return {
      type: scatter ? "scatter" : chart.kind === "line" ? "line" : "bar",
      data: { labels: chart.categories, datasets },
      options: {
        animation: false,
        responsive: true,
        maintainAspectRatio: false,
        locale: "en",
        color: ink,
        indexAxis: flat ? "y" : "x",
        interaction: scatter ? { mode: "nearest", intersect: false } : { mode: "index", axis: flat ? "y" : "x", intersect: false },
        scales: flat ? { x: values, y: names } : { x: names, y: values },
        plugins: {
          legend: {
            display: chart.series.length > 1,
            position: "bottom",
            labels: { color: ink, usePointStyle: true, boxHeight: 7, boxWidth: 24, padding: 12 },
          },
          tooltip: {
            callbacks: {
              label: (item) =>
                scatter
                  ? `${item.dataset.label}: ${short(item.parsed.y)} at ${short(item.parsed.x)} ${chart.xLabel}`
                  : `${item.dataset.label}: ${short(fall ? chart.series[0].y[item.dataIndex] : flat ? item.parsed.x : item.parsed.y)}`,
            },
          },
        },
      },
      plugins: [pointNames],
    };
  };

  let drawn = [];
  const draw = () => {
    drawn.forEach((chart) => chart.destroy());
    const style = getComputedStyle(document.documentElement);
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    drawn = [...document.querySelectorAll("canvas[data-chart]")].map((canvas) => new Chart(canvas, config(charts[canvas.dataset.chart], style)));
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  matchMedia("print").addEventListener("change", draw);
  // On paper everything is open.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")].filter((details) => !details.closest("figure"));
    opened.forEach((details) => (details.open = true));
    drawn.forEach((chart) => chart.resize());
  });
  addEventListener("afterprint", () => opened.forEach((details) => (details.open = false)));
})();
