// Runs before the first paint, so that the page never flashes in the other colours.
(() => {
  let kept = null;
  try { kept = localStorage.getItem("foldlog.theme"); } catch { /* storage may be forbidden: the system decides */ }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
