// What the page does with JavaScript; it can be read without.
// Charts: a slider below each reads its numbers one by one, by keyboard or pointer; each comes with its interval.
"use strict";

function readable(chart) {
  const points = JSON.parse(chart.dataset.points || "[]");
  if (!points.length) return;
  const picture = chart.querySelector("svg");
  const slider = document.createElement("input");
  const said = document.createElement("output");
  const mark = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  const box = picture.viewBox.baseVal;
  mark.setAttribute("class", "mark");
  mark.setAttribute("r", "4.5");
  slider.type = "range";
  slider.min = 0;
  slider.max = points.length - 1;
  slider.step = 1;
  slider.value = 0;
  slider.setAttribute("aria-label", `Read the numbers of the chart: ${picture.getAttribute("aria-label").split(".")[0]}`);
  said.textContent = "Point at the chart, or use the slider, to read its numbers.";

  function show(at) {
    const [x, y, text] = points[at];
    slider.value = at;
    slider.setAttribute("aria-valuetext", text);
    said.textContent = text;
    said.className = "reading";
    mark.setAttribute("cx", x * box.width);
    mark.setAttribute("cy", y * box.height);
    picture.append(mark);
  }

  function nearest(event) {
    const place = picture.getBoundingClientRect();
    const x = (event.clientX - place.left) / place.width;
    const y = (event.clientY - place.top) / place.height;
    let best = 0;
    let least = Infinity;
    points.forEach((point, at) => {
      // Of points at one place across, the one that is next to the pointer; across counts more.
      const away = Math.abs(point[0] - x) + 0.3 * Math.abs(point[1] - y);
      if (away < least) [best, least] = [at, away];
    });
    return best;
  }

  slider.setAttribute("aria-valuetext", points[0][2]);
  slider.addEventListener("input", () => show(Number(slider.value)));
  slider.addEventListener("focus", () => show(Number(slider.value)));
  picture.addEventListener("pointermove", (event) => show(nearest(event)));
  picture.addEventListener("pointerdown", (event) => show(nearest(event)));
  chart.append(slider, said);
}

document.querySelectorAll(".chart").forEach(readable);

// Numbers that are being reconstructed: look again after a while, as long as somebody looks at the page and does not
// choose something, which a new page would take from under their hand.
const wait = Number(document.body.dataset.refresh);
function lookAgain() {
  if (document.hidden) document.addEventListener("visibilitychange", lookAgain, { once: true });
  else if (document.activeElement?.matches("select, input")) setTimeout(lookAgain, wait * 1000);
  else location.reload();
}
if (wait > 0) setTimeout(lookAgain, wait * 1000);
