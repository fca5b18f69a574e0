// A formula that is wider than its column can be reached by the keyboard, to scroll it.
function reach() {
  for (const one of document.querySelectorAll("div.math")) {
    const wide = one.scrollWidth > one.clientWidth;
    if (wide) one.setAttribute("tabindex", 0); else one.removeAttribute("tabindex");
    if (wide) { one.setAttribute("role", "group"); one.setAttribute("aria-label", "formula"); }
  }
}
addEventListener("load", reach);
addEventListener("resize", reach);
