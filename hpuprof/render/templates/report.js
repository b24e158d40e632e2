"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, inside = document) => Array.from(inside.querySelectorAll(selector));
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // Charts: drawn when they come near the window, all of them before printing.
  const source = document.getElementById("figures");
  if (source && window.Plotly) {
    root.classList.add("js");
    const figures = JSON.parse(source.textContent);
    const colors = (night) => (night ? { ink: "#e6eaee", card: "#1c242d" } : { ink: "#17202a", card: "#ffffff" });
    const themed = (layout, night, width) => {
      const c = colors(night);
      const narrow = width < 560;
      return Object.assign({}, layout, {
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
        font: Object.assign({}, layout.font, { color: c.ink, size: narrow ? 11 : 13 }),
        hoverlabel: Object.assign({}, layout.hoverlabel, { bgcolor: c.card, font: { color: c.ink } }),
        dragmode: window.matchMedia("(pointer: coarse)").matches || narrow ? false : "zoom",
        margin: Object.assign({}, layout.margin, narrow ? { l: 10 } : {}),
      });
    };
    const config = { displayModeBar: false, displaylogo: false, responsive: true };
    const draw = (box, night = dark.matches) => {
      const figure = figures[box.dataset.figure];
      box.dataset.drawn = night ? "dark" : "light";
      return window.Plotly.react(box, figure.data, themed(figure.layout, night, box.clientWidth), config);
    };
    const boxes = all(".chart");
    const drawn = () => boxes.filter((box) => box.dataset.drawn);
    if ("IntersectionObserver" in window) {
      const watch = new IntersectionObserver((seen) => {
        for (const entry of seen) {
          if (entry.isIntersecting) { watch.unobserve(entry.target); if (!entry.target.dataset.drawn) draw(entry.target); }
        }
      }, { rootMargin: "800px" });
      boxes.forEach((box) => watch.observe(box));
    } else {
      boxes.forEach((box) => draw(box));
    }
    dark.addEventListener("change", () => drawn().forEach((box) => draw(box)));
    window.addEventListener("beforeprint", () => boxes.forEach((box) => draw(box, false)));
    window.addEventListener("afterprint", () => boxes.forEach((box) => draw(box)));
    window.hpuprofDraw = () => Promise.all(boxes.map((box) => draw(box))).then(() => boxes.length);
  }

  // Tables: headers sort by the value behind the text; unknown comes last both ways.
  const keyed = (row, at) => {
    const key = row.cells[at].dataset.k;
    if (key === undefined) return null;
    return row.cells[at].classList.contains("n") ? Number(key) : key;
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0);
  for (const table of all("table[data-sorts]")) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const was = head.getAttribute("aria-sort");
        const up = was === "descending" ? true : was === "ascending" ? false : !head.classList.contains("n");
        heads.forEach((other) => other.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = Array.from(table.tBodies[0].rows).map((row, place) => ({ row, place, key: keyed(row, at) }));
        rows.sort((a, b) => {
          if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.place - b.place;
          return (up ? 1 : -1) * compare(a.key, b.key) || a.place - b.place;
        });
        table.tBodies[0].append(...rows.map((entry) => entry.row));
      });
    });
  }
  for (const input of all("input[data-filter]")) {
    const table = document.getElementById(input.dataset.filter);
    const said = input.closest(".filter").querySelector("[role=status]");
    input.closest(".filter").hidden = false;
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const rows = Array.from(table.tBodies[0].rows);
      let left = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase() + " " + all("[title]", row).map((cell) => cell.title.toLowerCase()).join(" ");
        row.hidden = !words.every((word) => text.includes(word));
        left += row.hidden ? 0 : 1;
      }
      said.textContent = words.length ? `${left} of ${rows.length} rows` : "";
    });
  }

  // Code: a button that copies it.
  for (const pre of all("pre")) {
    const box = document.createElement("div");
    box.className = "code";
    pre.replaceWith(box);
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-live", "polite");
    box.append(pre, button);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(pre.textContent);
      } catch {
        const range = document.createRange();
        range.selectNodeContents(pre);
        const selection = window.getSelection();
        selection.removeAllRanges();
        selection.addRange(range);
        document.execCommand("copy");
      }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  // A definition that is linked to gets the focus, so that it is read out.
  window.addEventListener("hashchange", () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.closest(".terms")) target.focus({ preventScroll: true });
  });
  let closed = [];
  window.addEventListener("beforeprint", () => { closed = all("details:not([open])"); closed.forEach((fold) => { fold.open = true; }); });
  window.addEventListener("afterprint", () => closed.forEach((fold) => { fold.open = false; }));
})();
