"use strict";
(function () {
  const details = JSON.parse(document.getElementById("data").textContent);
  const sections = Array.from(document.querySelectorAll("#pictures section"));
  const slider = document.getElementById("slider");
  const told = document.getElementById("told");
  const hint = document.getElementById("hint");
  const aside = document.getElementById("details");
  let stop = 0;
  let kept = null;

  function add(parent, tag, text, style) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (style) element.className = style;
    parent.append(element);
    return element;
  }

  function addCode(title, text, style) {
    if (!text) return;
    add(told, "h3", title);
    add(told, "pre", text, style);
  }

  function showStage(stage) {
    add(told, "h2", stage.title);
    add(told, "p", stage.call ? stage.type + ", of " + stage.call : stage.type, "kind");
    addCode("Formula", stage.formula, "wrapped");
    if (stage.source) addCode("Source: " + stage.place, stage.source);
  }

  function showKernel(kernel) {
    add(told, "h2", kernel.title);
    if (kernel.work) add(told, "p", kernel.work, "kind");
    addCode("Generated kernel", kernel.code);
    if (kernel.reason) {
      add(told, "h3", "Why these stages");
      add(told, "p", kernel.reason);
    }
    add(told, "h3", "Memory");
    const list = add(told, "ul");
    for (const move of kernel.moves) add(list, "li", move);
  }

  function show(element) {
    const known = details[stop];
    const stage = known[element.dataset.key];
    const kernel = known["kernel " + element.dataset.home];
    told.replaceChildren();
    hint.hidden = true;
    if (stage && stage !== kernel) showStage(stage);
    if (kernel) showKernel(kernel);
    if (stage && stage !== kernel) addCode("Tensor IR", stage.ir, "wrapped");
    aside.scrollTop = 0;
  }

  function find(event) {
    return event.target instanceof Element ? event.target.closest("[data-key]") : null;
  }

  function keep(element) {
    if (kept) kept.classList.remove("kept");
    kept = kept === element ? null : element;
    if (kept) {
      kept.classList.add("kept");
      show(kept);
    }
  }

  function release() {
    if (kept) keep(kept);
  }

  function go(number) {
    release();
    stop = Math.min(Math.max(number, 0), sections.length - 1);
    sections.forEach(function (section, at) { section.hidden = at !== stop; });
    document.querySelectorAll("#names button").forEach(function (button, at) {
      if (at === stop) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    });
    const title = sections[stop].getAttribute("aria-label");
    slider.value = String(stop);
    slider.setAttribute("aria-valuetext", title);
    document.getElementById("stop").textContent = stop + 1 + " of " + sections.length + ": " + title;
    told.replaceChildren();
    hint.hidden = false;
  }

  for (const kind of ["mouseover", "focusin"]) {
    document.getElementById("pictures").addEventListener(kind, function (event) {
      const element = find(event);
      if (element && !kept) show(element);
    });
  }
  document.getElementById("pictures").addEventListener("click", function (event) {
    const element = find(event);
    if (element) keep(element);
    else release();
  });
  document.addEventListener("keydown", function (event) {
    const element = find(event);
    if (event.key === "Escape") release();
    else if (element && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      keep(element);
    }
  });
  slider.addEventListener("input", function () { go(Number(slider.value)); });
  document.getElementById("back").addEventListener("click", function () { go(stop - 1); });
  document.getElementById("next").addEventListener("click", function () { go(stop + 1); });
  document.getElementById("names").addEventListener("click", function (event) {
    if (event.target.dataset.stop) go(Number(event.target.dataset.stop));
  });
  document.getElementById("passes").addEventListener("submit", function (event) {
    event.preventDefault();
  });
  const asked = Number(new URLSearchParams(location.hash.slice(1)).get("stop"));
  go(location.hash.includes("stop=") ? asked - 1 : sections.length - 1);
})();
