// A formula that is wider than its column can be reached by the keyboard, to scroll it; on paper it is set smaller.
const PAPER = 640; // px: a line of A4 without its margins
function measure() {
  for (const one of document.querySelectorAll("div.math")) {
    const wide = one.scrollWidth > one.clientWidth;
    for (const [name, value] of [["tabindex", 0], ["role", "group"], ["aria-label", "formula"]])
      if (wide) one.setAttribute(name, value); else one.removeAttribute(name);
    one.style.setProperty("--fits", Math.min(1, PAPER / one.firstElementChild.getBoundingClientRect().width));
  }
}
addEventListener("load", measure);
addEventListener("resize", () => matchMedia("print").matches || measure());
