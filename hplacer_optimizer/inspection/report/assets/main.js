// Puts the charts on the page, and draws them again when size or theme change or it is printed.

async function main() {
  await draw();
  performance.mark("drawn");
  document.documentElement.dataset.ready = "true";
}

async function draw() {
  const sections = document.querySelectorAll("[data-interactive]");
  const text = document.getElementById("data").textContent;
  if (!text.trim()) { // no kernel or no link: there is no step to show
    for (const section of sections) section.hidden = true;
    return;
  }
  const data = await unpack(text);
  const graph = new Graph(data), steps = [];
  for (const [index, own] of data.steps.entries()) steps.push(new Step(graph, { ...own, index }, steps[0]));
  const view = new View(Math.max(...steps.map((step) => step.makespan_ns)));
  const [timeline, memory, scopes] = sections;
  new Timeline(timeline, steps, view);
  new MemoryChart(memory, steps[0], view);
  new ScopeGraph(scopes, steps[0]);
  view.drawNow();
  new ResizeObserver(() => view.redraw()).observe(document.body);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view.redraw());
  for (const [name, printing] of [["beforeprint", true], ["afterprint", false]]) {
    window.addEventListener(name, () => {
      document.documentElement.classList.toggle("printing", printing);
      view.drawNow();
    });
  }
}

main().catch((error) => {
  for (const section of document.querySelectorAll("[data-interactive]")) {
    const note = document.createElement("p");
    note.className = "bad";
    note.textContent = `This chart cannot be drawn: ${error.message}. It needs a browser of 2023 or later.`;
    section.append(note);
  }
  console.error(error);
});
