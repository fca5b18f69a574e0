// A formula that is wider than its column can be reached by the keyboard, to scroll it; on paper it is set smaller.
// A figure with more than WIDE pixels a line is not shrunk to a phone's width, but scrolled.
const PAPER = 640; // px: a line of A4 without its margins
const WIDE = 600;
function measure() {
  for (const one of document.querySelectorAll(".cell_output img"))
    one.classList.toggle("large", one.naturalWidth > WIDE);
  for (const one of document.querySelectorAll("span.math")) {
    one.classList.remove("wide");
    if (one.offsetWidth > one.closest("p, li, td, th, dd, div").clientWidth) {
      one.classList.add("wide");
      one.tabIndex = 0;
    } else one.removeAttribute("tabindex");
  }
  for (const one of document.querySelectorAll("div.math")) {
    const wide = one.scrollWidth > one.clientWidth;
    for (const [name, value] of [["tabindex", 0], ["role", "group"], ["aria-label", "formula"]])
      if (wide) one.setAttribute(name, value); else one.removeAttribute(name);
    one.style.setProperty("--fits", Math.min(1, PAPER / one.firstElementChild.getBoundingClientRect().width));
  }
}
addEventListener("load", measure);
addEventListener("resize", () => matchMedia("print").matches || measure());
