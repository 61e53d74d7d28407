for (const button of document.querySelectorAll("button[data-for]")) {
  button.addEventListener("click", () => {
    const name = button.dataset.for;
    for (const other of document.querySelectorAll(`button[data-for="${name}"]`)) {
      other.setAttribute("aria-pressed", String(other.value === button.value));
    }
    for (const part of document.querySelectorAll(`[data-${name}]`)) {
      part.classList.toggle("hidden", part.getAttribute(`data-${name}`) !== button.value);
    }
  });
}
